"""Objects, ranges and events for benchmarks of top-k and minima over ranges, as in the papers.

K12 (section V): x of objects is uniform or in ten clusters; y is uniform. An event picks an object, raises or
lowers it with equal probability, and draws the new y uniformly above or below the old one.

    distribution   objects     ranges
    uniform        uniform     two uniform numbers, sorted
    clustered      uniform     both ends around one of ten points of the plane (l, r)
    correlated     clustered   both ends around the centre of one of the clusters of objects
    anti           clustered   both ends around a point midway between two of them

T07 (table 5.1): objects are uniform, ranges have normal midpoints and lengths, y is a random walk, and
sometimes an object falls to 0 and returns (`draw_walk`).

The number of an object breaks ties of y: y is value * objects + number, so no two are equal.

>>> work = draw_ranks(RankSetting(objects=50, subscriptions=200, events=30))
>>> len(work.x), len(work.low), len(work.number), bool(np.all(work.low <= work.high))
(50, 200, 30, True)
>>> bool(np.all(work.new_y % 50 == work.number)), len(np.unique(work.y))
(True, 50)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.errors import UsageError
from tocsin.model.columns import Index

__all__ = [
    *("DISTRIBUTIONS", "SPAN", "RankSetting", "RankWorkload", "WalkSetting", "draw_gaussian", "draw_ranks"),
    *("draw_subscriptions", "draw_walk"),
]

SPAN = 2**40
"""x and the values of y are from 0 to this."""
DISTRIBUTIONS = ("uniform", "clustered", "correlated", "anti")
_CLUSTERS = 10
_WIDTH = SPAN // (_CLUSTERS + 1)  # of the segments between centres
_SPREAD = 0.1  # of clustered ranges, as a share of the domain (K12: lambda / 4)

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class RankSetting:
    """Parameters of K12's workload."""

    objects: int = 10_000
    subscriptions: int = 2_000_000
    events: int = 10_000
    distribution: str = "uniform"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.distribution not in DISTRIBUTIONS:
            raise UsageError(
                f"there is no distribution {self.distribution!r}", hint=f"one of {', '.join(DISTRIBUTIONS)}"
            )
        if self.objects > 2**22:
            raise UsageError(f"{self.objects:,} objects are more than 4,194,304")


class RankWorkload(NamedTuple):
    """Objects by number, ranges by slot, and events: object `number` gets `new_y`."""

    x: Index
    y: Index
    low: Index
    high: Index
    number: Index
    new_y: Index

    def part(self, begin: int, end: int) -> tuple[Index, Index, Index]:
        """The events from begin to end: numbers, x, y."""
        number = self.number[begin:end]
        return number, self.x[number], self.new_y[begin:end]


def draw_ranks(setting: RankSetting) -> RankWorkload:
    """K12's workload."""
    rng = np.random.default_rng(setting.seed)
    x, y = _objects(rng, setting)
    number = rng.integers(0, setting.objects, setting.events)
    rises, share = rng.random(setting.events) < 0.5, rng.random(setting.events)

    def step(now: Floats, events: Index) -> Floats:
        to = np.where(rises[events], now + share[events] * (SPAN - now), share[events] * now)
        return np.asarray(to, np.float64)

    low, high = draw_subscriptions(setting)
    new_y = _y_after_events(y, number, step)
    return RankWorkload(x, _with_number(y, np.arange(len(x)), len(x)), low, high, number, new_y)


def draw_gaussian(setting: RankSetting, c: float) -> RankWorkload:
    """The same, but y changes by a normal number with deviation c / 8 of the range of y (K12, figure 8b)."""
    rng = np.random.default_rng(setting.seed)
    x, y = _objects(rng, setting)
    number = rng.integers(0, setting.objects, setting.events)
    by = rng.normal(0, c / 8 * SPAN, setting.events)
    low, high = draw_subscriptions(setting)
    new_y = _y_after_events(
        y, number, lambda now, events: np.abs((now + by[events] + SPAN) % (2 * SPAN) - SPAN)
    )
    return RankWorkload(x, _with_number(y, np.arange(len(x)), len(x)), low, high, number, new_y)


def draw_subscriptions(setting: RankSetting) -> tuple[Index, Index]:
    """Low and high ends of ranges, from their own random generator."""
    rng, count = np.random.default_rng([setting.seed, 1]), setting.subscriptions
    if setting.distribution == "uniform":
        ends: Floats = rng.random((count, 2)) * SPAN
    elif setting.distribution == "clustered":
        centres = np.sort(rng.random((_CLUSTERS, 2)), axis=1)
        ends = (centres[rng.integers(0, _CLUSTERS, count)] + rng.normal(0, _SPREAD, (count, 2))) * SPAN
    else:
        shift, kinds = (0, _CLUSTERS) if setting.distribution == "correlated" else (_WIDTH / 2, _CLUSTERS - 1)
        centre = (1 + rng.integers(0, kinds, (count, 1))) * _WIDTH + shift
        ends = centre + rng.normal(0, _WIDTH / 8, (count, 2))
    ends = np.sort(np.clip(ends, 0, SPAN), axis=1)
    return ends[:, 0].astype(np.int64), ends[:, 1].astype(np.int64)


def _objects(rng: np.random.Generator, setting: RankSetting) -> tuple[Index, Floats]:
    n = setting.objects
    y: Floats = rng.random(n) * SPAN
    if setting.distribution in ("uniform", "clustered"):
        return rng.integers(0, SPAN, n), y
    centre = (1 + rng.integers(0, _CLUSTERS, n)) * _WIDTH
    return np.clip(centre + rng.normal(0, _WIDTH / 8, n), 0, SPAN).astype(np.int64), y


def _with_number(value: Floats, number: Index, objects: int) -> Index:
    return np.clip(value, 0, SPAN).astype(np.int64) * objects + number


def _y_after_events(y: Floats, number: Index, step: Callable[[Floats, Index], Floats]) -> Index:
    """y after each event, with the object's number. The first events of all objects are computed together,
    then the second ones, and so on."""
    order = np.argsort(number, kind="stable")
    first = np.searchsorted(number[order], number[order])
    turn = np.empty(len(number), np.int64)
    turn[order] = np.arange(len(number)) - first
    by_turn = np.argsort(turn, kind="stable")
    now, out = y.copy(), np.empty(len(number))
    for events in np.split(by_turn, np.cumsum(np.bincount(turn))[:-1]) if len(number) else ():
        now[number[events]] = out[events] = step(now[number[events]], events)
    return _with_number(out, number, len(y))


# -- T07 ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WalkSetting:
    """Parameters of T07, table 5.1, in the table's units."""

    objects: int = 100_000
    subscriptions: int = 1_000_000
    events: int = 10_000
    spikes: float = 0.005  # the share of events at which an object falls to 0
    middle: tuple[float, float] = (5000.0, 1500.0)
    length: tuple[float, float] = (1000.0, 1000.0)
    seed: int = 0


_UNIT = SPAN // 10_000  # x and y are real numbers of 0..10,000


def draw_walk(walk: WalkSetting) -> RankWorkload:
    """T07's workload. The chapter does not define the steps ("depends merely on its current value"): here, as
    in K12, y is drawn above or below the old one. A spike goes to 0; the next event restores the old y.

    Hardly any two objects share an x, so no update can be ignored, as in the chapter's experiments."""
    rng, n = np.random.default_rng(walk.seed), walk.objects
    x, y = rng.integers(0, SPAN, n), rng.integers(1, SPAN, n)
    now, events = y.tolist(), list[tuple[int, int]]()
    objects, share = rng.integers(0, n, walk.events).tolist(), rng.random((3, walk.events)).tolist()
    for i, spike, side, to in zip(objects, *share, strict=True):
        if spike < walk.spikes:
            events += [(i, 0), (i, now[i])]
        else:
            now[i] = 1 + int(to * now[i] if side < 0.5 else now[i] + to * (SPAN - now[i]))
            events.append((i, now[i]))
    number, new_y = np.array(events[: walk.events], np.int64).reshape(-1, 2).T.copy()
    own = np.random.default_rng([walk.seed, 1])
    middle = own.normal(*walk.middle, walk.subscriptions) * _UNIT
    half = np.abs(own.normal(*walk.length, walk.subscriptions)) * _UNIT / 2
    return RankWorkload(
        x, y, (middle - half).astype(np.int64), (middle + half).astype(np.int64), number, new_y
    )
