"""YAML from files that people wrote: text in UTF-8, and no larger when read than its author can have meant."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import yaml  # type: ignore[import-untyped]
from hydra._internal.config_repository import ConfigRepository
from hydra.core.object_type import ObjectType
from hydra.plugins.config_source import ConfigResult
from omegaconf.errors import OmegaConfBaseException

from simulator.errors import InvalidInput

MOST_VALUES = 100_000
"""Values of a file whose aliases are written out; each alias may stand for all that its anchor holds."""


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
        # Composed, an alias is its anchor's node once more; nothing is written out yet.
        node = yaml.compose(text, Loader=yaml.SafeLoader) if "*" in text and "&" in text else None
        values = _values(node, {})
    if values > MOST_VALUES:
        raise InvalidInput(
            f"Cannot read {path}: its aliases (*name) stand for more than {MOST_VALUES:,} values; write out "
            "what is meant"
        )
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


def _values(node: yaml.Node | None, counted: dict[int, float]) -> float:
    """How many values a node holds when its aliases are written out; infinitely many if it holds itself."""
    if node is None:
        return 0
    if id(node) not in counted:
        counted[id(node)] = float("inf")
        inner = node.value if isinstance(node.value, list) else []
        parts = [
            part for entry in inner for part in (entry if isinstance(entry, tuple) else (entry,))
        ]
        counted[id(node)] = 1 + sum(_values(part, counted) for part in parts)
    return counted[id(node)]


@contextlib.contextmanager
def checked_by_hydra() -> Iterator[None]:
    """Have Hydra itself read no file that :func:`yaml_text` refuses."""
    before = ConfigRepository.load_config

    def load_config(repository: ConfigRepository, config_path: str) -> ConfigResult | None:
        source = repository._find_object_source(config_path, ObjectType.CONFIG)
        if source is None or source.scheme() != "file":
            return before(repository, config_path)
        path = Path(source.path, source._normalize_file_name(config_path))
        yaml_text(path)
        with reading(path):
            return before(repository, config_path)

    ConfigRepository.load_config = load_config  # type: ignore[method-assign]
    try:
        yield
    finally:
        ConfigRepository.load_config = before  # type: ignore[method-assign]
