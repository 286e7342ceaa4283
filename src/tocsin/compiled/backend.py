"""Numba behind kernels: dispatchers that store code in our cache and say so when compiling takes long.

Importing this module imports Numba, so nothing imports it before a kernel must be compiled.
"""

from __future__ import annotations

import logging
import pickle
import sys
from hashlib import blake2b
from threading import Timer
from time import perf_counter
from typing import Any

import llvmlite
import numba
import numpy as np
from numba.core import serialize, types
from numba.core.caching import _Cache
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import CPUDispatcher, cpu_target
from numba.extending import typeof_impl

from tocsin.compiled import cache
from tocsin.compiled.intrinsics import intrinsics
from tocsin.compiled.kernel import Instruction, Kernel, on_compiling
from tocsin.compiled.linked import KernelCompiler, LinkedCompiler, rebuild, set_environments
from tocsin.compiled.shortcuts import shortcuts

__all__ = ["compiled_here", "dispatcher"]

_log = logging.getLogger("tocsin.compiled")

compiled_here: list[str] = []
"""The kernels that this process compiled, in order; those read from the cache are not among them."""


class KernelDispatcher(CPUDispatcher):
    """Compiles a kernel per types of its arguments, one process at a time."""

    def __init__(self, kernel: Kernel, inner: bool) -> None:
        options: dict[str, Any] = {"nopython": True, "nogil": True, "no_cfunc_wrapper": True}
        if inner:
            options["no_cpython_wrapper"] = True
        options |= kernel.targetoptions
        if kernel.inline and not kernel.allocates:
            options["forceinline"] = True
        options["_nrt"] = kernel.allocates  # if it were not set, it would be that of the first caller
        pipeline = LinkedCompiler if inner else KernelCompiler
        super().__init__(kernel.py_func, locals={}, targetoptions=options, pipeline_class=pipeline)
        self._cache = KernelCache(kernel, inner)

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """The types of a call from another kernel: a constant is any number, not compiled for by itself."""
        plain = {name: types.unliteral(kind) for name, kind in kws.items()}
        return super().get_call_template(tuple(map(types.unliteral, args)), plain)

    def compile(self, sig: Any) -> Any:
        with global_compiler_lock, shortcuts():
            depth = len(_locks)
            try:
                return super().compile(sig)
            finally:
                while len(_locks) > depth:
                    _locks.pop().release()
                _notice.end(depth)


class KernelCache(_Cache):
    """The code of one kernel by types, in the files of `cache.py`."""

    def __init__(self, kernel: Kernel, inner: bool) -> None:
        self._kernel, self._inner = kernel, inner
        self._name = f"{kernel.py_func.__module__}.{kernel.py_func.__qualname__}"

    @property
    def cache_path(self) -> str:
        return str(cache.roots()[0])

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Code for these types; None if it must be compiled, and then no other process compiles it."""
        target_context.refresh()
        folder, name = _folder(target_context.codegen()), self._file(sig)
        content = cache.read(folder, name)
        if content is None:
            _locks.append(cache.FileLock(folder, name))
            content = cache.read(folder, name)  # another process may have compiled it meanwhile
        if content is None:
            compiled_here.append(self._name)
            _notice.begin()
            return None
        return rebuild(target_context, pickle.loads(content))

    def save_overload(self, sig: Any, data: Any) -> None:
        if not self._inner:
            set_environments(data)
        if data.library.has_dynamic_globals or data.lifted:
            return
        reduced = data._replace(type_annotation="")._reduce()  # a long text that nothing reads
        cache.write(_folder(data.codegen), self._file(sig), serialize.dumps(reduced))

    def _file(self, sig: Any) -> str:
        kinds = f"{'linked' if self._inner else 'called'} {sig!s}".encode()
        return cache.file_name(self._kernel, blake2b(kinds, digest_size=8).hexdigest())

    def enable(self) -> None:
        """Always enabled."""

    def disable(self) -> None:
        """Always enabled."""

    def flush(self) -> None:
        """Files are never stale."""


class _Notice:
    """Says once that kernels are being compiled, if that takes more than a second."""

    def __init__(self) -> None:
        self._seconds = 1.0
        self._begun: float | None = None
        self._timer: Timer | None = None

    def begin(self) -> None:
        if self._begun is None and self._seconds > 0:
            self._begun = perf_counter()
            self._timer = Timer(self._seconds, self._say)
            self._timer.daemon = True
            self._timer.start()

    def end(self, depth: int) -> None:
        if depth == 0 and self._begun is not None:
            assert self._timer is not None
            self._timer.cancel()
            self._seconds -= perf_counter() - self._begun
            self._begun = None
            if self._seconds <= 0:
                self._say()

    def _say(self) -> None:
        if self._seconds == -np.inf:
            return
        self._seconds = -np.inf
        text = f"compiling kernels, once per machine, into {cache.roots()[0]} (tocsin warmup compiles all)"
        for callback in on_compiling:
            callback(text)
        if not on_compiling and sys.stderr is not None and sys.stderr.isatty():
            print(f"tocsin: {text}", file=sys.stderr)
        elif not on_compiling:
            _log.info(text)


_locks: list[cache.FileLock] = []  # of the kernels being compiled, a caller before those it calls
_notice = _Notice()


def dispatcher(kernel: Kernel, *, inner: bool = False) -> KernelDispatcher:
    """A new dispatcher of a kernel; an inner one can be called from kernels alone."""
    return KernelDispatcher(kernel, inner)


@typeof_impl.register(Kernel)
def _typeof_kernel(value: Kernel, _context: Any) -> Any:
    """Kernels call kernels: to Numba a kernel is its inner dispatcher."""
    return types.Dispatcher(value.inner)


@typeof_impl.register(Instruction)
def _typeof_instruction(value: Instruction, _context: Any) -> Any:
    return cpu_target.typing_context.resolve_value_type(intrinsics[value.plain.__name__])


def _folder(codegen: Any) -> str:
    """The folder of this Python, these versions and this CPU."""
    triple, cpu, features = codegen.magic_tuple()
    exact = blake2b(f"{triple} {cpu} {features} {np.__version__}".encode(), digest_size=4).hexdigest()
    python = f"py{sys.version_info[0]}{sys.version_info[1]}"
    return f"{python}-numba{numba.__version__}-llvm{llvmlite.__version__}-{cpu}-{exact}"
