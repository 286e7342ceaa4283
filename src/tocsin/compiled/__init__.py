"""Kernels: Python functions over arrays that run interpreted at first and compiled when that pays.

    kernel.py     the decorator; decides per call: interpret, or compile
    digest.py     what compiled code depends on: the kernel, all it calls, all constants it reads
    cache.py      where compiled code is stored, and how processes wait for each other
    backend.py    Numba: imported when the first kernel is compiled
    shortcuts.py  slow spots of Numba's compiler
    lowering.py   shorter code for LLVM
    arguments.py  arguments passed by address, arrays from Python unpacked by one function
    linked.py     kernels that kernels call: optimised once, with their callers

A kernel that has never been compiled on this machine is interpreted until that has taken about as long as
compiling would; so a small script starts at once, and a large one is fast.

    TOCSIN_JIT=auto     interpret what is small, compile what is not (the default)
    TOCSIN_JIT=always   compile everything at its first call
    TOCSIN_JIT=never    interpret everything (to debug a kernel)
    TOCSIN_CACHE=DIR    where compiled code is stored (cache.py says where otherwise)
"""

from tocsin.compiled.kernel import Instruction, Kernel, compilations, is_compiling, kernel, on_compiling

__all__ = ["Instruction", "Kernel", "compilations", "is_compiling", "kernel", "on_compiling"]
