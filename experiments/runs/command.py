"""Running a command: Hydra around a function of a plain dataclass, errors as one sentence.

A user's mistake prints one sentence and ends with exit code 2; ``HYDRA_FULL_ERROR=1`` shows the
traceback as well. Anything else that fails is a defect and shows its traceback, with exit code 1.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

import hydra
from hydra._internal.hydra import Hydra
from hydra._internal.utils import get_args_parser
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import (
    ConfigAttributeError,
    ConfigKeyError,
    MissingMandatoryValue,
    OmegaConfBaseException,
)

from experiments.runs import catalog
from experiments.runs.configs import GROUPS, SWEEP_ONLY, Preset
from experiments.runs.garbage import seldom_collecting
from experiments.runs.help import answered
from experiments.runs.ignored import refuse_unread
from experiments.runs.overrides import parse, quote, read_overrides
from experiments.runs.presets import check_command, refuse_foreign
from experiments.runs.yaml_files import checked_by_hydra
from simulator.errors import HetsimError, InvalidInput, shortened
from simulator.support.own_errors import own_error

T = TypeVar("T")
_MISTAKES = (HetsimError, HydraException, OmegaConfBaseException, OSError)
"""Errors that a user can cause; besides, those that arise in code of a user's own."""


def key_values(command: str, words: Iterable[str], known: Iterable[str]) -> dict[str, str]:
    """Options that were given as ``KEY=VALUE``.

    Args:
        command: its name, for what is refused.
        words: as they stood on the command line.
        known: the keys.

    Raises:
        InvalidInput: a word is none of these.
    """
    known = list(known)
    given: dict[str, str] = {}
    for word in words:
        key, separator, value = word.partition("=")
        if not separator or key not in known:
            raise InvalidInput(f"{command} has no option '{word}'; known: {', '.join(known)}")
        given[key] = value
    return given


def number(given: Mapping[str, str], key: str, default: int, most: int) -> int:
    """An option of :func:`key_values` as an integer.

    Raises:
        InvalidInput: it is none, or not from 1 to ``most``.
    """
    text = given.get(key, str(default))
    if not text.isdigit() or not 1 <= int(text) <= most:
        raise InvalidInput(f"{key}={text} must be an integer from 1 to {most}")
    return int(text)


@dataclass(frozen=True)
class Invocation:
    """How a command was called.

    Attributes:
        module: ``experiments.simulate``.
        overrides: what stood on the command line, Hydra's own settings left out.
        config_dirs: the user's folders of configs, absolute.
    """

    module: str
    overrides: tuple[str, ...]
    config_dirs: tuple[Path, ...]

    @property
    def command(self) -> str:
        """One line for a shell that does the same again."""
        return command_line(self.module, self.overrides, self.config_dirs)


def command_line(module: str, overrides: Sequence[str], config_dirs: Sequence[Path]) -> str:
    """The shell line that runs a command with these overrides."""
    words = ["python", "-m", module]
    for folder in config_dirs:
        words += ["--config-dir", str(folder)]
    return shlex.join([*words, *overrides])


def hydra_command(
    task: Callable[[T, Invocation], None],
    schema: type[T],
    module: str,
    arguments: Sequence[str] | None = None,
    config_name: str = "config",
    schema_name: str = "schema",
) -> int:
    """Compose a command's config with Hydra, hand it to ``task`` as a dataclass, return the exit code.

    Args:
        task: called once, or once a job with ``-m``.
        schema: dataclass of everything that the config may hold.
        module: what stands behind ``python -m``.
        arguments: the command line, ``sys.argv[1:]`` unless given.
        config_name: primary config in ``conf/``.
        schema_name: what its defaults list calls the schema.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    if answered(module.removeprefix("experiments."), words):
        return 0
    config_dirs = user_folders(words)
    register(schema, schema_name)

    failures: list[Exception] = []

    def job(config: DictConfig) -> None:
        given = HydraConfig.get().overrides.task
        overrides = tuple(OmegaConf.to_container(given))  # type: ignore[arg-type]
        try:
            settings = plain(config, schema)
            if isinstance(settings, Preset):
                check_command(settings.command, module)
                check_output(settings.output_dir)
                refuse_unread([parse(word) for word in overrides], [settings])
            task(settings, Invocation(module, overrides, tuple(config_dirs)))
        except Exception as error:
            if not isinstance(error, _MISTAKES) and own_error(error) is None:
                raise
            # Raised through Hydra it would be printed twice; with -m the other jobs go on.
            failures.append(error)

    def run() -> None:
        typed: list[str] = get_args_parser().parse_args(words).overrides
        given = read_overrides(typed, config_dirs)
        refuse_foreign(given, module, config_dirs)
        meant = {word: str(o.input_line) for word, o in zip(typed, given, strict=True)}
        decorated = hydra.main(
            version_base="1.3", config_path=str(catalog.CONF), config_name=config_name
        )(job)
        with (
            _command_line(module, [meant.get(word, word) for word in words]),
            _full_errors(),
            _composed_once(words),
            checked_by_hydra(),
        ):
            decorated()
        if len(failures) > 1:
            print(f"{len(failures)} jobs failed; the first:", file=sys.stderr)
        if failures:
            raise failures[0]

    return report_errors(run, config_dirs)


def report_errors(run: Callable[[], None], config_dirs: Sequence[Path] = ()) -> int:
    """Call ``run``; print a user's mistake as one sentence. Returns the exit code."""
    try:
        with seldom_collecting():
            run()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader of a pipe (head, less) went away; there is nobody left to tell.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        mistake = isinstance(error, _MISTAKES) or own_error(error) is not None
        if not mistake or os.environ.get("HYDRA_FULL_ERROR") == "1":
            raise
        print(readable(error, config_dirs), file=sys.stderr)
        return 2
    return 0


def check_output(folder: str) -> None:
    """Refuse a folder for results that cannot be made, before anything is done.

    Raises:
        InvalidInput: names the part of its path that is in the way.
    """
    if not folder.strip():
        raise InvalidInput("output_dir= names no folder; leave it out for outputs/")
    path = Path(folder)
    try:
        there = next(part for part in (path, *path.absolute().parents) if part.exists())
    except OSError as error:  # a name that is too long, say
        raise InvalidInput(
            f"Cannot make the folder output_dir={folder}: {error.strerror}"
        ) from None
    reason = None
    if not there.is_dir():
        reason = "is no folder"
    elif not os.access(there, os.W_OK | os.X_OK):
        reason = "cannot be written"
    if reason is not None:
        raise InvalidInput(f"Cannot make the folder output_dir={folder}: {there} {reason}")


def register(schema: type[Any], name: str = "schema") -> None:
    """Make a dataclass the schema that ``conf/*.yaml`` calls ``name``; the last one given counts."""
    ConfigStore.instance().store(name, schema)


def sweeping_main(
    module: str,
    act: Callable[[Invocation], int],
    arguments: Sequence[str] | None,
    flags: Mapping[str, Mapping[str, Any]] | None = None,
) -> int:
    """The ``main`` of a command that runs many combinations itself, without Hydra's jobs.

    Args:
        module: ``experiments.sweep``.
        act: the command; returns its exit code.
        arguments: words of the command line; None for the process's own.
        flags: further options that are taken, as ``argparse`` has them, by their names; none of them
            reaches ``act``.

    Returns:
        The exit code.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    if answered(module.removeprefix("experiments."), words):
        return 0
    parser = argparse.ArgumentParser(prog=f"python -m {module}", add_help=False)
    parser.add_argument("--config-dir", "-cd", metavar="FOLDER")
    for names, options in (flags or {}).items():
        parser.add_argument(*names.split(), **options)
    parser.add_argument("overrides", nargs="*", metavar="key=value")
    overrides = tuple(parser.parse_intermixed_args(words).overrides)
    config_dirs = tuple(user_folders(words))
    code = 0

    def run() -> None:
        nonlocal code
        code = act(Invocation(module, overrides, config_dirs))

    return report_errors(run, config_dirs) or code


def user_folders(words: Sequence[str]) -> list[Path]:
    """The folder behind ``--config-dir`` on a command line, absolute; empty without one.

    Whether it exists is Hydra's to check.
    """
    for position, word in enumerate(words):
        flag, separator, value = word.partition("=")
        if flag in ("--config-dir", "-cd"):
            if not separator:
                value = words[position + 1] if position + 1 < len(words) else ""
            return [Path(value).expanduser().resolve()] if value else []
    return []


def plain(config: DictConfig, schema: type[T]) -> T:
    """A composed config as its dataclass, interpolations resolved.

    Raises:
        InvalidInput: it holds a key that the schema lacks (``+key=value`` can add one).
        OmegaConfBaseException: a value is missing or cannot be resolved.
    """
    value = OmegaConf.to_object(config)
    assert isinstance(value, schema)
    _refuse_extra(value, "")
    return value


def _refuse_extra(value: Any, path: str) -> None:
    if dataclasses.is_dataclass(value):
        fields = {field.name for field in dataclasses.fields(value)}
        for key, entry in vars(value).items():
            if key not in fields:
                raise _no_key(path + key, sorted(fields), path)
            _refuse_extra(entry, f"{path}{key}.")
    elif isinstance(value, dict):
        for key, entry in value.items():
            _refuse_extra(entry, f"{path}{key}.")


# -- errors in one sentence ---------------------------------------------------------------------


def readable(error: BaseException, config_dirs: Sequence[Path] = ()) -> str:
    """One sentence for an error of ours, of Hydra's, of OmegaConf's or of a user's own code."""
    return shortened(own_error(error) or _sentence(error, config_dirs))


def _sentence(error: BaseException, config_dirs: Sequence[Path]) -> str:
    if isinstance(error, HetsimError):
        return " ".join(str(error).split())  # a name may hold line breaks
    if isinstance(error, OSError) and not isinstance(error, HydraException):
        where = "" if error.filename is None else f" {error.filename}"
        return f"Cannot read or write{where}: {error.strerror or error}; what was finished before is kept"
    cause: BaseException = error
    # OmegaConf can raise an error from itself.
    while cause.__cause__ is not cause and isinstance(
        cause.__cause__, OmegaConfBaseException | HydraException
    ):
        cause = cause.__cause__
    text = str(error)
    missing = re.search(r"Could not (?:find|load) '(\w+)/([^']+)'", text)
    if isinstance(error, MissingConfigException) and missing:
        return str(catalog.unknown(missing[1], missing[2], config_dirs))
    ambiguous = re.search(r"Ambiguous value for argument '(.*)'", text)
    if ambiguous:
        key, _, value = ambiguous[1].partition("=")
        return (
            f"'{ambiguous[1]}' gives several values where one run takes one. To run them all: add -m, "
            f"or python -m experiments.sweep {ambiguous[1]}. A comma that belongs to one value stands in "
            f"quotes within quotes: {shlex.quote(f'{key}={quote(value)}')}"
        )
    if isinstance(error, OverrideParseException):
        return f"Cannot read '{error.override}': {_first_line(text)}"
    if isinstance(cause, MissingMandatoryValue):
        return f"{cause.full_key or _first_line(str(cause))} has no default; give it a value"
    if isinstance(cause, ConfigKeyError | ConfigAttributeError):
        return str(_unknown_key(cause, text))
    if "No match in the defaults list" in text:
        word = re.search(r"Could not override '([^']+)'", text)
        known = ", ".join((*GROUPS, "experiment"))
        return f"There is no config group '{word[1] if word else text}'; groups: {known}"
    if isinstance(cause, OmegaConfBaseException):
        key = f"{cause.full_key}: " if cause.full_key else ""
        return f"{key}{_first_line(str(cause))}"
    return _first_line(text)


def _unknown_key(cause: OmegaConfBaseException, text: str) -> InvalidInput:
    key = cause.full_key or str(cause.key)
    parent = cause.parent_node
    known: list[str] = []
    if parent is not None and OmegaConf.is_dict(parent):
        known = [str(name) for name in parent if name != "hydra"]
    elif parent is None:
        word = re.search(r"Could not override '([^']+)'", text)
        key = word[1] if word else key
    path = key.rpartition(".")[0]
    return _no_key(key, known, f"{path}." if path else "")


def _no_key(key: str, known: Sequence[str], path: str) -> InvalidInput:
    name = key.rpartition(".")[2]
    near = get_close_matches(name, known, n=2)
    hint = f"Nearest: {', '.join(path + n for n in near)}. " if near else ""
    there = f"Known there: {', '.join(known)}" if known else ""
    if not path and name in SWEEP_ONLY:
        hint += "It belongs to python -m experiments.sweep. "
    return InvalidInput(f"There is no key '{key}'. {hint}{there}".rstrip())


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "unknown error")


@contextlib.contextmanager
def _command_line(module: str, words: Sequence[str]) -> Iterator[None]:
    before = sys.argv
    sys.argv = [module, *words]
    try:
        yield
    finally:
        sys.argv = before


@contextlib.contextmanager
def _composed_once(words: Sequence[str]) -> Iterator[None]:
    """Spare Hydra composing everything a first time only to read ``hydra.mode``, if nobody gives it.

    Without it ``-m`` alone decides whether there are several jobs; presets say so with ``sweep:``.
    """
    if any("hydra.mode" in word for word in words):
        yield
        return
    before = Hydra.get_mode
    Hydra.get_mode = lambda *_, **__: None  # type: ignore[method-assign]
    try:
        yield
    finally:
        Hydra.get_mode = before  # type: ignore[method-assign]


@contextlib.contextmanager
def _full_errors() -> Iterator[None]:
    """Let Hydra raise instead of printing and leaving."""
    before = os.environ.get("HYDRA_FULL_ERROR")
    os.environ["HYDRA_FULL_ERROR"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["HYDRA_FULL_ERROR"]
        else:
            os.environ["HYDRA_FULL_ERROR"] = before
