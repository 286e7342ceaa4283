"""Subscriptions and events that change their habits: F01's experiments on adaptivity (section 6.2).

A population of subscriptions stays at its size: at each phase the oldest go and as many new ones
come, so that after `turning` phases of change all are new:

    steady   the old habit       ids 0..n-1, renewed in kind
    turning  the new habit       the population mixes
    settled  the new habit       all of it is new

    schema   the attributes that subscriptions use move from the first half to the second; events
             have all attributes throughout (people's interests change)
    skew     a few values of some attributes become what everybody asks and tells about (an election)

Everything is equality over 32 attributes and values 1..35, five per subscription: the paper's
setting as far as its text gives it.

>>> phases = list(drift("schema", 100, 10, setting=Drift(steady=1, turning=2, settled=1)))
>>> [(p.number, p.share, len(p.gone), p.workload.n) for p in phases]
[(0, 0.0, 0, 100), (1, 0.0, 50, 50), (2, 0.5, 50, 50), (3, 1.0, 50, 50), (4, 1.0, 50, 50)]
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from tocsin.lab.bench.draws import (
    Popularity,
    Workload,
    attribute_names,
    coded,
    distinct_rows,
    event_maps,
    laid_out,
    require,
    subscription_table,
)
from tocsin.model.columns import Index

__all__ = ["KINDS", "Drift", "Phase", "drift"]

KINDS = ("schema", "skew")


@dataclass(frozen=True)
class Drift:
    """Sizes of the experiment."""

    attributes: int = 32
    size: int = 5  # predicates per subscription
    domain: int = 35
    steady: int = 4  # phases before the change
    turning: int = 8  # phases in which the population is renewed once
    settled: int = 4
    skewed: int = 2  # skew: so many attributes are concerned, in every new subscription
    values: int = 2  # and so many of their values

    def check(self) -> None:
        require(2 * self.size <= self.attributes, "half of the attributes are enough for a subscription")
        require(self.skewed <= self.size, "a subscription has no fewer predicates than skewed attributes")
        require(1 <= self.values <= self.domain, "skewed values are some of the domain")
        require(self.turning >= 1, "the change takes at least one phase")


class Phase(NamedTuple):
    """What goes, what comes (ids ascend through all phases), and the events that follow."""

    number: int
    share: float  # of the population that has the new habit
    gone: Index  # ids
    workload: Workload


class _Habit(NamedTuple):
    first: int  # attributes first..last-1 are used
    last: int
    skew: bool


def drift(kind: str, n: int, events: int, seed: int = 0, setting: Drift | None = None) -> Iterator[Phase]:
    """The phases one after the other; phase 0 is the whole population."""
    setting = setting or Drift()
    setting.check()
    require(kind in KINDS, f"there is no drift of {kind!r}", hint=f"one of {', '.join(KINDS)}")
    rng = np.random.default_rng([seed, KINDS.index(kind)])
    half, all_ = setting.attributes // 2, setting.attributes
    old, new = (
        (_Habit(0, half, False), _Habit(half, all_, False))
        if kind == "schema"
        else (_Habit(0, all_, False), _Habit(0, all_, True))
    )
    first, next_id, oldest = setting.steady + 1, 0, 0
    for number in range(1 + setting.steady + setting.turning + setting.settled):
        habit = new if number >= first else old
        turned = min(max(number - first + 1, 0), setting.turning)
        renewed = n * (number % setting.turning + 1) // setting.turning
        renewed -= n * (number % setting.turning) // setting.turning  # adds up to n in a turn
        count = n if number == 0 else renewed
        gone = np.arange(oldest, oldest + (0 if number == 0 else count))
        oldest += len(gone)
        told = _events(rng, events, habit, setting)
        work = Workload(kind, _subscriptions(rng, count, next_id, habit, setting), told)
        next_id += count
        yield Phase(number, turned / setting.turning, gone, work)


def _subscriptions(rng: np.random.Generator, count: int, first_id: int, habit: _Habit, setting: Drift) -> Any:
    sizes = np.full(count, setting.size)
    popularity = Popularity(habit.last - habit.first - (setting.skewed if habit.skew else 0))
    attribute = distinct_rows(rng, sizes, popularity, setting.skewed if habit.skew else 0)
    value = _values(rng, attribute, habit, setting)
    table = subscription_table(
        laid_out(sizes),
        attribute=coded(attribute + np.int32(habit.first), attribute_names(setting.attributes)),
        op=coded(np.zeros(len(attribute), np.int8), ["="]),
        number=value,
    )
    return table.set_column(0, "id", pa.array(np.arange(first_id, first_id + count)))


def _events(rng: np.random.Generator, count: int, habit: _Habit, setting: Drift) -> Any:
    attribute = np.tile(np.arange(setting.attributes, dtype=np.int32), count)
    offsets = laid_out(np.full(count, setting.attributes))
    names = coded(attribute, attribute_names(setting.attributes))
    return pa.table({"attributes": event_maps(offsets, names, _values(rng, attribute, habit, setting))})


def _values(rng: np.random.Generator, attribute: Any, habit: _Habit, setting: Drift) -> Any:
    value = rng.integers(1, setting.domain + 1, len(attribute))
    if habit.skew:
        few = rng.integers(1, setting.values + 1, len(attribute))
        value = np.where(attribute < setting.skewed, few, value)
    return value.astype(np.float64)
