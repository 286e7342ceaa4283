"""Scores from counters alone: PROB, LIFE, RAND, LRU, LFU, FIFO."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from tocsin.limits._kernels.models import last_seen
from tocsin.limits.models.base import Arrivals, Doubles, KeptRows
from tocsin.limits.models.stationary import grown, renumbered
from tocsin.limits.scores.base import ArrivalRates, ScoreBase, drop_expired
from tocsin.model.columns import Index

__all__ = ["Frequent", "Life", "Oldest", "Prob", "Random", "Recent"]

_TIE = 1e-9  # random numbers times this decide between equal scores


class _Counted(ScoreBase):
    """Counts arrivals by side and key."""

    _per_key = True

    def __init__(self, caching: bool = False, seed: int = 0) -> None:
        super().__init__(caching, seed)
        self._counts = [np.zeros(0), np.zeros(0)]
        self._totals = [0, 0]

    def seen(self, side: int, arrivals: Arrivals) -> None:
        super().seen(side, arrivals)
        counts = self._counts[side] = grown(self._counts[side], arrivals.keys)
        self._totals[side] += len(arrivals.keys)
        if len(arrivals.keys) == 1:
            counts[arrivals.keys[0]] += 1.0
        else:
            np.add.at(counts, arrivals.keys, 1.0)

    def discard(self, keys: Index) -> None:
        for counts in self._counts:
            counts[keys[keys < len(counts)]] = 0.0

    def renumber(self, before: Index) -> None:
        self._counts = [renumbered(counts, before) for counts in self._counts]

    def _counted(self, side: int, keys: Index) -> Doubles:
        """How often the partner brought these keys."""
        counts = self._counts[self.partner(side)]
        known = keys < len(counts)
        if known.all():
            return counts[keys]
        out = np.zeros(len(keys))
        out[known] = counts[keys[known]]
        return out

    @property
    def nbytes(self) -> int:
        return 64 + sum(counts.nbytes for counts in self._counts)

    def _check(self) -> None:
        assert all(np.all(counts >= 0.0) for counts in self._counts) and sum(self._totals) == self._count


class Prob(_Counted):
    """PROB: how often the partner brought the key; ties are drawn.

    >>> score = Prob()
    >>> score.seen(1, Arrivals(np.array([7, 7, 8]), None, np.arange(3.0)))
    >>> rows = KeptRows(np.array([7, 8, 9]), None, np.zeros(3), np.full(3, np.inf))
    >>> score(0, rows, now=3.0, kept=3).round(2)
    array([1.  , 0.67, 0.33])
    """

    name: ClassVar[str] = "prob"
    is_benefit: ClassVar[bool] = True

    def __call__(self, side: int, rows: KeptRows, now: float, kept: int) -> Doubles:
        found = (self._counted(side, rows.keys) + 1.0) / max(1, self._totals[self.partner(side)])
        return drop_expired(found + _TIE * self.draws(len(found), side), rows.left)


class Life(_Counted):
    """LIFE: PROB times the remaining life, in arrivals of the partner; the same as PROB without expiry."""

    name: ClassVar[str] = "life"
    is_benefit: ClassVar[bool] = True

    def __init__(self, caching: bool = False, seed: int = 0) -> None:
        super().__init__(caching, seed)
        self._rates = ArrivalRates()

    def seen(self, side: int, arrivals: Arrivals) -> None:
        super().seen(side, arrivals)
        if len(arrivals.at):
            self._rates.add(side, len(arrivals.at), float(arrivals.at[-1]))

    def __call__(self, side: int, rows: KeptRows, now: float, kept: int) -> Doubles:
        found = (self._counted(side, rows.keys) + 1.0) / max(1, self._totals[self.partner(side)])
        rate = self._rates.of(self.partner(side))
        left = rows.left * rate if np.isfinite(rate) and rate > 0.0 else rows.left
        found *= np.where(np.isfinite(left), left, 1e15)
        return drop_expired(found * (1.0 + _TIE * self.draws(len(found), side)), rows.left)


class Random(ScoreBase):
    """RAND: every row is as good as any other."""

    name: ClassVar[str] = "rand"

    def __call__(self, side: int, rows: KeptRows, now: float, kept: int) -> Doubles:
        return drop_expired(self.draws(len(rows.keys), side), rows.left)


class Oldest(ScoreBase):
    """FIFO: the oldest row leaves first, as under a TTL that shrinks until the rows fit."""

    name: ClassVar[str] = "fifo"

    def __call__(self, side: int, rows: KeptRows, now: float, kept: int) -> Doubles:
        return drop_expired(rows.at.astype(np.float64), rows.left)


class Recent(ScoreBase):
    """LRU: the row leaves first whose arrival, or last match, is the longest ago."""

    name: ClassVar[str] = "lru"

    def __init__(self, caching: bool = False, seed: int = 0) -> None:
        super().__init__(caching, seed)
        self._last: list[Doubles] = [np.zeros(0), np.zeros(0)]

    def seen(self, side: int, arrivals: Arrivals) -> None:
        super().seen(side, arrivals)
        last = self._last[side] = grown(self._last[side], arrivals.keys, -np.inf)
        last[arrivals.keys] = arrivals.at  # the last of equal keys counts

    def discard(self, keys: Index) -> None:
        for last in self._last:
            last[keys[keys < len(last)]] = -np.inf

    def renumber(self, before: Index) -> None:
        self._last = [renumbered(last, before, -np.inf) for last in self._last]

    def __call__(self, side: int, rows: KeptRows, now: float, kept: int) -> Doubles:
        last = self._last[self.partner(side)]
        known = rows.keys < len(last)
        found = rows.at.astype(np.float64)
        found[known] = np.maximum(found[known], last[rows.keys[known]])
        return drop_expired(found, rows.left)

    @property
    def nbytes(self) -> int:
        return 64 + sum(last.nbytes for last in self._last)


class Frequent(_Counted):
    """LFU with perfect counts: the key leaves first that the partner brought least often; then the least
    recent."""

    name: ClassVar[str] = "lfu"

    def __init__(self, caching: bool = False, seed: int = 0) -> None:
        super().__init__(caching, seed)
        self._last: list[NDArray[np.int64]] = [np.zeros(0, np.int64), np.zeros(0, np.int64)]

    def seen(self, side: int, arrivals: Arrivals) -> None:
        first = self._count + 1
        super().seen(side, arrivals)
        self._last[side] = grown(self._last[side], arrivals.keys)  # type: ignore[arg-type, assignment]
        last_seen(self._last[side], arrivals.keys, first)

    def discard(self, keys: Index) -> None:
        super().discard(keys)
        for last in self._last:
            last[keys[keys < len(last)]] = 0

    def renumber(self, before: Index) -> None:
        super().renumber(before)
        self._last = [renumbered(last, before) for last in self._last]  # type: ignore[arg-type, misc]

    def __call__(self, side: int, rows: KeptRows, now: float, kept: int) -> Doubles:
        last = self._last[self.partner(side)]
        known = rows.keys < len(last)
        found = self._counted(side, rows.keys)
        found[known] += last[rows.keys[known]] / (self._count + 1.0)
        return drop_expired(found, rows.left)

    @property
    def nbytes(self) -> int:
        return super().nbytes + sum(last.nbytes for last in self._last)
