"""Workloads of filters over an open stream, drawn by a seed: what matching indexes are measured with.

    sparse      O14's defaults (7.1, Table 3): few of many attributes; = <= >= over a small domain
    dense       20 attributes in every event; 3 to 5 comparisons over 1..1000
    interval    50 attributes in every event; 5 closed intervals, each 30 % of the domain wide
    keywords    words.py: documents and the words people look for
    products    words.py: a shop's item specifics, mostly text
    prefix      words.py: O14's prefixes of words (Figure 14)

The options of a workload are a frozen dataclass; attributes are called a0, a1, ...

>>> work = make_workload("sparse", 1000, 10, seed=1)
>>> work.n, work.events.column_names
(1000, ['attributes'])
>>> sorted(work.subscriptions["predicates"][0].as_py()[0])
['attribute', 'number', 'op']
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from tocsin.errors import UsageError
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
from tocsin.lab.bench.words import Keywords, Prefixes, Products, keywords, prefixes, products

__all__ = [
    "DENSE",
    "WORKLOADS",
    "Comparisons",
    "Intervals",
    "Workload",
    "comparison_events",
    "comparison_subscriptions",
    "comparisons",
    "intervals",
    "make_workload",
]


@dataclass(frozen=True)
class Comparisons:
    """O14's Table 3, its defaults being `sparse`; `fixed` is F01's."""

    attributes: int = 20_000  # d: how many there are
    smallest: int = 1  # predicates per subscription
    largest: int = 4
    event_size: int = 20  # m: attributes per event
    equality: float = 0.4  # share of =, the rest half <= and half >=
    domain: int = 50  # values 1..domain
    zipf: float = 0.0  # skew of attributes and of values, in subscriptions and events
    fixed: int = 0  # so many predicates are = on the first attributes, in every subscription

    def check(self) -> None:
        _check_sizes(self.attributes, self.smallest, self.largest, self.event_size)
        require(0 <= self.equality <= 1, f"equality is a share from 0 to 1, not {self.equality}")
        require(self.domain >= 1, f"a domain has at least 1 value, not {self.domain}")
        require(0 <= self.fixed <= self.smallest, f"fixed is from 0 to smallest, not {self.fixed}")


DENSE = Comparisons(attributes=20, smallest=3, largest=5, event_size=20, domain=1000)


@dataclass(frozen=True)
class Intervals:
    """Closed intervals of one width."""

    attributes: int = 50
    smallest: int = 5
    largest: int = 5
    event_size: int = 50
    domain: int = 1_000_000  # values 0..domain
    width: float = 0.3  # share of the domain

    def check(self) -> None:
        _check_sizes(self.attributes, self.smallest, self.largest, self.event_size)
        require(0 <= self.width <= 1, f"width is a share from 0 to 1, not {self.width}")
        require(self.domain >= 1, f"a domain has at least 1 value, not {self.domain}")


def _check_sizes(attributes: int, smallest: int, largest: int, event_size: int) -> None:
    require(1 <= smallest <= largest, f"sizes go from smallest to largest, not from {smallest} to {largest}")
    require(
        max(largest, event_size) <= attributes,
        f"there are {attributes} attributes, and {max(largest, event_size)} different ones are asked for",
        hint="more --attributes, or a smaller --largest or --event-size",
    )
    require(event_size >= 0, "an event has no fewer than 0 attributes")


# -- comparisons -------------------------------------------------------------------------------------


def comparisons(n: int, events: int, seed: int, setting: Comparisons, name: str = "sparse") -> Workload:
    """Subscriptions of `attribute op value`; events of `attribute = value`."""
    setting.check()
    own, others = np.random.default_rng(seed).spawn(2)
    return Workload(
        name, comparison_subscriptions(own, n, setting), comparison_events(others, events, setting)
    )


def comparison_subscriptions(
    rng: np.random.Generator, n: int, setting: Comparisons, names: list[str] | None = None
) -> Any:
    """Drawn conjunctions. O(predicates)."""
    sizes = rng.integers(setting.smallest, setting.largest + 1, n, np.int32)
    popularity = Popularity.zipf(setting.attributes - setting.fixed, setting.zipf)
    attribute = distinct_rows(rng, sizes, popularity, setting.fixed)
    chance = rng.random(len(attribute), np.float32)
    share = setting.equality
    op = (chance >= share).astype(np.int8) + (chance >= share + (1 - share) / 2)
    op[attribute < setting.fixed] = 0
    value = Popularity.zipf(setting.domain, setting.zipf).draw(rng, len(attribute))
    return subscription_table(
        laid_out(sizes),
        attribute=coded(attribute, names or attribute_names(setting.attributes)),
        op=coded(op, ["=", "<=", ">="]),
        number=value + 1.0,
    )


def comparison_events(
    rng: np.random.Generator, count: int, setting: Comparisons, names: list[str] | None = None
) -> Any:
    """Drawn events of one size."""
    attribute = _event_attributes(rng, count, setting.attributes, setting.event_size, setting.zipf)
    value = Popularity.zipf(setting.domain, setting.zipf).draw(rng, len(attribute))
    names = names or attribute_names(setting.attributes)
    return _number_events(setting.event_size, count, attribute, value + 1.0, names)


def _event_attributes(rng: np.random.Generator, count: int, attributes: int, size: int, zipf: float) -> Any:
    if size == attributes:
        return np.tile(np.arange(attributes, dtype=np.int32), count)
    drawn = distinct_rows(rng, np.full(count, size), Popularity.zipf(attributes, zipf))
    return np.sort(drawn.reshape(count, size), axis=1).ravel()


def _number_events(size: int, count: int, attribute: Any, value: Any, names: list[str]) -> Any:
    offsets = laid_out(np.full(count, size))
    return pa.table({"attributes": event_maps(offsets, coded(attribute, names), value)})


# -- intervals ---------------------------------------------------------------------------------------


def intervals(n: int, events: int, seed: int, setting: Intervals, name: str = "interval") -> Workload:
    """Subscriptions of `attribute BETWEEN low AND low + width`; events of `attribute = value`."""
    setting.check()
    own, others = np.random.default_rng(seed).spawn(2)
    sizes = own.integers(setting.smallest, setting.largest + 1, n, np.int32)
    attribute = distinct_rows(own, sizes, Popularity(setting.attributes))
    width = round(setting.width * setting.domain)
    low = own.integers(0, setting.domain - width + 1, len(attribute)).astype(np.float64)
    names = attribute_names(setting.attributes)
    table = subscription_table(
        laid_out(sizes),
        attribute=coded(attribute, names),
        op=coded(np.zeros(len(attribute), np.int8), ["between"]),
        number=low,
        high=low + width,
    )
    where = _event_attributes(others, events, setting.attributes, setting.event_size, 0.0)
    value = others.integers(0, setting.domain + 1, len(where)).astype(np.float64)
    return Workload(name, table, _number_events(setting.event_size, events, where, value, names))


# -- all of them -------------------------------------------------------------------------------------


class _Kind(NamedTuple):
    """A workload: the defaults of its options, and how it is drawn (n, events, seed, options, name)."""

    setting: Any
    draw: Callable[..., Workload]


WORKLOADS: dict[str, _Kind] = {
    "sparse": _Kind(Comparisons(), comparisons),
    "dense": _Kind(DENSE, comparisons),
    "interval": _Kind(Intervals(), intervals),
    "keywords": _Kind(Keywords(), keywords),
    "products": _Kind(Products(), products),
    "prefix": _Kind(Prefixes(), prefixes),
}


def make_workload(name: str, n: int, events: int, seed: int = 0, **options: Any) -> Workload:
    """A workload by its name; options that are None stay at their defaults."""
    if name not in WORKLOADS:
        raise UsageError(f"there is no workload {name!r}", hint=f"one of {', '.join(WORKLOADS)}")
    kind = WORKLOADS[name]
    known = [field.name for field in fields(kind.setting)]
    given = {option: value for option, value in options.items() if value is not None}
    if strange := next((option for option in given if option not in known), None):
        spelled = ", ".join("--" + option.replace("_", "-") for option in known)
        raise UsageError(
            f"the workload {name} has no option --{strange.replace('_', '-')}", hint=f"it has {spelled}"
        )
    return kind.draw(n, events, seed, replace(kind.setting, **given), name)
