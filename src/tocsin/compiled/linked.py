"""Code that is linked into its callers: whatever kernels call is optimised there, and only there.

Numba optimises a function together with all that it calls, and makes machine code of the whole, for each
function of a call tree: the leaves once per level above them. That holds for kernels and for functions of
Numba's own, such as `np.empty`.

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
from numba.core import compiler, typed_passes, untyped_passes
from numba.core.codegen import JITCodeLibrary

__all__ = ["KernelCompiler", "LinkedCompiler", "LinkedLibrary", "rebuild", "set_environments"]

_KIND = "linked"

_UNUSED = frozenset({untyped_passes.InlineClosureLikes, typed_passes.NopythonRewrites})
"""Passes for closures and array expressions, which kernels do not have."""


class KernelLibrary(JITCodeLibrary):
    """LLVM code of a kernel and all that it calls, and their machine code."""

    def _optimize_functions(self, ll_module: Any) -> None:
        """Not before the whole is linked."""
        ll_module.data_layout = self._codegen._data_layout

    def _optimize_final_module(self) -> None:
        """As Numba does, but loops are not unrolled: their copies took a third of LLVM's time."""
        codegen = self._codegen
        passes, builder = codegen._module_pass_manager(
            loop_vectorize=False, slp_vectorize=False, opt=0, cost="cheap"
        )
        passes.run(self._final_module, builder)  # so that references counted in vain are seen
        tuning = binding.create_pipeline_tuning_options(speed_level=3)
        tuning.loop_vectorization, tuning.slp_vectorization, tuning.loop_unrolling = True, False, False
        builder = binding.create_pass_builder(codegen._tm, tuning)
        passes = builder.getModulePassManager()
        passes.add_refprune_pass()
        passes.run(self._final_module, builder)


class LinkedLibrary(JITCodeLibrary):
    """LLVM code of a function and all that it calls; it has no machine code and no address."""

    def _optimize_functions(self, ll_module: Any) -> None:
        """Only make it small: it is linked several times, and then optimised."""
        ll_module.data_layout = self._codegen._data_layout
        passes = binding.create_new_module_pass_manager()
        passes.add_simplify_cfg_pass()
        passes.add_sroa_pass()
        passes.add_instruction_combine_pass()
        passes.run(ll_module, self._codegen._pass_builder())

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
        return _Unlocated

    @classmethod
    def _unserialize(cls, codegen: Any, state: Any) -> Any:
        """Stored machine code has an address; `rebuild` reads what has none."""
        used, codegen._library_class = codegen._library_class, KernelLibrary
        try:
            return KernelLibrary._unserialize(codegen, state)
        finally:
            codegen._library_class = used

    def serialize_using_object_code(self) -> tuple[str, str, bytes]:
        """Bitcode alone."""
        return self.name, _KIND, self._get_module_for_linking().as_bitcode()


class _Unlocated:
    """The code generator of code without an address."""

    @staticmethod
    def set_env(name: str, environment: Any) -> None:
        """There is nothing to set."""


class KernelCompiler(compiler.Compiler):
    """Numba's compiler without the passes that kernels do not need, into a `KernelLibrary`."""

    library_class: type[JITCodeLibrary] = KernelLibrary

    def define_pipelines(self) -> list[Any]:
        pipelines = super().define_pipelines()
        for pipeline in pipelines:
            pipeline.passes = [own for own in pipeline.passes if own[0] not in _UNUSED]
        return pipelines

    def compile_extra(self, func: Any) -> Any:
        self.state.library = self.library_class(self.state.targetctx.codegen(), func.__qualname__)
        self.state.library.enable_object_caching()
        return super().compile_extra(func)


class LinkedCompiler(KernelCompiler):
    """The same, into a `LinkedLibrary`."""

    library_class = LinkedLibrary


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
