"""Eight words at a time, 512 events: a value of vector registers, which Numba does not have by itself.

Compilers make poor vectors of eight variables; these are vectors from the beginning. Uncompiled
(NUMBA_DISABLE_JIT), eight words are a NumPy array.

>>> import numpy as np
>>> from numba import njit
>>> @njit
... def both(rows):
...     return count_ones(and_words(between(rows, np.uint64(8), np.uint64(0)), between(rows, 8, 16)))
>>> rows = np.repeat(np.array([1, 7, 4], np.uint64), 8)
>>> int(both(rows))  # of 7 & ~1 and 7 & ~4 the second bit is left, in eight words
8
"""

from __future__ import annotations

from llvmlite import ir
from numba import config, types
from numba.extending import intrinsic, models, register_model

__all__ = ["and_words", "between", "but_not", "count_ones", "put_words"]

_VECTOR = ir.VectorType(ir.IntType(64), 8)


class Words(types.Type):
    """Eight unsigned words."""

    def __init__(self) -> None:
        super().__init__("Words")


_WORDS = Words()


@register_model(Words)
class _Model(models.PrimitiveModel):
    def __init__(self, manager, kind):
        super().__init__(manager, kind, _VECTOR)


def _address(context, builder, kind, array, offset):
    view = context.make_array(kind)(context, builder, array)
    return builder.bitcast(builder.gep(view.data, [offset]), _VECTOR.as_pointer())


@intrinsic
def _between(context, rows, upto, below):
    def generate(context, builder, signature, args):
        places = [_address(context, builder, signature.args[0], args[0], at) for at in args[1:]]
        one, other = (builder.load(place, align=8) for place in places)
        return builder.and_(one, builder.not_(other))

    return _WORDS(rows, types.uint64, types.uint64), generate


@intrinsic
def _and_words(context, one, other):
    def generate(context, builder, signature, args):
        return builder.and_(*args)

    return _WORDS(_WORDS, _WORDS), generate


@intrinsic
def _but_not(context, one, other):
    def generate(context, builder, signature, args):
        return builder.and_(args[0], builder.not_(args[1]))

    return _WORDS(_WORDS, _WORDS), generate


@intrinsic
def _count_ones(context, words):
    def generate(context, builder, signature, args):
        each = [builder.extract_element(args[0], ir.IntType(32)(i)) for i in range(8)]
        total = builder.ctpop(each[0])
        for word in each[1:]:
            total = builder.add(total, builder.ctpop(word))
        return total

    return types.int64(_WORDS), generate


@intrinsic
def _put_words(context, words, out):
    def generate(context, builder, signature, args):
        place = _address(context, builder, signature.args[1], args[1], ir.IntType(64)(0))
        builder.store(args[0], place, align=8)
        return context.get_dummy_value()

    return types.void(_WORDS, out), generate


def _plain_between(rows, upto, below):
    return rows[int(upto) : int(upto) + 8] & ~rows[int(below) : int(below) + 8]


def _plain_put(words, out):
    out[:8] = words


_PLAIN = bool(getattr(config, "DISABLE_JIT", False))
between = _plain_between if _PLAIN else _between
"""between(rows, upto, below): eight words of rows from `upto` on, and not those from `below` on."""
and_words = (lambda one, other: one & other) if _PLAIN else _and_words
"""What both have."""
but_not = (lambda one, other: one & ~other) if _PLAIN else _but_not
"""What the first has, and not the second."""
count_ones = (lambda words: sum(int(word).bit_count() for word in words)) if _PLAIN else _count_ones
"""How many bits are set."""
put_words = _plain_put if _PLAIN else _put_words
"""put_words(words, out): write them to the beginning of an array."""
