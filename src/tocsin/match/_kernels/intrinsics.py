"""Machine instructions that Numba does not name: prefetch, and the number of trailing zeros."""

from __future__ import annotations

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

__all__ = ["prefetch", "trailing_zeros"]


@intrinsic
def trailing_zeros(context, x):
    """Of a uint64 that is not 0."""

    def generate(context, builder, signature, args):
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), generate


@intrinsic
def _prefetch_at(context, array, offset):
    """Ask for the cache line of the flat element `offset`; the array must be in C order."""

    def generate(context, builder, signature, args):
        view = context.make_array(signature.args[0])(context, builder, args[0])
        address = builder.bitcast(builder.gep(view.data, [args[1]]), ir.IntType(8).as_pointer())
        word = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [ir.IntType(8).as_pointer(), word, word, word])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        builder.call(function, [address, word(0), word(3), word(1)])  # to read, to keep, data
        return context.get_dummy_value()

    return types.void(array, types.int64), generate


@njit(nogil=True, inline="always")
def prefetch(array, offset):
    """Ask for the cache line of the flat element `offset` of an array in C order."""
    _prefetch_at(array, offset)
