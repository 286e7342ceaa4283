"""A stream that answers: a key comes some time after the partner's row with it, once (order → payment).

The key says nothing, the age does. Followed keys give the delays: every 64th, and the lowest codes, whatever
happens to their rows. A followed row that got no answer is censored when its code is given to another key, so
the hazard by age is that of Kaplan and Meier:

    hazard(a) = answers at age a / rows that were still waiting at age a
    H(a) = q (hazard(a+1) + (1 - hazard(a+1)) H(a+1))

In caching, a reference answers the one before it: the age is that since the last reference.
"""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from tocsin.limits._kernels.models import NO_ROW, follow_delays, track_rows
from tocsin.limits.models.base import Arrivals, Doubles, ModelBase, RecentMean, Steps, followed
from tocsin.limits.models.tables import delay_table
from tocsin.model.columns import Index

__all__ = ["Delay"]

_CELLS = 512
_SMOOTH = 7  # cells that a hazard is the mean of
_MOST_HAZARD = 0.9
_OFTEN, _SELDOM = 5, 256  # followed arrivals between two estimates
_FADE = 65536.0  # followed rows after which old delays weigh half


class Delay(ModelBase):
    """The delays between the partner's rows and this stream's; `caching`: between references of one key.

    >>> model = Delay()
    >>> for n in range(200):  # rows are answered after 3 arrivals of other keys
    ...     model.observe_rows(Arrivals(np.array([n]), None, np.zeros(1)))
    ...     if n >= 3: model.observe(Arrivals(np.array([n - 3]), None, np.zeros(1)))
    >>> rows = Steps(np.zeros(2, int), None, np.array([1.0, 30.0]), np.full(2, np.inf))
    >>> model.score(rows, 0.9, caching=False).round(1)
    array([0.7, 0. ])
    """

    by_age: ClassVar[bool] = True
    by_value: ClassVar[bool] = False

    def __init__(self, caching: bool = False) -> None:
        self.caching = caching
        self.keys = 0.0
        """How many keys there may be, for the likelihood; 0: that is not known."""
        self._born: NDArray[np.int64] = np.full(64, NO_ROW, np.int64)  # step of the waiting row, by place
        self._answers, self._censored = np.zeros(_CELLS), np.zeros(_CELLS)
        self._width = 1.0  # steps per cell
        self._count = 0  # arrivals
        self._unknown = np.array([1.0, 1.0])  # followed arrivals that answered nothing; all followed ones
        self._logs = RecentMean()
        self._learned = self._due = 0  # followed arrivals; how many until hazards are made again
        self._hazards: Doubles | None = None
        self._expected = np.zeros(_CELLS)  # the same, but never 0: for the likelihood
        self._table: tuple[float, Doubles] | None = None

    # -- learning ----------------------------------------------------------------------------------

    def observe_rows(self, arrivals: Arrivals) -> None:
        """Rows of the partner begin to wait."""
        places = followed(arrivals.keys)
        self._grow(places)
        track_rows(self._born, arrivals.keys, places, self._count)

    def observe(self, arrivals: Arrivals) -> None:
        places = followed(arrivals.keys)
        self._grow(places)
        if self.caching:
            self._observe_references(places)
        else:
            delays = np.empty(len(places), np.int64)
            follow_delays(self._born, places, self._count, delays)
            self._count += len(places)
            self._learn(delays[places >= 0])

    def _observe_references(self, places: Index) -> None:
        followed = np.flatnonzero(places >= 0)
        at = self._count + 1 + followed
        order = np.argsort(places[followed], kind="stable")
        mine, when = places[followed][order], at[order]
        first = np.ones(len(mine), np.bool_)
        first[1:] = mine[1:] != mine[:-1]
        before = np.where(first, self._born[mine], np.roll(when, 1)) if len(mine) else when
        delays = np.empty(len(mine), np.int64)
        delays[order] = np.where(before == NO_ROW, -1, when - before)
        self._born[mine] = when  # the last of equal places counts
        self._count += len(places)
        self._learn(delays)

    def _learn(self, delays: Index) -> None:
        """Delays of followed arrivals, -1 for those that answered nothing."""
        if not len(delays):
            return
        answered = delays >= 0
        self._logs.add(self._log_likelihoods(delays))
        self._unknown += np.count_nonzero(~answered), len(delays)
        if answered.any():
            self._widen(float(delays.max()))
            np.add.at(self._answers, ((delays[answered] - 1) / self._width).astype(np.int64), 1.0)
            if self._answers.sum() + self._censored.sum() > _FADE:
                self._answers *= 0.5
                self._censored *= 0.5
        self._learned += len(delays)
        if self._learned >= self._due:
            self._due = self._learned + min(_SELDOM, max(_OFTEN, self._learned // 16))
            self._hazards = self._table = None

    def _log_likelihoods(self, delays: Index) -> Doubles:
        """Of each followed key, given the ages of all that wait."""
        self._hazard()
        cell = np.minimum(((delays - 1) / self._width).astype(np.int64), _CELLS - 1)
        unknown = delays < 0
        before = self._unknown[0] + np.cumsum(unknown) - unknown
        new = before / (self._unknown[1] + np.arange(len(delays))) / np.maximum(before + 1.0, self.keys)
        found = np.where(delays >= 0, self._expected[np.maximum(cell, 0)], new)
        return np.log(np.maximum(found, 1e-12))

    def _widen(self, longest: float) -> None:
        while longest >= self._width * _CELLS:
            for counts in (self._answers, self._censored):
                counts[: _CELLS // 2] = counts[0::2] + counts[1::2]
                counts[_CELLS // 2 :] = 0.0
            self._width *= 2.0

    def _grow(self, places: Index) -> None:
        most = int(places.max(initial=-1))
        if most >= len(self._born):
            more = np.full(max(2 * len(self._born), most + 1) - len(self._born), NO_ROW, np.int64)
            self._born = np.concatenate([self._born, more])

    def discard(self, keys: Index) -> None:
        """Rows that wait are censored at their age."""
        places = np.unique(followed(keys))
        places = places[(places >= 0) & (places < len(self._born))]
        self._censor(places[self._born[places] != NO_ROW])

    def renumber(self, before: Index) -> None:
        """Other codes are followed now: rows that wait are censored."""
        self._censor(np.flatnonzero(self._born != NO_ROW))
        self._born = np.full(64, NO_ROW, np.int64)

    def _censor(self, waiting: Index) -> None:
        if not len(waiting):
            return
        ages = self._count - self._born[waiting]
        self._widen(float(ages.max()))
        np.add.at(self._censored, (ages / self._width).astype(np.int64), 1.0)
        self._born[waiting] = NO_ROW

    # -- scoring -----------------------------------------------------------------------------------

    def _hazard(self) -> Doubles:
        """Per step, by cell of ages."""
        if self._hazards is None:
            waiting = self._born[self._born != NO_ROW]
            cells = np.minimum(((self._count - waiting) / self._width).astype(np.int64), _CELLS - 1)
            ends = self._answers + self._censored + np.bincount(cells, minlength=_CELLS)
            at_risk = np.cumsum(ends[::-1])[::-1]
            exposed = np.maximum(at_risk - 0.5 * ends, 0.5) * self._width
            box = np.ones(_SMOOTH)
            mean = (self._answers.sum() + 0.5) / exposed.sum()  # what is expected where little was seen
            answers, exposed = (np.convolve(x, box, "same") for x in (self._answers, exposed))
            self._hazards = np.minimum(_MOST_HAZARD, answers / exposed)
            self._expected = np.minimum(_MOST_HAZARD, (answers + 0.5) / (exposed + 0.5 / mean))
        return self._hazards

    def score(self, rows: Steps, q: float, caching: bool) -> Doubles:
        if self._table is None or self._table[0] != q:
            h = delay_table(self._hazard(), self._width, q)
            self._table = q, np.concatenate([h, [0.0]])
        h = self._table[1]
        place = rows.age / self._width
        found = np.interp(place, np.arange(_CELLS + 1), h, right=0.0)
        limited = np.isfinite(rows.left)
        if limited.any():
            found[limited] -= self._after(place[limited], rows.left[limited], q)
        return np.where(rows.left > 0.0, np.maximum(found, 0.0), 0.0)

    def _after(self, place: Doubles, left: Doubles, q: float) -> Doubles:
        """What comes when the row has expired: H there, weighed by the probability to get there."""
        assert self._table is not None
        risk = np.concatenate([[0.0], np.cumsum(-np.log1p(-self._hazard()) * self._width)])
        at, later = np.arange(_CELLS + 1), place + left / self._width
        stays = np.exp(np.interp(place, at, risk) - np.interp(later, at, risk))
        return q**left * stays * np.interp(later, at, self._table[1], right=0.0)

    def likelihood(self) -> float:
        return self._logs.mean()

    @property
    def nbytes(self) -> int:
        return self._born.nbytes + 5 * self._answers.nbytes + self._logs.nbytes

    def _check(self) -> None:
        assert np.all(self._answers >= 0.0) and np.all(self._censored >= 0.0)
        assert np.all(self._born <= self._count) and math.log2(self._width).is_integer()
