"""Shortcuts through Numba's compiler, taken while a kernel is compiled: the same results for less time.

    calls typed before    Numba tries all implementations of `+` for each `+`: here, one try per types
    called functions      of Numba's own, such as `np.empty`, are linked into kernels, never compiled alone
    comparing options     each lookup of a called function compares all 30 options by 30 properties
    listing variables     of every statement, again and again; most of its fields cannot have any
    lifetimes             of variables, after each pass: only the last ones are used
    shorter code          for LLVM: `lowering.py`, `arguments.py`
    collecting garbage    over the large and lasting graphs of the compiler

All hold under the lock of Numba's compiler, so no other code is ever compiled with them. They
depend on internals of Numba, so only the version they were tested with takes them.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from types import NoneType
from typing import Any

import numba
from numba.core import base, ir, transforms, types
from numba.core.compiler import Flags
from numba.core.postproc import PostProcessor, VariableLifetime
from numba.core.registry import cpu_target
from numba.core.targetconfig import ConfigStack

from tocsin.compiled import arguments, lowering
from tocsin.compiled.linked import LinkedLibrary

__all__ = ["shortcuts"]

_TESTED = ["0", "68"]
_WITHOUT_VARIABLES = frozenset({NoneType, bool, int, str, float, ir.Loc})
_typed: dict[Any, Any] = {}  # signatures of calls, by function, types of arguments and counting of references
_called: dict[Any, Any] = {}  # the same for the types of Numba's functions, each with its type
_has_location = cache(vars(base)["_has_loc"])  # reads the signature of a function, for each call of it
_shorter = (*lowering.replacements(), *arguments.replacements())
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
        _replace(restored, ir.Inst, "_rec_list_vars", _list_variables)
        _replace(restored, base, "_has_loc", _has_location)
        _replace(restored, PostProcessor, "run", _lifetimes(PostProcessor.run))
        _replace(restored, context, "resolve_function_type", _remembered(context.resolve_function_type))
        _replace(restored, types.Function, "get_call_type", _called_once(types.Function.get_call_type))
        _replace(restored, cpu_target.target_context.codegen(), "_library_class", LinkedLibrary)
        for owner, name, value in _shorter:
            _replace(restored, owner, name, value)
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


def _list_variables(_self: Any, value: Any) -> list[Any]:
    """All variables in a field of a statement, or in a list or dict of fields, in order."""
    kind, out = type(value), []
    if kind is ir.Var:
        return [value]
    if kind is dict or kind is list or kind is tuple:
        for part in value.values() if kind is dict else value:
            if type(part) is ir.Var:
                out.append(part)
            elif type(part) not in _WITHOUT_VARIABLES:
                out += _list_variables(_self, part)
    elif isinstance(value, ir.Inst):
        return value.list_vars()
    return out


def _lifetimes(run: Callable[..., None]) -> Callable[..., None]:
    def run_once(self: Any, emit_dels: bool = False, extend_lifetimes: bool = False) -> None:
        code = self.func_ir
        if code.is_generator:
            run(self, emit_dels, extend_lifetimes)
            return
        code.blocks = transforms.canonicalize_cfg(code.blocks)
        code.variable_lifetime = VariableLifetime(code.blocks)  # computed where it is read
        code.generator_info = None
        if emit_dels:
            self._insert_var_dels(extend_lifetimes=extend_lifetimes)

    return run_once


def _called_once(get_call_type: Callable[..., Any]) -> Callable[..., Any]:
    """Types of calls by the function's own type, which lowering looks up again for each operator."""

    def resolve(self: Any, context: Any, args: Any, kws: Any) -> Any:
        flags = ConfigStack.top_or_none()
        counts = flags is not None and flags.nrt
        key = id(self), tuple(args), tuple(kws.items()), counts
        found = _called.get(key)
        if found is not None:
            return found[1]
        with ConfigStack().enter(_plain[counts]):
            signature = get_call_type(self, context, args, kws)
        if signature is not None and all(kind.is_precise() for kind in (*args, *kws.values())):
            _called[key] = self, signature
        return signature

    return resolve


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
