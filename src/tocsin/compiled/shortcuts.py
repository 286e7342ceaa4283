"""Shortcuts through Numba's compiler: the same results from fewer Python calls.

Most of the time Numba takes to compile a kernel is spent in Python, a good part of it here (Numba 0.68):

    comparing options    each lookup of a called function compares all 30 options by 30 properties: a tenth
    listing variables    of every statement, again and again; most of its fields cannot have any
    collecting garbage   over the large and lasting graphs of the compiler: another tenth

`install` replaces the first two by functions with the same results. A Numba that has no such function is left
as it is.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from types import NoneType
from typing import Any

from numba.core import ir
from numba.core.compiler import Flags
from numba.core.targetconfig import TargetConfig

__all__ = ["install", "without_collecting"]

_WITHOUT_VARIABLES = frozenset({NoneType, bool, int, str, ir.Loc})


def install() -> None:
    """Replace the slow functions, once."""
    flags: Any = Flags
    instruction: Any = ir.Inst
    if {"values", "__hash__", "options"} <= {*vars(TargetConfig)}:
        defaults = {name: option.default for name, option in flags.options.items()}
        constant = hash(flags())  # Numba hashes the names of options, which are always the same
        flags.values = lambda self: defaults | self._values
        flags.__hash__ = lambda self: constant
    listed = getattr(instruction, "_rec_list_vars", None)
    if listed is not None and not hasattr(listed, "whole"):

        def list_variables(self: Any, value: Any) -> Any:
            if isinstance(value, ir.Var):
                return [value]
            return [] if type(value) in _WITHOUT_VARIABLES else listed(self, value)

        list_variables.whole = listed  # type: ignore[attr-defined]
        instruction._rec_list_vars = list_variables


@contextmanager
def without_collecting() -> Iterator[None]:
    """No garbage collection inside."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
