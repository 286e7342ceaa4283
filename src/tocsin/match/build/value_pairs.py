"""Couples: pairs of dimensions whose values conjunctions hang on, as the hash tables of F01 (section 4.2).

A couple is asked of every event that has both dimensions, so few of them should do for many conjunctions; and
many conjunctions ask for values in several. Which couples to have is F01's problem of static clustering, and
is solved as there, greedily: the couple next that saves most, beside what the chosen ones save, as long as it
saves more than asking it costs. What conjunctions would cost is worked out for a sample of them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.match._kernels.build import fill_hash, fill_rest
from tocsin.match._kernels.value_pair_choice import choose_couples, offers
from tocsin.match._kernels.value_pairs import BLOCK, PASS
from tocsin.model.columns import Index, sliced

__all__ = ["Couples", "find_couples", "no_couples"]

MOST = 4096  # couples
MOST_KEYS = 1 << 40  # of a couple: those of all together can be told apart
LEAST_SAMPLE, MOST_SAMPLE = 1 << 13, 1 << 16  # conjunctions that are asked; of many, a sixteenth


class Couples(NamedTuple):
    """Couples by their first dimension, and how to find them."""

    begin: NDArray[np.int32]  # by dimension: its couples with later ones
    other: NDArray[np.int32]  # by couple: the other dimension
    base: Index  # the key of its first two values
    stride: Index  # of the first dimension's values
    keys: int  # of all of them
    table: Index  # a hash table: lesser dimension * width + other, and
    place: NDArray[np.int32]  # the couple
    cost: float  # nanoseconds that asking all of them takes, per event


def no_couples(width: int) -> Couples:
    """None at all."""
    none, nothing = np.empty(0, np.int64), np.empty(0, np.int32)
    table, place = np.full(1, -1, np.int64), np.zeros(1, np.int32)
    return Couples(np.zeros(width + 1, np.int32), nothing, none, none, 0, table, place, 0.0)


def sampled(tests: Any) -> Any:
    """Tests of some of the conjunctions, from all over."""
    n = len(tests[0]) - 1
    wanted = min(n, max(LEAST_SAMPLE, min(MOST_SAMPLE, n // 16)))
    if wanted == n:
        return tests
    chosen = np.linspace(0, n - 1, wanted).astype(np.int64)
    start, at = sliced(tests[0][chosen], tests[0][chosen + 1] - tests[0][chosen])
    return start, *(array[at] for array in tests[1:])


def find_couples(
    some: Any,
    chances: Any,
    cut_count: Index,
    prices: NDArray[np.float64],
    least: NDArray[np.float32],
    scale: float,
) -> Couples:
    """The couples worth having; `some` are tests of a sample, which stand for `scale` times as many.

    `least` is what a conjunction of the sample costs without couples.
    """
    width, presence = len(cut_count), chances[0]
    couple, whose, price = offers(some, chances, cut_count, prices, least)
    if not len(couple):
        return no_couples(width)
    order = np.argsort(couple, kind="stable")
    known, begin = np.unique(couple[order], return_index=True)
    begin = np.append(begin, len(order))
    first, second = np.divmod(known, width)
    look, find = prices[5:7]
    fixed = presence[first] * (look + presence[second] * find)
    both = np.minimum(1.0, BLOCK * presence[first]) * np.minimum(1.0, BLOCK * presence[second])
    fixed += find * PASS / BLOCK * both
    keys = cut_count[first].astype(np.float64) * cut_count[second]
    fixed[keys > MOST_KEYS] = np.inf
    chosen = choose_couples(begin, whose[order], price[order], least, fixed, scale, MOST)
    if not len(chosen):
        return no_couples(width)
    return _couples(np.sort(known[chosen]), cut_count, float(fixed[chosen].sum()))


def _couples(known: Index, cut_count: Index, cost: float) -> Couples:
    width = len(cut_count)
    first, second = np.divmod(known, width)
    begin = np.searchsorted(first, np.arange(width + 1)).astype(np.int32)
    ends = np.cumsum(cut_count[first] * cut_count[second])
    base = np.concatenate([[0], ends])[: len(known)].astype(np.int64)
    table = np.full(1 << max(4, (2 * len(known)).bit_length()), -1, np.int64)
    place = np.zeros(len(table), np.int32)
    fill_rest(known, table, place, fill_hash(known, table, place, 0, len(table)))
    stride = cut_count[second].astype(np.int64)
    return Couples(begin, second.astype(np.int32), base, stride, int(ends[-1]), table, place, cost)
