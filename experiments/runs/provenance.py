"""Where a result comes from: code, versions, revision, configuration."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import platform
import subprocess
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
_PACKAGES = ("hetsim", "simpy", "numpy", "scipy", "torch", "transformers", "xgboost-cpu", "xgboost")
# What decides a cell's numbers. Tables and plots are made anew from them at any time.
_CODE = ("simulator", "cost_models", "scenarios")
_CELL_CODE = tuple(
    f"experiments/runs/{name}.py"
    for name in ("world", "cell", "configs", "noise", "pricing", "kept", "discrepancy", "structure")
)


def digest(document: Any) -> str:
    """sha256 of a JSON-ready document, whatever the order of its keys."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def digest_files(files: Iterable[Path]) -> str:
    """sha256 of files: their contents in the given order."""
    total = hashlib.sha256()
    for path in files:
        total.update(hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()


@cache
def code_digest() -> str:
    """sha256 of the sources that decide a simulation's numbers."""
    files = [path for folder in _CODE for path in sorted((ROOT / folder).rglob("*.py"))]
    return digest_files([*files, *(ROOT / name for name in _CELL_CODE)])


def config_digest(document: Mapping[str, Any]) -> str:
    """sha256 of a scenario's document, without its texts for people."""
    return digest(_essential(document))


def _essential(value: Any) -> Any:
    if isinstance(value, Mapping):
        skip = ("description", "source")
        return {key: _essential(entry) for key, entry in value.items() if key not in skip}
    if isinstance(value, list | tuple):
        return [_essential(entry) for entry in value]
    return value


@cache
def versions() -> dict[str, str]:
    """Versions of Python and of the packages that matter, those installed."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


@cache
def revision() -> str | None:
    """The commit that runs, ``+`` behind it when files differ from it; None outside a checkout."""
    try:
        commit = _git("rev-parse", "HEAD")
        changed = _git("status", "--porcelain", "--untracked-files=no", "--", *_CODE, "experiments")
    except (OSError, subprocess.SubprocessError):
        return None
    return commit + ("+" if changed else "")


def _git(*arguments: str) -> str:
    run = subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True, timeout=20
    )
    return run.stdout.strip()
