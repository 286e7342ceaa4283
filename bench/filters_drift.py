"""Subscriptions and events whose distribution changes: `drift` of `filters_show.py`.

`halves`: rare attributes become frequent and the reverse, at once, for `auto`. `schema` and `skew`: F01's
experiments (`drift`, in `tocsin.lab.bench.filter_workloads`), which replace the population part by part, for
`auto`; `schema` also for F01's dynamic clustering.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
from claims import Claim, Claims, best, in_turns, say, timed
from filters_answers import (
    matching,
    require_equal,
    right_by_id,
    rows_of,
)

from tocsin.lab.bench.brute_force import check_answers
from tocsin.lab.bench.draws import (
    Popularity,
    attribute_names,
    dictionary_array,
    event_maps,
    offsets_of,
    subscription_table,
)
from tocsin.lab.bench.filter_workloads import drift
from tocsin.lab.bench.match import (
    CHECKED,
    STREAM,
    build_filters,
    event_rows,
    match_totals,
)
from tocsin.match.base import MatchIndex
from tocsin.match.index import Auto
from tocsin.match.published.clustering import Dynamic

FOLLOWED: dict[str, Callable[[], MatchIndex]] = {"auto": Auto, "dynamic": Dynamic}
F01 = (("schema", "auto"), ("schema", "dynamic"), ("skew", "auto"))  # each followed through its drift


@dataclass(frozen=True)
class Halves:
    """Attributes in two halves: one frequent in events, the other rare.

    A subscription has ranges on `rare` attributes of the rare half and on `frequent` of the other, so it is
    cheap only if it is indexed under the rare ones. At the drift the halves swap roles: the best access path
    becomes the worst.
    """

    attributes: int = 200
    event_size: int = 20
    strange: int = 2  # attributes of an event from the rare half
    rare: int = 2
    frequent: int = 2
    domain: int = 1000

    def subscriptions(self, rng: np.random.Generator, n: int, rare_half: int) -> Any:
        half, size = self.attributes // 2, self.rare + self.frequent
        popularity = Popularity(half)
        mine = popularity.distinct(rng, n, self.rare) + np.int32(rare_half * half)
        others = popularity.distinct(rng, n, self.frequent) + np.int32((1 - rare_half) * half)
        return subscription_table(
            offsets_of(np.full(n, size)),
            attribute=dictionary_array(np.hstack([mine, others]).ravel(), attribute_names(self.attributes)),
            op=dictionary_array(rng.integers(0, 2, n * size, np.int8), ["<=", ">="]),
            number=rng.integers(1, self.domain + 1, n * size).astype(np.float64),
        )

    def events(self, rng: np.random.Generator, count: int, rare_half: int) -> Any:
        half, common = self.attributes // 2, self.event_size - self.strange
        popularity = Popularity(half)
        mine = popularity.distinct(rng, count, self.strange) + np.int32(rare_half * half)
        others = popularity.distinct(rng, count, common) + np.int32((1 - rare_half) * half)
        attribute = np.sort(np.hstack([mine, others]), axis=1).ravel()
        value = rng.integers(1, self.domain + 1, len(attribute)).astype(np.float64)
        offsets = offsets_of(np.full(count, self.event_size))
        names = dictionary_array(attribute, attribute_names(self.attributes))
        return pa.table({"attributes": event_maps(offsets, names, value)})


def show_drift(options: argparse.Namespace) -> Claims:
    """Compare an index after a drift with one that only knows the new distribution."""
    yield from show_halves(options)
    for kind, name in F01:
        yield from show_f01(kind, name, options)


def show_halves(options: argparse.Namespace) -> Claims:
    """All events and some of the subscriptions change at once."""
    halves = replace(Halves(), attributes=options.attributes)
    turned = replace(halves, rare=halves.rare - 1, frequent=halves.frequent + 1)
    rng = np.random.default_rng(options.seed)
    n, renewed = options.n, round(options.renewed * options.n)
    before = halves.subscriptions(rng, n, rare_half=1)
    added = turned.subscriptions(rng, renewed, rare_half=0)  # with more attributes that are frequent now
    now = pa.concat_tables([added, before.slice(renewed)])  # under the ids of the oldest
    old = rows_of(halves.events(rng, options.events, rare_half=1), options.batch)
    drawn = halves.events(rng, options.events, rare_half=0)
    new, first = rows_of(drawn, options.batch), drawn.slice(0, CHECKED)
    expected = right_by_id(now, first)

    say(f"the old distribution: {options.steady} batches")
    index = warmed_up(Auto, before, old)
    for at in range(options.steady):
        index.match(old[at % len(old)])
    index.wait()
    steady = best([timed(matching(index, old)) for _ in range(options.repeat)]).us(options.events)

    say("the drift")
    index.remove(np.arange(renewed))
    index.add(np.arange(renewed), build_filters(STREAM, added))
    check_answers("auto after the drift", index.match(event_rows(first)), expected)
    after = best([timed(matching(index, [rows])) for rows in islice(new, 3)]).us(len(new[0]))

    fresh = warmed_up(Auto, now, new)
    yield recovered(
        "drift", index, fresh, new, first, expected, {"before": steady, "right after": after}, options
    )


def show_f01(kind: str, name: str, options: argparse.Namespace) -> Claims:
    """F01's experiment: new subscriptions replace the oldest ones, phase by phase."""
    index, now, us = FOLLOWED[name](), None, []
    for phase in drift(kind, options.population, options.events, options.seed):
        say(f"{kind}, {name}: phase {phase.number}, {phase.share:.0%} are of the new kind")
        added, batches = phase.workload.subscriptions, rows_of(phase.workload.events, options.batch)
        added = added.set_column(0, "id", pa.array(added["id"].to_numpy() % options.population))
        now = added if now is None else pa.concat_tables([now.slice(len(phase.removed)), added])
        if len(phase.removed):
            index.remove(phase.removed % options.population)
        index.add(added["id"].to_numpy(), build_filters(STREAM, added))
        us.append(timed(matching(index, batches)) * 1e6 / options.events)
        first = phase.workload.events.slice(0, CHECKED)
        check_answers(
            f"{name} in phase {phase.number}", index.match(event_rows(first)), right_by_id(now, first)
        )
    fresh = warmed_up(FOLLOWED[name], now, batches)
    phases = {"phases, with adaptation": us}
    yield recovered(
        f"drift {kind} {name}", index, fresh, batches, first, right_by_id(now, first), phases, options
    )


def recovered(
    claim: str,
    index: MatchIndex,
    fresh: MatchIndex,
    batches: Sequence[Any],
    first: Any,
    expected: Any,
    before: dict[str, Any],
    options: argparse.Namespace,
) -> Claim:
    """Match with an index after a drift until it is nearly as fast as the fresh one."""
    check_answers("a fresh index", fresh.match(event_rows(first)), expected)
    aim = best([timed(matching(fresh, batches)) for _ in range(options.repeat)]).us(options.events)
    say(f"adapting to the new distribution: a fresh index takes {aim:,.1f} µs per event")
    fed = feed_until(index, batches, options.batches, aim / 0.95)
    check_answers("the index when it has adapted", index.match(event_rows(first)), expected)
    require_equal(
        "adapted and fresh", {"adapted": match_totals(index, batches), "fresh": match_totals(fresh, batches)}
    )
    runs = {"adapted": matching(index, batches), "fresh": matching(fresh, batches)}
    found = in_turns(runs, 2 * options.repeat)  # short runs, and the machine is not quiet
    us = {name: one.us(options.events) for name, one in found.items()}
    return Claim(claim, us["fresh"] / us["adapted"], "of a fresh index's events/s", at_least=0.9).show(
        options,
        subscriptions=index.stats()["subscriptions"],
        events=options.events,
        us_per_event={**before, **us},
        events_fed=fed * options.batch,
        fed_all=fed == options.batches,  # it did not reach the fresh one within --batches
        spread={name: one.spread for name, one in found.items()},
    )


def warmed_up(make: Callable[[], MatchIndex], subscriptions: Any, batches: Sequence[Any]) -> MatchIndex:
    """An index that saw such events before all its subscriptions were added at once."""
    index, few = make(), subscriptions.slice(0, 1 + subscriptions.num_rows // 100)
    index.add(few["id"].to_numpy(), build_filters(STREAM, few))
    matching(index, batches)()
    index.remove(few["id"].to_numpy())
    index.add(subscriptions["id"].to_numpy(), build_filters(STREAM, subscriptions))
    matching(index, batches)()
    if isinstance(index, Auto):
        index.wait()
    return index


def feed_until(index: MatchIndex, batches: Sequence[Any], most: int, us: float) -> int:
    """Match until half of the last ten batches took at most `us` per event; return how many it took."""
    good: list[bool] = []
    while len(good) < most:
        rows = batches[len(good) % len(batches)]
        good.append(1e6 * timed(matching(index, [rows])) <= us * len(rows))
        if sum(good[-10:]) >= 5:
            break
    return len(good)
