"""The decorator of kernels, and when a kernel is compiled.

    @kernel                     called from Python and from other kernels
    @kernel(allocates=False)    counts no references to its arrays: for kernels that allocate none
    @kernel(inline=True)        copied into its callers: by LLVM if it allocates nothing, which is cheaper
                                to compile; otherwise before types are inferred

Interpreting costs about 1000 times the compiled time, but nothing before the first call; compiling costs a
tenth of a second to several seconds, once per machine; loading compiled code costs some milliseconds. So a
kernel is interpreted until it has spent as much time as it would take to have it compiled, or to load it.

>>> @kernel
... def total(numbers):
...     out = 0
...     for number in numbers:
...         out += number
...     return out
>>> total(np.array([1, 2, 3]))
6
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import update_wrapper
from threading import local
from time import perf_counter
from typing import Any

import numpy as np

from tocsin.errors import TocsinError

__all__ = ["Instruction", "Kernel", "compilations", "is_compiling", "kernel", "on_compiling"]

COMPILE_SECONDS = 1.0  # interpreting a kernel this long costs what compiling it does
LOAD_SECONDS = 0.02  # interpreting a kernel this long costs what loading its compiled code does
ALL_SECONDS = 4.0  # after interpreting this long in all, the process compiles everything
ELEMENT_SECONDS = 4e-6  # a guess: interpreting a kernel over arrays takes this long per element


on_compiling: list[Callable[[str], None]] = []
"""Called with a text, once, if compiling takes longer than a second. Without any, it is printed or logged."""


class _Thread(local):
    """What a thread is doing: inside an interpreted kernel, those it calls are interpreted too."""

    interpreting = False


_thread = _Thread()
_spent = [0.0]  # seconds of this process in interpreted kernels


class Kernel:
    """A function over arrays. Calls are interpreted or compiled; results are the same."""

    def __init__(self, function: Callable[..., Any], *, inline: bool = False, allocates: bool = True) -> None:
        update_wrapper(self, function)
        self.py_func = function
        self.inline, self.allocates = inline, allocates
        self.targetoptions: dict[str, Any] = {}  # read by Numba
        if inline and allocates:
            self.targetoptions["inline"] = "always"
        self._compiled: Callable[..., Any] | None = None
        self._limit = COMPILE_SECONDS
        self._is_stored: bool | None = None  # whether compiled code is on disk; not looked up yet
        self._inner: Any = None

    def __call__(self, *args: Any) -> Any:
        run = self._compiled
        return run(*args) if run is not None else self._first_calls(args)

    def compiled(self) -> Callable[..., Any]:
        """The compiled function, to be called from Python."""
        if self._compiled is None:
            from tocsin.compiled.backend import dispatcher

            self._compiled = self.py_func if _mode() == "never" else dispatcher(self)
        return self._compiled

    def entry_point(self, args: tuple[Any, ...]) -> Callable[..., Any] | None:
        """What a call with these arguments runs, to be called with others of exactly the same types.

        Finding the types of many arrays takes longer than a short kernel. None while it is interpreted.
        """
        overloads = getattr(self._compiled, "overloads", None)
        if not overloads:
            return None
        from numba import typeof

        found = overloads.get(tuple(typeof(arg) for arg in args))
        return None if found is None else found.entry_point

    @property
    def inner(self) -> Any:
        """The dispatcher for calls from other kernels: it has no Python wrapper, which halves its cost."""
        if self._inner is None:
            from tocsin.compiled.backend import dispatcher

            self._inner = dispatcher(self, inner=True)
        return self._inner

    def pays(self, seconds: float) -> bool:
        """Whether to call it compiled, by now, instead of doing the same in another way that takes so long.

        For kernels that would take much longer interpreted than the other way.
        """
        if self._compiled is not None or _mode() != "auto":
            return True
        self._look_up_stored()
        self._spend(seconds)
        if self._limit > 0 and _spent[0] < ALL_SECONDS:
            return False
        self.compiled()
        return True

    def _first_calls(self, args: tuple[Any, ...]) -> Any:
        if _thread.interpreting:
            return self.py_func(*args)
        if not self._interprets(args):
            return self.compiled()(*args)
        begun = perf_counter()
        _thread.interpreting = True
        try:
            numbers = [np.int64(arg) if type(arg) is int else arg for arg in args]  # as Numba types them
            with np.errstate(all="ignore"):  # hashes overflow; compiled code says nothing either
                return _as_compiled(self.py_func(*numbers))
        finally:
            _thread.interpreting = False
            self._spend(perf_counter() - begun)

    def _interprets(self, args: tuple[Any, ...]) -> bool:
        mode = _mode()
        if mode != "auto" or _spent[0] > ALL_SECONDS:
            return mode == "never"
        expected = ELEMENT_SECONDS * _elements(args)
        if 0 < self._limit < expected + COMPILE_SECONDS - LOAD_SECONDS:  # it matters only then
            self._look_up_stored()
        return expected < self._limit

    def _look_up_stored(self) -> None:
        """Once: if compiled code is on disk, only loading it has to pay."""
        if self._is_stored is None:
            from tocsin.compiled.cache import is_stored

            self._is_stored = is_stored(self)
            self._limit -= COMPILE_SECONDS - LOAD_SECONDS if self._is_stored else 0.0

    def _spend(self, seconds: float) -> None:
        self._limit -= seconds
        _spent[0] += seconds

    def __reduce__(self) -> str:
        return self.py_func.__qualname__  # pickled by name, like a function

    def __repr__(self) -> str:
        return f"<kernel {self.py_func.__module__}.{self.py_func.__qualname__}>"


class Instruction:
    """A machine instruction inside kernels; `plain` is its meaning, `intrinsics.py` has one of its name."""

    def __init__(self, plain: Callable[..., Any]) -> None:
        update_wrapper(self, plain)
        self.plain = plain

    def __call__(self, *args: Any) -> Any:
        return self.plain(*args)


def kernel(function: Any = None, *, inline: bool = False, allocates: bool = True) -> Any:
    """Make a kernel of a function; see the module."""
    if function is None:
        return lambda function: Kernel(function, inline=inline, allocates=allocates)
    return Kernel(function, inline=inline, allocates=allocates)


def compilations() -> list[str]:
    """The kernels that this process has compiled so far, not counting those loaded from the cache."""
    backend = sys.modules.get("tocsin.compiled.backend")
    return [] if backend is None else list(backend.compiled_here)


def is_compiling() -> bool:
    """Whether this process has compiled code already; before that, measured times mean little."""
    return "tocsin.compiled.backend" in sys.modules


def _mode() -> str:
    if os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("0", ""):
        return "never"
    mode = os.environ.get("TOCSIN_JIT") or "auto"
    if mode not in ("auto", "always", "never"):
        raise TocsinError(f"TOCSIN_JIT is {mode!r}", hint="set it to auto, always or never, or leave it out")
    return mode


def _as_compiled(result: Any) -> Any:
    """A result as compiled code returns it: Python's numbers, not NumPy's."""
    if isinstance(result, np.generic):
        return result.item()
    if type(result) is tuple:
        return tuple(part.item() if isinstance(part, np.generic) else part for part in result)
    return result


def _elements(args: Any) -> int:
    """How many elements the arrays among the arguments have."""
    total = 0
    for arg in args:
        if isinstance(arg, np.ndarray):
            total += arg.size
        elif isinstance(arg, tuple | list):
            total += _elements(arg)
    return total
