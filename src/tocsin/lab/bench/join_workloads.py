"""Queries, tables and events for join benchmarks: the chapter's workload, by what it leads to.

T07 (table 4.1) tunes means and deviations of ranges until an event selects and affects as many queries as
an experiment wants. Here one says how many, and the lengths of the ranges follow:

    selected   queries whose own range holds the event's value: mean length = selected * DOMAIN
    joining    rows of the other table with the event's key: as many keys as rows / joining
    affected   queries with a joining row in their other range too: 1 - exp(-joining * length / DOMAIN)
               of the selected ones
    groups     points, evenly spaced, one of which lies in each other range

Midpoints of own ranges are normal, lengths are normal, values uniform, as there. A band join has only the
other range, of differences; rows are as far apart as makes the ranges affect what they should.

>>> work = draw_equality(JoinSetting(queries=2000, rows=1000, groups=7, joining=10, events=50))
>>> work.groups, len(work.ranges.low), len(work.keys), len(work.event_keys)
(7, 2000, 1000, 50)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.errors import UsageError
from tocsin.join.strategies.storage import JoinStorage, Kind, Ranges
from tocsin.model.columns import Index
from tocsin.stab.partition import canonical

__all__ = ["DOMAIN", "JoinSetting", "JoinWorkload", "draw_band", "draw_equality", "draw_joins", "load"]

DOMAIN = 10**9  # values and, for bands, keys are 0 to this
_LEAST, _MOST = -(2**63), 2**63 - 1


@dataclass(frozen=True)
class JoinSetting:
    """Parameters of the workload; shares are of all queries."""

    queries: int = 100_000
    rows: int = 100_000
    groups: int = 30
    joining: float = 1000.0  # equality: rows that join an event, on average
    selected: float = 0.1  # equality: queries whose own range holds the value of an event
    affected: float = 0.05
    scattered: float = 0.0  # queries whose other range is anywhere, not at the point of a group
    own_deviation: float = 0.25  # of the midpoints of own ranges, as a share of the domain
    key_deviation: float = 0.0  # equality: of the keys, around the middle one; 0: uniform
    events: int = 1000
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.affected <= 1 or not 0 < self.selected <= 1:
            raise UsageError("--affected and --selected are shares above 0 and at most 1")


class JoinWorkload(NamedTuple):
    """The changed table's events, the other table's rows, and queries."""

    kind: Kind
    ranges: Ranges
    keys: Index
    values: Index
    event_keys: Index
    event_values: Index
    groups: int  # the least number of stabbing groups


def draw_joins(kind: Kind, setting: JoinSetting) -> JoinWorkload:
    return draw_equality(setting) if kind is Kind.EQUALITY else draw_band(setting)


def draw_equality(setting: JoinSetting) -> JoinWorkload:
    """Equality joins with local selections on both tables."""
    if setting.affected >= setting.selected:
        raise UsageError(
            f"{setting.affected} of the queries cannot be affected where {setting.selected} are selected",
            hint="--affected must be below --selected",
        )
    rng, n = np.random.default_rng(setting.seed), setting.queries
    middle = rng.normal(0.5, setting.own_deviation, n) * DOMAIN
    length = _lengths(rng, setting.selected * DOMAIN, n)
    own_low, own_high = (middle - length / 2).astype(np.int64), (middle + length / 2).astype(np.int64)
    hit = -np.log1p(-setting.affected / setting.selected)  # joining rows in a range of the mean length
    low, high = _other_ranges(rng, setting, hit / max(setting.joining, 1e-9) * DOMAIN)
    count = max(1, round(setting.rows / max(setting.joining, 1e-9)))
    keys = _keys(rng, setting, count)
    values = rng.integers(0, DOMAIN, setting.rows)
    event_keys, event_values = rng.integers(0, count, setting.events), rng.integers(0, DOMAIN, setting.events)
    ranges = Ranges(low, high, own_low, own_high)
    tau = canonical(low, high).tau
    return JoinWorkload(Kind.EQUALITY, ranges, keys, values, event_keys, event_values, tau)


def draw_band(setting: JoinSetting) -> JoinWorkload:
    """Band joins without local selections."""
    rng, n = np.random.default_rng(setting.seed), setting.queries
    keys = rng.integers(0, DOMAIN, setting.rows)
    hit = -np.log1p(-min(setting.affected, 0.999999))
    low, high = _other_ranges(rng, setting, hit * DOMAIN / max(setting.rows, 1))
    low, high = low - DOMAIN // 2, high - DOMAIN // 2  # differences have either sign
    anything = np.full(n, _LEAST, np.int64), np.full(n, _MOST, np.int64)
    events = rng.integers(DOMAIN // 4, DOMAIN // 4 * 3, setting.events)
    blank, tau = np.zeros(setting.rows, np.int64), canonical(low, high).tau
    ranges = Ranges(low, high, *anything)
    return JoinWorkload(Kind.BAND, ranges, keys, blank, events, np.zeros(len(events), np.int64), tau)


def load(work: JoinWorkload) -> JoinStorage:
    """A storage with the rows; events are on side 0."""
    storage = JoinStorage()
    storage.load(1, work.keys, work.values)
    return storage


def _lengths(rng: np.random.Generator, mean: float, count: int) -> NDArray[np.float64]:
    return np.abs(rng.normal(mean, mean / 4, count))


def _other_ranges(rng: np.random.Generator, setting: JoinSetting, length: float) -> tuple[Index, Index]:
    """Ranges of about that length around the points of the groups; scattered ones around anything."""
    n = setting.queries
    points = (np.arange(setting.groups) + 0.5) / setting.groups * DOMAIN
    around = points[rng.integers(0, setting.groups, n)]
    loose = rng.random(n) < setting.scattered
    around[loose] = rng.random(int(loose.sum())) * DOMAIN
    total = _lengths(rng, length, n)
    left = total * rng.random(n)
    return (around - left).astype(np.int64), (around + total - left).astype(np.int64) + 1


def _keys(rng: np.random.Generator, setting: JoinSetting, count: int) -> Index:
    if setting.key_deviation == 0:
        return rng.integers(0, count, setting.rows)
    drawn = rng.normal(0.5, setting.key_deviation, setting.rows) * count
    return np.clip(drawn.astype(np.int64), 0, count - 1)
