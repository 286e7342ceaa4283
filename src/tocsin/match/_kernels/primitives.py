"""What all kernels of this room share: machine instructions, sorted search, hashing, words of 512 events.

Numba has no name for a prefetch, for counting zeros, or for a vector register of eight words (512 events, one
bit each); `intrinsic` functions emit them. Compilers make poor vectors of eight variables, so `between` and
the others work on vectors from the beginning. Uncompiled (NUMBA_DISABLE_JIT), a prefetch does nothing and
eight words are a NumPy array.

>>> from numba import njit
>>> @njit
... def both(rows):
...     return count_ones(and_words(between(rows, np.uint64(8), np.uint64(0)), between(rows, 8, 16)))
>>> rows = np.repeat(np.array([1, 7, 4], np.uint64), 8)
>>> int(both(rows))  # 7 & ~1 and 7 & ~4 have the second bit in common, in each of eight words
8
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import config, njit, types
from numba.core import cgutils
from numba.extending import intrinsic, models, register_model

__all__ = [
    "MISSING", "MOST", "and_words", "between", "but_not", "count_ones", "find_key", "hash64", "key_place",
    "lower", "ones", "prefetch", "put_words", "trailing_zeros", "upper",
]  # fmt: skip

MISSING, MOST = np.int32(-(2**31)), np.int32(2**31 - 1)  # rank of an absent attribute; an open high end
_SCANNED = 64  # the last values of a sorted search are compared one after the other
_VECTOR = ir.VectorType(ir.IntType(64), 8)
_PLAIN = bool(getattr(config, "DISABLE_JIT", False))


# -- sorted search and hashing ---------------------------------------------------------------------


@njit(cache=True, nogil=True, inline="always")
def hash64(x):
    y = np.uint64(x) * np.uint64(0x9E3779B97F4A7C15)
    return y ^ (y >> np.uint64(32))


@njit(cache=True, nogil=True, inline="always")
def key_place(keys, key):
    """The first place to look for a key in a hash table."""
    return hash64(key) & np.uint64(len(keys) - 1)


@njit(cache=True, nogil=True, inline="always")
def find_key(keys, key):
    """The place of a key in a hash table, or the free place where it belongs."""
    mask = np.uint64(len(keys) - 1)
    h = key_place(keys, key)
    while keys[h] >= 0 and keys[h] != key:
        h = (h + np.uint64(1)) & mask
    return h


@njit(cache=True, nogil=True, inline="always")
def lower(a, low, high, x):
    """The first place in a[low:high], sorted, whose value is not below x.

    The branch predictor misses every second halving, so the last values are compared all, several at once.
    """
    at, n, one = np.uint64(low), np.uint64(high - low), np.uint64(1)
    while n > np.uint64(_SCANNED):
        half = (n + one) >> one
        at = at + half if a[at + half - one] < x else at
        n -= half
    below = np.int64(0)
    for i in range(at, at + n):  # unsigned: no check for negative indexes
        below += np.int64(a[i] < x)
    return np.int64(at) + below


@njit(cache=True, nogil=True, inline="always")
def upper(a, low, high, x):
    """The first place in a[low:high], sorted, whose value is above x."""
    at, n, one = np.uint64(low), np.uint64(high - low), np.uint64(1)
    while n > np.uint64(_SCANNED):
        half = (n + one) >> one
        at = at + half if a[at + half - one] <= x else at
        n -= half
    below = np.int64(0)
    for i in range(at, at + n):
        below += np.int64(a[i] <= x)
    return np.int64(at) + below


# -- machine instructions ---------------------------------------------------------------------------


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


def _plain_zeros(x):
    return (int(x) & -int(x)).bit_length() - 1 if x else 64


def _plain_ones(x):
    return int(x).bit_count()


def _plain_prefetch(array, offset):
    """Uncompiled code cannot prefetch."""


trailing_zeros = _plain_zeros if _PLAIN else _trailing_zeros
"""Of a uint64; 64 if it is 0."""
ones = _plain_ones if _PLAIN else _ones
"""How many bits of a uint64 are set."""
prefetch = _plain_prefetch if _PLAIN else _prefetch
"""prefetch(array, offset): load the cache line of the flat element `offset` of an array in C order."""


# -- eight words at a time -------------------------------------------------------------------------


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


between = _plain_between if _PLAIN else _between
"""between(rows, upto, below): eight words of rows from `upto` on, and not those from `below` on."""
and_words = (lambda one, other: one & other) if _PLAIN else _and_words
"""Bits of both."""
but_not = (lambda one, other: one & ~other) if _PLAIN else _but_not
"""Bits of the first that the second has not."""
count_ones = (lambda words: sum(int(word).bit_count() for word in words)) if _PLAIN else _count_ones
"""How many bits are set."""
put_words = _plain_put if _PLAIN else _put_words
"""put_words(words, out): write eight words to the beginning of an array."""
