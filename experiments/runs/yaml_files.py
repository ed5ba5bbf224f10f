"""YAML from files that people wrote: text in UTF-8, and no larger when read than its author can have meant."""

from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Iterator
from pathlib import Path

import yaml  # type: ignore[import-untyped]
from hydra._internal.config_repository import ConfigRepository
from hydra.core.object_type import ObjectType
from hydra.plugins.config_source import ConfigResult
from omegaconf.errors import OmegaConfBaseException

from simulator.errors import InvalidInput

MOST_VALUES, MOST_LEVELS = 100_000, 100
"""Values that a file's aliases stand for, each for all that its anchor holds; levels of nesting."""


def yaml_text(path: Path) -> str:
    """The text of a YAML file that may be parsed.

    Raises:
        InvalidInput: it cannot be read, is not UTF-8 or not YAML, or its aliases multiply beyond
            :data:`MOST_VALUES`.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InvalidInput(f"Cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InvalidInput(
            f"Cannot read {path}: it is not text in UTF-8; was it damaged?"
        ) from None
    with reading(path):
        _check(path, text)
    return text


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Say of what parsing a file raises that the file cannot be read.

    Raises:
        InvalidInput: it is not YAML, or no config.
    """
    try:
        yield
    except (yaml.YAMLError, OmegaConfBaseException) as error:
        raise InvalidInput(f"Cannot read {path}: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise InvalidInput(f"Cannot read {path}: its values are nested too deeply") from None


def _check(path: Path, text: str) -> None:
    """Refuse nesting and aliases event by event, before anything is built of them."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    sizes: dict[str, float] = {}  # of what anchors hold, with their aliases written out
    open_: list[tuple[str | None, float]] = [(None, 0.0)]
    aliased = 0.0
    for event in yaml.parse(text, Loader=loader):
        anchor, size = getattr(event, "anchor", None), 0.0
        if isinstance(event, yaml.CollectionStartEvent):
            open_.append((anchor, 1.0))
            if anchor is not None:
                sizes[anchor] = math.inf  # if it holds itself
            if len(open_) > MOST_LEVELS:
                raise InvalidInput(f"Cannot read {path}: its values are nested too deeply")
            continue
        if isinstance(event, yaml.CollectionEndEvent):
            anchor, size = open_.pop()
        elif isinstance(event, yaml.ScalarEvent):
            size = 1.0
        elif isinstance(event, yaml.AliasEvent):
            size = sizes.get(event.anchor, 0.0)
            aliased += size
            anchor = None
        if anchor is not None:
            sizes[anchor] = size
        open_[-1] = (open_[-1][0], open_[-1][1] + size)
        if aliased > MOST_VALUES:
            raise InvalidInput(
                f"Cannot read {path}: its aliases (*name) stand for more than {MOST_VALUES:,} values; write "
                "out what is meant"
            )


_read: dict[tuple[Path, str, int, int], ConfigResult | None] = {}
"""Parsed configs by path and state of the file: jobs and cells share most of them."""


@contextlib.contextmanager
def checked_by_hydra() -> Iterator[None]:
    """Have Hydra itself read no file that :func:`yaml_text` refuses."""
    before = ConfigRepository.load_config

    def load_config(repository: ConfigRepository, config_path: str) -> ConfigResult | None:
        source = repository._find_object_source(config_path, ObjectType.CONFIG)
        if source is None or source.scheme() != "file":
            return before(repository, config_path)
        path = Path(source.path, source._normalize_file_name(config_path))
        state = path.stat()
        key = (path, source.provider, state.st_mtime_ns, state.st_size)
        if key not in _read:
            yaml_text(path)
            with reading(path):
                _read[key] = before(repository, config_path)
        return copy.deepcopy(_read[key])

    ConfigRepository.load_config = load_config  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        ConfigRepository.load_config = before  # type: ignore[method-assign]
