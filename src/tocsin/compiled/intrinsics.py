"""Machine instructions as Numba intrinsics: what `instructions.py` means, for the compiler.

Compilers make poor vectors of eight variables, so `between` and the others work on vectors at once.
"""

from __future__ import annotations

import platform
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, models, register_model

__all__ = ["intrinsics"]

_VECTOR = ir.VectorType(ir.IntType(64), 8)
_HAS_CYCLES = platform.machine().lower() in ("x86_64", "amd64")


class Words(types.Type):
    """Eight unsigned words."""

    def __init__(self) -> None:
        super().__init__("Words")


_WORDS = Words()


@register_model(Words)
class _WordsModel(models.PrimitiveModel):
    def __init__(self, manager, kind):
        super().__init__(manager, kind, _VECTOR)


def _address(context, builder, kind, array, offset):
    view = context.make_array(kind)(context, builder, array)
    return builder.bitcast(builder.gep(view.data, [offset]), _VECTOR.as_pointer())


@intrinsic
def trailing_zeros(context, x):
    def generate(context, builder, signature, args):
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.uint64), generate


@intrinsic
def ones(context, x):
    def generate(context, builder, signature, args):
        return builder.ctpop(args[0])

    return types.int64(types.uint64), generate


@intrinsic
def prefetch(context, array, offset):
    def generate(context, builder, signature, args):
        view = context.make_array(signature.args[0])(context, builder, args[0])
        byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        address = builder.bitcast(builder.gep(view.data, [args[1]]), byte)
        builder.call(function, [address, word(0), word(3), word(1)])  # to read, to keep, data
        return context.get_dummy_value()

    return types.void(array, types.intp), generate


@intrinsic
def between(context, rows, upto, below):
    def generate(context, builder, signature, args):
        places = [_address(context, builder, signature.args[0], args[0], at) for at in args[1:]]
        one, other = (builder.load(place, align=8) for place in places)
        return builder.and_(one, builder.not_(other))

    return _WORDS(rows, types.uint64, types.uint64), generate


@intrinsic
def and_words(context, one, other):
    def generate(context, builder, signature, args):
        return builder.and_(*args)

    return _WORDS(_WORDS, _WORDS), generate


@intrinsic
def but_not(context, one, other):
    def generate(context, builder, signature, args):
        return builder.and_(args[0], builder.not_(args[1]))

    return _WORDS(_WORDS, _WORDS), generate


@intrinsic
def count_ones(context, words):
    def generate(context, builder, signature, args):
        each = [builder.extract_element(args[0], ir.IntType(32)(i)) for i in range(8)]
        total = builder.ctpop(each[0])
        for word in each[1:]:
            total = builder.add(total, builder.ctpop(word))
        return total

    return types.int64(_WORDS), generate


@intrinsic
def put_words(context, words, out):
    def generate(context, builder, signature, args):
        place = _address(context, builder, signature.args[1], args[1], ir.IntType(64)(0))
        builder.store(args[0], place, align=8)
        return context.get_dummy_value()

    return types.void(_WORDS, out), generate


@intrinsic
def cycles(typing):
    def generate(context, builder, signature, args):
        if not _HAS_CYCLES:
            return ir.Constant(ir.IntType(64), 0)
        kind = ir.FunctionType(ir.IntType(64), [])
        read = cgutils.get_or_insert_function(builder.module, kind, "llvm.readcyclecounter")
        return builder.call(read, [])

    return types.int64(), generate


_ALL = (trailing_zeros, ones, prefetch, between, and_words, but_not, count_ones, put_words, cycles)
intrinsics: dict[str, Any] = {own._name: own for own in _ALL}
