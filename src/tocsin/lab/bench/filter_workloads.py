"""Workloads of filters over an open stream, drawn by a seed, to measure matching indexes with.

    sparse      O14's defaults (7.1, Table 3): few of many attributes; = <= >= over a small domain
    dense       20 attributes in every event; 3 to 5 comparisons over 1..1000
    interval    50 attributes in every event; 5 closed intervals, each 30 % of the domain wide
    keywords    documents and the words people look for (`text_workloads.py`, like the next two)
    products    a shop's item specifics, mostly text
    prefix      O14's prefixes of words (Figure 14)

Attributes are called a0, a1, ... At the end of this file: the same subscriptions in DNF and CNF (O14, Figure
13), and populations of subscriptions that drift (F01, section 6.2).

>>> work = make_workload("sparse", 1000, 10, seed=1)
>>> work.n, work.events.column_names
(1000, ['attributes'])
>>> sorted(work.subscriptions["predicates"][0].as_py()[0])
['attribute', 'number', 'op']
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tocsin.errors import UsageError
from tocsin.lab.bench.brute_force import brute_answers
from tocsin.lab.bench.draws import (
    FilterWorkload,
    Popularity,
    attribute_names,
    dictionary_array,
    distinct_rows,
    event_maps,
    offsets_of,
    require,
    subscription_table,
)
from tocsin.lab.bench.text_workloads import Keywords, Prefixes, Products, keywords, prefixes, products
from tocsin.match.base import pack, unpack
from tocsin.model.columns import Index
from tocsin.predicate.flat import OR_NEXT, FlatFilters

__all__ = [
    "DENSE",
    "DRIFTS",
    "WORKLOADS",
    "Comparisons",
    "Drift",
    "FilterWorkload",
    "Intervals",
    "Phase",
    "check_workload",
    "cnf_answers",
    "cnf_filters",
    "comparison_events",
    "comparison_subscriptions",
    "comparisons",
    "dnf_answers",
    "dnf_filters",
    "draw_groups",
    "drift",
    "intervals",
    "make_workload",
]


@dataclass(frozen=True)
class Comparisons:
    """Parameters of O14's Table 3; the defaults are `sparse`. `fixed` is F01's."""

    attributes: int = 20_000  # d: number of attributes
    smallest: int = 1  # predicates per subscription
    largest: int = 4
    event_size: int = 20  # m: attributes per event
    equality: float = 0.4  # share of =; the rest is half <=, half >=
    domain: int = 50  # values 1..domain
    zipf: float = 0.0  # skew of attributes and of values, in subscriptions and events
    fixed: int = 0  # every subscription has so many = predicates, on the first attributes

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
        f"{max(largest, event_size)} different attributes are needed, and there are {attributes}",
        hint="more --attributes, or a smaller --largest or --event-size",
    )
    require(event_size >= 0, "an event has no fewer than 0 attributes")


# -- comparisons -------------------------------------------------------------------------------------


def comparisons(n: int, events: int, seed: int, setting: Comparisons, name: str = "sparse") -> FilterWorkload:
    """Subscriptions of `attribute op value`; events of `attribute = value`."""
    setting.check()
    own, others = np.random.default_rng(seed).spawn(2)
    return FilterWorkload(
        name, comparison_subscriptions(own, n, setting), comparison_events(others, events, setting)
    )


def comparison_subscriptions(
    rng: np.random.Generator, n: int, setting: Comparisons, names: list[str] | None = None
) -> Any:
    """Draw conjunctions. O(predicates)."""
    sizes = rng.integers(setting.smallest, setting.largest + 1, n, np.int32)
    popularity = Popularity.zipf(setting.attributes - setting.fixed, setting.zipf)
    attribute = distinct_rows(rng, sizes, popularity, setting.fixed)
    chance = rng.random(len(attribute), np.float32)
    share = setting.equality
    op = (chance >= share).astype(np.int8) + (chance >= share + (1 - share) / 2)
    op[attribute < setting.fixed] = 0
    value = Popularity.zipf(setting.domain, setting.zipf).draw(rng, len(attribute))
    return subscription_table(
        offsets_of(sizes),
        attribute=dictionary_array(attribute, names or attribute_names(setting.attributes)),
        op=dictionary_array(op, ["=", "<=", ">="]),
        number=value + 1.0,
    )


def comparison_events(
    rng: np.random.Generator, count: int, setting: Comparisons, names: list[str] | None = None
) -> Any:
    """Draw events of one size."""
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
    offsets = offsets_of(np.full(count, size))
    return pa.table({"attributes": event_maps(offsets, dictionary_array(attribute, names), value)})


# -- intervals ---------------------------------------------------------------------------------------


def intervals(n: int, events: int, seed: int, setting: Intervals, name: str = "interval") -> FilterWorkload:
    """Subscriptions of `attribute BETWEEN low AND low + width`; events of `attribute = value`."""
    setting.check()
    own, others = np.random.default_rng(seed).spawn(2)
    sizes = own.integers(setting.smallest, setting.largest + 1, n, np.int32)
    attribute = distinct_rows(own, sizes, Popularity(setting.attributes))
    width = round(setting.width * setting.domain)
    low = own.integers(0, setting.domain - width + 1, len(attribute)).astype(np.float64)
    names = attribute_names(setting.attributes)
    table = subscription_table(
        offsets_of(sizes),
        attribute=dictionary_array(attribute, names),
        op=dictionary_array(np.zeros(len(attribute), np.int8), ["between"]),
        number=low,
        high=low + width,
    )
    where = _event_attributes(others, events, setting.attributes, setting.event_size, 0.0)
    value = others.integers(0, setting.domain + 1, len(where)).astype(np.float64)
    return FilterWorkload(name, table, _number_events(setting.event_size, events, where, value, names))


# -- all of them -------------------------------------------------------------------------------------


class _WorkloadDefinition(NamedTuple):
    """The defaults of a workload's options, and a function that draws it (n, events, seed, options, name)."""

    setting: Any
    draw: Callable[..., FilterWorkload]


WORKLOADS: dict[str, _WorkloadDefinition] = {
    "sparse": _WorkloadDefinition(Comparisons(), comparisons),
    "dense": _WorkloadDefinition(DENSE, comparisons),
    "interval": _WorkloadDefinition(Intervals(), intervals),
    "keywords": _WorkloadDefinition(Keywords(), keywords),
    "products": _WorkloadDefinition(Products(), products),
    "prefix": _WorkloadDefinition(Prefixes(), prefixes),
}


def check_workload(name: str, **options: Any) -> None:
    """Raise unless there is a workload with this name and these options; None is no option."""
    if name not in WORKLOADS:
        raise UsageError(f"there is no workload {name!r}", hint=f"one of {', '.join(WORKLOADS)}")
    known = [field.name for field in fields(WORKLOADS[name].setting)]
    given = (option for option, value in options.items() if value is not None)
    if strange := next((option for option in given if option not in known), None):
        spelled = ", ".join("--" + option.replace("_", "-") for option in known)
        raise UsageError(
            f"the workload {name} has no option --{strange.replace('_', '-')}", hint=f"it has {spelled}"
        )


def make_workload(name: str, n: int, events: int, seed: int = 0, **options: Any) -> FilterWorkload:
    """A workload by its name; options that are None stay at their defaults."""
    check_workload(name, **options)
    kind = WORKLOADS[name]
    given = {option: value for option, value in options.items() if value is not None}
    return kind.draw(n, events, seed, replace(kind.setting, **given), name)


# -- DNF and CNF -------------------------------------------------------------------------------------


def draw_groups(rows: int, most: int, seed: int) -> Index:
    """Sizes of groups, from 1 to `most`, that add up to the rows. Each group becomes one subscription:

        rows        A = 1 AND B <= 4      C >= 7
        dnf         (A = 1 AND B <= 4)  OR  C >= 7          each row a conjunction
        cnf         (A = 1 OR  B <= 4)  AND C >= 7          each row a clause

    >>> groups = draw_groups(100, most=4, seed=0)
    >>> int(groups.sum()), bool((groups <= 4).all())
    (100, True)
    """
    sizes = np.random.default_rng(seed).integers(1, most + 1, rows)
    count = int(np.searchsorted(np.cumsum(sizes), rows)) + 1
    sizes = sizes[:count]
    sizes[-1] -= int(sizes.sum()) - rows
    return sizes


def dnf_filters(rows: FlatFilters, groups: Index) -> FlatFilters:
    """One filter per group, a conjunction per row. (Arrow columns of predicates cannot express it.)"""
    _check_plain(rows)
    return replace(rows, count=len(groups), owner=_group_of(groups).astype(np.int32))


def cnf_filters(rows: FlatFilters, groups: Index) -> FlatFilters:
    """One filter per group, a clause per row."""
    _check_plain(rows)
    flags = np.full(len(rows.dim), OR_NEXT, np.uint8)
    flags[rows.start[1:] - 1] = 0  # the last alternative of a clause
    owner = np.arange(len(groups), dtype=np.int32)
    return replace(rows, count=len(groups), owner=owner, start=rows.start[offsets_of(groups)], flags=flags)


def dnf_answers(subscriptions: Any, groups: Index, events: Any) -> Index:
    """By brute force: (group, event), packed and ascending."""
    row, event = unpack(brute_answers(subscriptions, events))
    return np.unique(pack(_group_of(groups)[row], event))


def cnf_answers(subscriptions: Any, groups: Index, events: Any) -> Index:
    """By brute force over single predicates: (group, event), packed and ascending."""
    lists = subscriptions["predicates"].combine_chunks()
    flat = pc.list_flatten(lists)
    single = pa.ListArray.from_arrays(pa.array(np.arange(len(flat) + 1), pa.int32()), flat)
    predicate, event = unpack(brute_answers(pa.table({"predicates": single}), events))
    row = pc.list_parent_indices(lists).to_numpy(zero_copy_only=False)[predicate]
    row, event = unpack(np.unique(pack(row, event)))  # each satisfied clause once
    found, clauses = np.unique(pack(_group_of(groups)[row], event), return_counts=True)
    return np.asarray(found[clauses == groups[found >> 32]])


def _group_of(groups: Index) -> Index:
    return np.repeat(np.arange(len(groups)), groups)


def _check_plain(rows: FlatFilters) -> None:
    assert np.array_equal(rows.owner, np.arange(rows.count)), "a row is one conjunction"
    assert not rows.flags.any() and rows.sizes.all(), "of one test or more, each plain"


# -- drift -------------------------------------------------------------------------------------------

DRIFTS = ("schema", "skew")


@dataclass(frozen=True)
class Drift:
    """Parameters of `drift`, as far as F01 gives them."""

    attributes: int = 32
    size: int = 5  # predicates per subscription
    domain: int = 35
    steady: int = 4  # phases before the change
    turning: int = 8  # phases that replace the whole population
    settled: int = 4
    skewed: int = 2  # skew: number of skewed attributes, in every new subscription
    values: int = 2  # values that a skewed attribute takes

    def check(self) -> None:
        require(2 * self.size <= self.attributes, "half of the attributes are enough for a subscription")
        require(self.skewed <= self.size, "a subscription has no fewer predicates than skewed attributes")
        require(1 <= self.values <= self.domain, "skewed values are some of the domain")
        require(self.turning >= 1, "the change takes at least one phase")


class Phase(NamedTuple):
    """Removed ids, then new subscriptions (ids ascend through all phases), then events."""

    number: int
    share: float  # of the population that has the new interests
    removed: Index  # ids
    workload: FilterWorkload


class _Interests(NamedTuple):
    first: int  # attributes first..last-1 are used
    last: int
    skew: bool


def drift(kind: str, n: int, events: int, seed: int = 0, setting: Drift | None = None) -> Iterator[Phase]:
    """Phases of a population of `n` equality filters whose interests change; phase 0 adds all of it.

    Each later phase replaces the oldest subscriptions by as many new ones, so that after `turning` phases of
    change all are new:

        steady    old interests     replaced by subscriptions of the same kind
        turning   new interests     the population is mixed
        settled   new interests     all of it is new

        schema    subscriptions move from the first half of the attributes to the second; events always have
                  all attributes (people's interests change)
        skew      a few values of some attributes become frequent, in subscriptions and events (an election)

    >>> phases = list(drift("schema", 100, 10, setting=Drift(steady=1, turning=2, settled=1)))
    >>> [(p.number, p.share, len(p.removed), p.workload.n) for p in phases]
    [(0, 0.0, 0, 100), (1, 0.0, 50, 50), (2, 0.5, 50, 50), (3, 1.0, 50, 50), (4, 1.0, 50, 50)]
    """
    setting = setting or Drift()
    setting.check()
    require(kind in DRIFTS, f"there is no drift of {kind!r}", hint=f"one of {', '.join(DRIFTS)}")
    rng = np.random.default_rng([seed, DRIFTS.index(kind)])
    half, all_ = setting.attributes // 2, setting.attributes
    old, new = (
        (_Interests(0, half, False), _Interests(half, all_, False))
        if kind == "schema"
        else (_Interests(0, all_, False), _Interests(0, all_, True))
    )
    first, next_id, oldest = setting.steady + 1, 0, 0
    for number in range(1 + setting.steady + setting.turning + setting.settled):
        interests = new if number >= first else old
        turned = min(max(number - first + 1, 0), setting.turning)
        renewed = n * (number % setting.turning + 1) // setting.turning
        renewed -= n * (number % setting.turning) // setting.turning  # adds up to n in a turn
        count = n if number == 0 else renewed
        removed = np.arange(oldest, oldest + (0 if number == 0 else count))
        oldest += len(removed)
        drawn = _events(rng, events, interests, setting)
        work = FilterWorkload(kind, _subscriptions(rng, count, next_id, interests, setting), drawn)
        next_id += count
        yield Phase(number, turned / setting.turning, removed, work)


def _subscriptions(
    rng: np.random.Generator, count: int, first_id: int, interests: _Interests, setting: Drift
) -> Any:
    sizes = np.full(count, setting.size)
    popularity = Popularity(interests.last - interests.first - (setting.skewed if interests.skew else 0))
    attribute = distinct_rows(rng, sizes, popularity, setting.skewed if interests.skew else 0)
    value = _values(rng, attribute, interests, setting)
    table = subscription_table(
        offsets_of(sizes),
        attribute=dictionary_array(
            attribute + np.int32(interests.first), attribute_names(setting.attributes)
        ),
        op=dictionary_array(np.zeros(len(attribute), np.int8), ["="]),
        number=value,
    )
    return table.set_column(0, "id", pa.array(np.arange(first_id, first_id + count)))


def _events(rng: np.random.Generator, count: int, interests: _Interests, setting: Drift) -> Any:
    attribute = np.tile(np.arange(setting.attributes, dtype=np.int32), count)
    offsets = offsets_of(np.full(count, setting.attributes))
    names = dictionary_array(attribute, attribute_names(setting.attributes))
    return pa.table({"attributes": event_maps(offsets, names, _values(rng, attribute, interests, setting))})


def _values(rng: np.random.Generator, attribute: Any, interests: _Interests, setting: Drift) -> Any:
    value = rng.integers(1, setting.domain + 1, len(attribute))
    if interests.skew:
        few = rng.integers(1, setting.values + 1, len(attribute))
        value = np.where(attribute < setting.skewed, few, value)
    return value.astype(np.float64)
