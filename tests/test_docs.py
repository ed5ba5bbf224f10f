"""The documents' links lead somewhere: to a file that is there, and in documents to a heading of that name."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\]\(([^)\s#]*)(?:#([^)\s]+))?\)")


def anchors(document: Path) -> set[str]:
    """Of its headings, as GitHub makes them."""
    text = re.sub(r"^```.*?^```", "", document.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h.lower()).strip().replace(" ", "-") for h in headings}


def broken(document: Path) -> list[str]:
    """The links of a document that lead nowhere."""
    found = []
    for path, anchor in LINK.findall(document.read_text()):
        if path.startswith(("http:", "https:", "mailto:")):
            continue
        target = document.parent / path if path else document
        if not target.exists() or (
            anchor and target.suffix == ".md" and anchor not in anchors(target)
        ):
            found.append(f"{path}#{anchor}" if anchor else path)
    return found


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document):
    assert broken(document) == []


def test_a_link_that_leads_nowhere_is_found(tmp_path):
    (tmp_path / "b.md").write_text("# A `name` of its own\n```\n# no heading\n```\n")
    document = tmp_path / "a.md"
    document.write_text(
        "# Here\n[1](b.md) [2](c.md) [3](b.md#a-name-of-its-own) [4](b.md#no-heading) [5](#here) [6](#there) "
        "[7](https://x.org/y#z)\n"
    )
    assert broken(document) == ["c.md", "b.md#no-heading", "#there"]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_sentence_begins_with_of(document):
    if document.name != "CHANGELOG.md":
        assert re.findall(r"(?:^|[.:;)] )Of [a-z0-9].{40}", document.read_text(), re.M) == []
