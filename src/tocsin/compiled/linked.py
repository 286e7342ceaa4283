"""Code that is linked into its callers: kernels that only kernels call are optimised there, and only there.

Numba optimises a function together with all that it calls, and makes machine code of the whole, for each
function of a call tree: the leaves once per level above them.

    f ─► g ─► h      Numba: h; g and h; f, g and h       here: typed and lowered each, optimised once, with f

>>> from tocsin.compiled import kernel
>>> @kernel
... def half(x):
...     return x // 2
>>> @kernel
... def quarter(x):
...     return half(half(x))
>>> quarter.compiled()(9)
2
"""

from __future__ import annotations

from typing import Any

from llvmlite import binding
from numba.core import compiler
from numba.core.codegen import JITCodeLibrary

__all__ = ["LinkedCompiler", "LinkedLibrary", "rebuild", "set_environments"]

_KIND = "linked"


class LinkedLibrary(JITCodeLibrary):
    """LLVM code of a function and all that it calls; it has no machine code and no address."""

    def finalize(self) -> None:
        """Link what it calls."""
        self._raise_if_finalized()
        for library in dict.fromkeys(self._linking_libraries):
            self._reload_init.update(library._reload_init)
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        self._finalize_dynamic_globals()
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        """None: callers contain it."""
        self._ensure_finalized()
        return 0

    @property
    def codegen(self) -> Any:
        """Its environment is set where it is linked, by `set_environments`."""
        return _Unplaced

    def serialize_using_object_code(self) -> tuple[str, str, bytes]:
        """Bitcode alone."""
        return self.name, _KIND, self._get_module_for_linking().as_bitcode()


class _Unplaced:
    """The code generator of code without an address."""

    @staticmethod
    def set_env(name: str, environment: Any) -> None:
        """There is nothing to set."""


class LinkedCompiler(compiler.Compiler):
    """Numba's compiler, into a `LinkedLibrary`."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._codegen = self.state.targetctx.codegen()

    def compile_extra(self, func: Any) -> Any:
        self.state.library = LinkedLibrary(self._codegen, func.__qualname__)
        return super().compile_extra(func)


def rebuild(target_context: Any, reduced: tuple[Any, ...]) -> Any:
    """A stored compile result, of linked or of other code."""
    libdata, fndesc, env, signature, objectmode, lifted, typeann, reload_init, environments = reduced
    if libdata[1] != _KIND:
        return compiler.CompileResult._rebuild(target_context, *reduced)
    for load in reload_init:
        load()
    library = LinkedLibrary(target_context.codegen(), libdata[0])
    library._final_module = library._shared_module = binding.parse_bitcode(libdata[2])
    library._finalize_dynamic_globals()
    library._finalized = True
    result: Any = compiler.CompileResult  # has more fields than its stubs
    return result(
        target_context=target_context,
        typing_context=target_context.typing_context,
        library=library,
        environment=env,
        entry_point=target_context.get_executable(library, fndesc, env),
        fndesc=fndesc,
        type_annotation=typeann,
        signature=signature,
        objectmode=objectmode,
        lifted=lifted,
        typing_error=None,
        call_helper=None,
        metadata=None,
        reload_init=reload_init,
        referenced_envs=environments,
    )


def set_environments(result: Any) -> None:
    """Set the environments of all functions that were linked into compiled code."""
    codegen = result.target_context.codegen()
    for environment in result._find_referenced_environments():
        if codegen._engine.get_global_value_address(environment.env_name):
            codegen.set_env(environment.env_name, environment)
