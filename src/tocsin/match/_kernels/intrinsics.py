"""Machine instructions that Numba does not name: prefetch, and counts of zeros and ones.

Uncompiled (NUMBA_DISABLE_JIT), a prefetch does nothing, and zeros are counted in Python.
"""

from __future__ import annotations

from llvmlite import ir
from numba import config, types
from numba.core import cgutils
from numba.extending import intrinsic

__all__ = ["ones", "prefetch", "trailing_zeros"]


@intrinsic
def _trailing_zeros(context, x):
    def generate(context, builder, signature, args):
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.uint64), generate


@intrinsic
def _ones(context, x):
    def generate(context, builder, signature, args):
        return builder.ctpop(args[0])

    return types.int64(types.uint64), generate


@intrinsic
def _prefetch(context, array, offset):
    def generate(context, builder, signature, args):
        view = context.make_array(signature.args[0])(context, builder, args[0])
        byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        address = builder.bitcast(builder.gep(view.data, [args[1]]), byte)
        builder.call(function, [address, word(0), word(3), word(1)])  # to read, to keep, data
        return context.get_dummy_value()

    return types.void(array, types.intp), generate


def _count_zeros(x):
    return (int(x) & -int(x)).bit_length() - 1 if x else 64


def _count_ones(x):
    return int(x).bit_count()


def _fetch_nothing(array, offset):
    """Uncompiled code has no instructions to give."""


_PLAIN = bool(getattr(config, "DISABLE_JIT", False))
trailing_zeros = _count_zeros if _PLAIN else _trailing_zeros
"""Of a uint64; 64 if it is 0."""
ones = _count_ones if _PLAIN else _ones
"""How many bits of a uint64 are set."""
prefetch = _fetch_nothing if _PLAIN else _prefetch
"""prefetch(array, offset): ask for the cache line of the flat element `offset` of an array in C order."""
