"""Shortcuts through Numba's compiler, taken while a kernel is compiled: the same results for less time.

    calls typed before    Numba tries all implementations of `+` for each `+`: here, one try per types
    called functions      of Numba's own, such as `np.empty`, are linked into kernels, never compiled alone
    comparing options     each lookup of a called function compares all 30 options by 30 properties
    listing variables     of every statement, again and again; most of its fields cannot have any
    collecting garbage    over the large and lasting graphs of the compiler

All hold under the lock of Numba's compiler, so no other code is ever compiled with them. They
depend on internals of Numba, so only the version they were tested with takes them.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import NoneType
from typing import Any

import numba
from numba.core import ir, types
from numba.core.compiler import Flags
from numba.core.registry import cpu_target
from numba.core.targetconfig import ConfigStack

from tocsin.compiled.linked import LinkedLibrary

__all__ = ["shortcuts"]

_TESTED = ["0", "68"]
_WITHOUT_VARIABLES = frozenset({NoneType, bool, int, str, ir.Loc})
_typed: dict[Any, Any] = {}  # signatures of calls, by function, types of arguments and counting of references
_active = [False]
_plain: Any = (Flags(), Flags())  # options of Numba's functions; Numba compiles them per options of callers
_plain[True].nrt = True


@contextmanager
def shortcuts() -> Iterator[None]:
    """Inside, Numba's compiler takes them. Requires its lock."""
    if _active[0] or numba.__version__.split(".")[:2] != _TESTED:
        yield
        return
    context = cpu_target.typing_context
    flags: Any = Flags
    defaults = {name: option.default for name, option in flags.options.items()}
    constant = hash(flags())  # Numba hashes the names of options, which are always the same
    with ExitStack() as restored:
        was_collecting = gc.isenabled()
        gc.disable()
        if was_collecting:
            restored.callback(gc.enable)
        _replace(restored, flags, "values", lambda self: defaults | self._values)
        _replace(restored, flags, "__hash__", lambda self: constant)
        _replace(restored, ir.Inst, "_rec_list_vars", _list_variables(ir.Inst._rec_list_vars))
        _replace(restored, context, "resolve_function_type", _remembered(context.resolve_function_type))
        _replace(restored, cpu_target.target_context.codegen(), "_library_class", LinkedLibrary)
        _active[0] = True
        restored.callback(_active.__setitem__, 0, False)
        yield


def _replace(restored: ExitStack, owner: Any, name: str, value: Any) -> None:
    """Set an attribute of a class or an object until the stack ends."""
    if name in vars(owner):
        restored.callback(setattr, owner, name, vars(owner)[name])
    else:
        restored.callback(delattr, owner, name)
    setattr(owner, name, value)


def _list_variables(listed: Any) -> Any:
    def list_variables(self: Any, value: Any) -> Any:
        if isinstance(value, ir.Var):
            return [value]
        return [] if type(value) in _WITHOUT_VARIABLES else listed(self, value)

    return list_variables


def _remembered(resolve: Callable[..., Any]) -> Callable[..., Any]:
    """Types of calls of operators and of Numba's functions; kernels remember their own."""

    def resolve_function_type(function: Any, args: Any, kws: Any) -> Any:
        if isinstance(function, str) or not (type(function) is types.Function or callable(function)):
            return resolve(function, args, kws)
        named = dict(kws)
        flags = ConfigStack.top_or_none()
        counts = flags is not None and flags.nrt
        key = function, tuple(args), tuple(named.items()), counts
        found = _typed.get(key)
        if found is None:
            with ConfigStack().enter(_plain[counts]):
                found = resolve(function, args, kws)
            if found is not None and all(kind.is_precise() for kind in (*args, *named.values())):
                _typed[key] = found
        return found

    return resolve_function_type
