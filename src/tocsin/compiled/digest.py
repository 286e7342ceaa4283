"""What the compiled code of a kernel depends on, as a digest.

Numba notices when the file of a function changes. It does not notice when a function *called* from another
file does, or a constant imported from there: stored code would then give wrong answers. So the digest of a
kernel covers its code, its options, all kernels it calls and all values it reads, through all files, and how
we compile. It does not cover comments and line numbers: moving a kernel does not compile it again.

>>> from tocsin.compiled import kernel
>>> STEP = 1
>>> @kernel
... def next(x):
...     return x + STEP
>>> before = digest(next)
>>> STEP = 2
>>> _ = next.py_func.__globals__.update(STEP=2), _digests.clear()
>>> digest(next) == before
False
"""

from __future__ import annotations

import builtins
import enum
import inspect
from collections.abc import Iterator
from functools import cache
from hashlib import blake2b
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from tocsin.compiled.kernel import Instruction, Kernel

__all__ = ["digest"]

_COMPILER = ("arguments.py", "backend.py", "linked.py", "lowering.py", "shortcuts.py")
_digests: dict[int, str] = {}  # by id of the kernel; kernels live as long as the process


def digest(kernel: Kernel) -> str:
    """A digest of everything that decides what a kernel compiles to, except types, versions and the CPU."""
    found = _digests.get(id(kernel))
    if found is None:
        _digests[id(kernel)] = ""  # a kernel that calls itself
        parts = blake2b(digest_size=12)
        for part in _parts(kernel):
            parts.update(part.encode())
            parts.update(b"\0")
        found = _digests[id(kernel)] = parts.hexdigest()
    return found


def _parts(kernel: Kernel) -> Iterator[str]:
    function = kernel.py_func
    yield f"{function.__module__}.{function.__qualname__} {kernel.inline} {kernel.allocates} {_compiler()}"
    yield from _function(function)


def _function(function: Any) -> Iterator[str]:
    yield _value(function.__defaults__, "default")
    yield _value(function.__kwdefaults__, "default")
    known = inspect.getclosurevars(function).nonlocals if function.__closure__ else {}
    for name, value in known.items():
        yield f"{name}={_value(value, name)}"
    yield from _code(function.__code__, function.__globals__, function.__doc__)


def _code(code: CodeType, namespace: dict[str, Any], documentation: str | None = None) -> Iterator[str]:
    yield code.co_code.hex()
    yield repr((code.co_names, code.co_varnames, code.co_argcount, code.co_freevars, code.co_cellvars))
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _code(constant, namespace)
        elif constant is None or constant is not documentation:
            yield repr(constant)
    for name in sorted(set(code.co_names)):
        if name in namespace:
            yield f"{name}={_value(namespace[name], name)}"
        elif hasattr(builtins, name):
            yield name


def _value(value: Any, name: str) -> str:
    """A text that differs whenever compiled code that reads the value would."""
    if isinstance(value, Kernel):
        return digest(value)
    if isinstance(value, Instruction):
        return value.plain.__name__ + _intrinsics()
    if isinstance(value, enum.Enum | np.generic | np.dtype | int | float | str | bytes | None | slice):
        return f"{type(value).__name__} {value!r}"
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {value.shape} {value.tobytes().hex()}"
    if isinstance(value, tuple | list | frozenset):
        return f"{type(value).__name__}({', '.join(_value(part, name) for part in value)})"
    if isinstance(value, ModuleType) and _is_ours(value.__name__):
        raise TypeError(f"a kernel reads {name} through the module {value.__name__}: import the name itself")
    if isinstance(value, FunctionType) and _is_ours(value.__module__):
        return "".join(_function(value))
    if isinstance(value, type) and issubclass(value, enum.Enum):
        return f"{value.__name__} {[(m.name, m.value) for m in value]}"
    if isinstance(value, type):
        return f"{value.__module__}.{value.__name__} {getattr(value, '_fields', None)}"
    if isinstance(value, ModuleType) or callable(value):
        return getattr(value, "__name__", type(value).__name__)  # of a library, whose version is in the key
    raise TypeError(f"a kernel reads {name}, a {type(value).__name__}, which has no digest")


@cache
def _compiler() -> str:
    """A digest of how kernels are compiled."""
    parts = (Path(__file__).with_name(name).read_bytes() for name in _COMPILER)
    return blake2b(b"".join(parts), digest_size=12).hexdigest()


@cache
def _intrinsics() -> str:
    """The source of all machine instructions, read once."""
    return Path(__file__).with_name("intrinsics.py").read_text()


def _is_ours(module: str) -> bool:
    return module.split(".")[0] == "tocsin"
