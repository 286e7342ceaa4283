"""The protocol of scores, and rates of arrival.

A score ranks the rows that a bounded buffer keeps: the lowest are dropped. In a join, rows of side 0 wait for
arrivals of side 1 and the reverse; in a cache there is one side, whose references are its own partner.
"""

from __future__ import annotations

import math
from typing import ClassVar, Protocol

import numpy as np

from tocsin.limits.models.base import Arrivals, Doubles, KeptRows
from tocsin.model.columns import Index

__all__ = ["ArrivalRates", "Score", "ScoreBase", "drop_expired"]

_PANES, _PANE = 16, 256


class Score(Protocol):
    """Ranks kept rows; a higher score stays.

    The caller reports all arrivals in order by `seen`, then scores rows as often as it likes. Scores
    depend on arrivals, times and the seed alone, so a replay decides alike. All are vectorised: pass all
    rows of a side at once, or, if `per_key`, one row for each distinct key.
    """

    name: ClassVar[str]
    is_benefit: ClassVar[bool]
    """Whether a score is an expected number of results: then multiply it by how many subscriptions want
    the row, and divide it by the row's bytes."""

    @property
    def per_key(self) -> bool:
        """Whether rows of one side with the same key and the same `left` always have the same score."""
        ...

    @property
    def by_value(self) -> bool:
        """Whether it reads the values of keys: without, rows may be scored with None."""
        ...

    def seen(self, side: int, arrivals: Arrivals) -> None: ...

    def __call__(self, side: int, rows: KeptRows, now: float, kept: int) -> Doubles:
        """Scores of rows of a side at a time; `kept`: how many rows of both sides the buffer keeps.

        Expired rows (`left` <= 0) score -inf."""
        ...

    def discard(self, keys: Index) -> None:
        """These codes will be given to other keys."""
        ...

    def renumber(self, before: Index) -> None:
        """Code i is from now on that of the key which had `before[i]`."""
        ...

    def bound(self, most_bytes: int) -> None:
        """Use no model whose own tables are larger."""
        ...

    @property
    def nbytes(self) -> int:
        """Bytes of counters and models, for the buffer's budget."""
        ...

    def _check(self) -> None: ...


class ScoreBase:
    """What scores share: the side rows wait for, how many arrivals there were."""

    name: ClassVar[str] = ""
    is_benefit: ClassVar[bool] = False
    _per_key = False

    def __init__(self, caching: bool = False, seed: int = 0) -> None:
        self.caching, self.seed = caching, seed
        self._count = 0

    @property
    def per_key(self) -> bool:
        return self._per_key

    @property
    def by_value(self) -> bool:
        return False

    def partner(self, side: int) -> int:
        return side if self.caching else 1 - side

    def seen(self, side: int, arrivals: Arrivals) -> None:
        self._count += len(arrivals.keys)

    def discard(self, keys: Index) -> None:
        pass

    def renumber(self, before: Index) -> None:
        pass

    def bound(self, most_bytes: int) -> None:
        """Use no model whose own tables are larger."""

    @property
    def nbytes(self) -> int:
        return 64

    def draws(self, size: int, salt: int) -> Doubles:
        """Random numbers in [0, 1) that depend on the seed and the arrivals so far alone."""
        return np.random.default_rng((self.seed, self._count, salt)).random(size)

    def _check(self) -> None:
        assert self._count >= 0


def drop_expired(scores: Doubles, left: Doubles) -> Doubles:
    scores[left <= 0.0] = -np.inf
    return scores


class ArrivalRates:
    """Arrivals per unit of time and side, over the last 4,096 or more.

    >>> rates = ArrivalRates()
    >>> for second in range(100):
    ...     rates.add(0, 30, float(second)); rates.add(1, 10, float(second))
    >>> rates.share(0), round(rates.of(0))
    (0.75, 30)
    """

    def __init__(self) -> None:
        self._panes: list[tuple[float, int, int]] = []  # time, arrivals by side before it
        self._counts = [0, 0]
        self._now = -math.inf

    def add(self, side: int, count: int, at: float) -> None:
        if not self._panes:
            self._panes.append((at, 0, 0))
        if sum(self._counts) - sum(self._panes[-1][1:]) >= _PANE and at > self._panes[-1][0]:
            self._panes.append((at, self._counts[0], self._counts[1]))
            del self._panes[: -_PANES - 1]
        self._counts[side] += count
        self._now = max(self._now, at)

    def share(self, side: int) -> float:
        """The share of recent arrivals that are of this side; a half before there are any."""
        recent = self._recent()
        return (recent[side] + 1.0) / (sum(recent) + 2.0) if sum(recent) < 64 else recent[side] / sum(recent)

    def of(self, side: int) -> float:
        """Arrivals per unit of time; infinity as long as no time has passed."""
        if not self._panes or self._now <= self._panes[0][0]:
            return math.inf
        return self._recent()[side] / (self._now - self._panes[0][0])

    def _recent(self) -> list[int]:
        first = self._panes[0] if self._panes else (0.0, 0, 0)
        return [self._counts[0] - first[1], self._counts[1] - first[2]]
