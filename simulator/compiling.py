"""How functions of the hot paths are compiled."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from numba import njit, types
from numba.extending import intrinsic


def compiled(signature: str | None = None) -> Any:
    """Compile for these types now, without a signature at the first call; or read what an earlier
    process compiled.

    That is kept until the function's own file changes, so numbers of another file must not get into it.
    Where no folder can be written nothing is kept, and each process compiles anew. What a closure holds is
    part of its name, so it must be plain values.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        _name_by_contents(function)
        signatures = () if signature is None else (signature,)
        try:
            return _kept_in_turn(njit(cache=True, error_model="numpy")(function), signatures)
        except RuntimeError as error:
            if "cannot cache" not in str(error):
                raise
            return njit(*signatures, error_model="numpy")(function)

    return decorate


def _name_by_contents(function: Callable[..., Any]) -> None:
    """Tell the closures of one function apart by name.

    Numba's symbols have the function's name and a number that each process counts by itself. Of two closures
    that two processes kept under the same number, whoever links both would get one of them twice.
    """
    held = [str(cell.cell_contents) for cell in function.__closure__ or ()]
    if held:
        function.__qualname__ = ".".join([function.__qualname__, *held])


def _kept_in_turn(function: Any, signatures: tuple[str, ...]) -> Any:
    """Have what is compiled written by one process at a time.

    Numba numbers the files of a function's variants, by the types of its arguments, by an index that it reads
    and writes again: of two processes at once both may take one number for different variants, and whoever reads
    that one later gets the other's code.
    """
    cache = function._cache
    save = cache.save_overload

    def save_in_turn(signature: Any, data: Any) -> None:
        with _one_at_a_time(Path(cache.cache_path)):
            save(signature, data)

    cache.save_overload = save_in_turn
    for signature in signatures:
        function.compile(signature)
    if signatures:
        function.disable_compile()
    return function


@contextlib.contextmanager
def _one_at_a_time(folder: Path) -> Iterator[None]:
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
    try:
        lock = (folder / "compiling.lock").open("w")
    except OSError:  # nothing can be kept there either
        yield
        return
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # until it is closed
        yield


def entry(function: Any) -> Callable[..., Any]:
    """A function that was compiled for one signature, to be called without numba's choice among
    several: half the time of a call.
    """
    (signature,) = function.signatures
    call: Callable[..., Any] = function.get_overload(signature)
    return call


def _at_address(kind: Any) -> Any:
    """What makes a pointer to numbers of this kind of an address."""

    @intrinsic
    def pointer(typing: Any, address: Any) -> Any:
        kind_of_pointer = types.CPointer(kind)

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.inttoptr(arguments[0], context.get_value_type(kind_of_pointer))

        return kind_of_pointer(types.int64), generate

    return pointer


as_integers = _at_address(types.int64)
"""A pointer to int64 numbers that begin at an address, in compiled functions."""
as_reals = _at_address(types.float64)
"""The same of float64."""
