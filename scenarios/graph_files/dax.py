"""Workflows of Pegasus, DAX (https://pegasus.isi.edu/schema/), versions 2.0 to 3.6, in XML.

A job's work is its ``runtime`` in seconds, as the published synthetic workflows have it, or that of a
profile or of metadata. Jobs depend on each other as ``child`` and ``parent`` say, and where one reads
what another writes. An edge's data are the bytes of the files that its producer writes and its consumer
reads: the ``size`` of either's ``uses``, or of metadata. Files that no job writes are there from the
start and cost nothing. Catalogs, transformations and arguments are not read.
"""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from scenarios.graph_files.values import EQUAL_DATA, EQUAL_WORK, moved_bytes, number_of, shown
from scenarios.random_graphs.shape import Shape, check_size
from simulator.errors import InvalidInput

JOBS = ("job", "dax", "dag")
LINKS = {"input": (True, False), "output": (False, True), "inout": (True, True)}
"""Whether a job reads and whether it writes a file."""


def read_dax(data: bytes) -> Shape:
    """The graph of a file; without any runtimes every job has work 1.

    Raises:
        InvalidInput: says what is wrong and with which job.
    """
    root = _parse(data)
    if root.tag != "adag":
        raise InvalidInput(
            f"It is XML of no form that is known: a DAX of Pegasus begins with <adag>, not <{root.tag}>"
        )
    jobs = [element for element in root if element.tag in JOBS]
    if not jobs:
        raise InvalidInput("The workflow has no jobs")
    check_size(len(jobs), 0)
    names = [_attribute(job, "id", "A job") for job in jobs]
    index: dict[str, int] = {}
    for number, name in enumerate(names):
        if name in index:
            raise InvalidInput(f"Two jobs have the id {shown(name)}")
        index[name] = number
    sizes = {
        file.get("name", ""): size
        for file in root.findall("file")
        if (size := _said(file, "size")) is not None
    }
    written: list[dict[str, float | None]] = [{} for _ in jobs]
    read: list[dict[str, float | None]] = [{} for _ in jobs]
    for number, job in enumerate(jobs):
        for file, link, size in _files(job, names[number]):
            reads, writes = LINKS[link]
            size = sizes.get(file) if size is None else size
            value = None if size is None else number_of(size, f"The size of file {shown(file)}")
            for kept in [read[number]] * reads + [written[number]] * writes:
                if kept.get(file) is None:
                    kept[file] = value
    edges = _edges(root, index, written, read)
    check_size(len(jobs), len(edges))
    notes = []
    work = _runtimes(jobs, names)
    if work is None:
        notes.append(f"no job has a runtime: {EQUAL_WORK}")
    bytes_ = moved_bytes(edges, written, read, names)
    if edges and bytes_ is None:
        notes.append(f"no edge moves a file with a size: {EQUAL_DATA}")
    return Shape.of(edges, work or [1.0] * len(jobs), bytes_ or [0.0] * len(edges), names, notes)


def _edges(
    root: Element,
    index: dict[str, int],
    written: list[dict[str, float | None]],
    read: list[dict[str, float | None]],
) -> list[tuple[int, int]]:
    """(producer, consumer), each once: those that are declared first, then those that files make."""
    edges: dict[tuple[int, int], None] = {}

    def job(element: Element) -> int:
        name = _attribute(element, "ref", f"A <{element.tag}>")
        if name not in index:
            raise InvalidInput(f"A <{element.tag}> refers to {shown(name)}, which is no job")
        return index[name]

    for child in root.findall("child"):
        for parent in child.findall("parent"):
            edges[job(parent), job(child)] = None
    # Who changes a file in place is ordered by what is declared alone.
    writers: dict[str, list[int]] = {}
    for number, files in enumerate(written):
        for file in files.keys() - read[number].keys():
            writers.setdefault(file, []).append(number)
    for number, files in enumerate(read):
        for file in files:
            for writer in writers.get(file, ()):
                edges.setdefault((writer, number))
    return list(edges)


def _files(job: Element, name: str) -> Iterator[tuple[str, str, str | None]]:
    """Name, link and size of each file that a job uses."""
    for use in job.findall("uses"):
        file = use.get("name") or use.get("file")
        if not file:
            raise InvalidInput(f"Job {shown(name)} uses a file without a name")
        link = use.get("link", "").lower()
        if not link or link in ("none", "checkpoint"):
            continue  # an executable, say: nothing that one job hands to another
        if link not in LINKS:
            raise InvalidInput(
                f"Job {shown(name)}: file {shown(file)} has link {shown(link)}, not {', '.join(LINKS)}"
            )
        yield file, link, _said(use, "size")


def _runtimes(jobs: list[Element], names: list[str]) -> list[float] | None:
    """Seconds of each job; None where the file has none."""
    found = [_said(job, "runtime") for job in jobs]
    if all(text is None for text in found):
        return None
    if None in found:
        raise InvalidInput(
            f"Job {shown(names[found.index(None)])} has no runtime, though others have; give all or none"
        )
    return [
        number_of(text, f"The runtime of job {shown(name)}")
        for name, text in zip(names, found, strict=True)
    ]


def _said(element: Element, key: str) -> str | None:
    """What an element says of itself: as an attribute, in a profile or in metadata."""
    if key in element.attrib:
        return element.attrib[key]
    for entry in element:
        if entry.tag in ("profile", "metadata") and entry.get("key", "").lower() == key:
            return (entry.text or "").strip()
    return None


def _attribute(element: Element, key: str, what: str) -> str:
    value = element.get(key)
    if not value:
        raise InvalidInput(f"{what} lacks the attribute '{key}'")
    return value


def _parse(data: bytes) -> Element:
    """The root of a document, namespaces left out.

    A document type is refused: its entities could name other files, or grow without bound.
    """
    builder = TreeBuilder()
    parser = expat.ParserCreate(namespace_separator=" ")
    parser.buffer_text = True

    def refuse(*_: object) -> None:
        raise InvalidInput("It has a document type (<!DOCTYPE ...>), which is not read; delete it")

    def start(name: str, attributes: dict[str, str]) -> None:
        builder.start(name.rpartition(" ")[2], attributes)

    parser.StartDoctypeDeclHandler = refuse
    parser.StartElementHandler = start
    parser.EndElementHandler = lambda name: builder.end(name.rpartition(" ")[2])
    parser.CharacterDataHandler = builder.data
    try:
        parser.Parse(data, True)
    except (expat.ExpatError, ValueError, LookupError) as error:
        if isinstance(error, InvalidInput):
            raise
        raise InvalidInput(f"It is not XML ({error}); was it truncated?") from None
    return builder.close()
