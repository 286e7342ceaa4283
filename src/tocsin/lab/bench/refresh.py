"""The view of T07, chapter 2, refreshed on demand: the cheapest supply cost in a region, over a join of four.

    partsupp (80,000) ─ supplier (1,000) ─ nation (25) ─ region (5)      MIN(supplycost), 'MIDDLE EAST'

Costs of parts and nations of suppliers change; somebody asks for the minimum at random times. `run_refresh`
makes the changes, asks, compares each answer with NumPy's, and reports what propagating took.

A change of a supplier moves 80 parts into or out of the region, so the two tables cost differently.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from tocsin.engine import Engine, Rooms
from tocsin.errors import TocsinError
from tocsin.join.room import JoinRoom
from tocsin.join.scan import JoinScan
from tocsin.limits.costs import Costs
from tocsin.limits.groups import RefreshGroups
from tocsin.limits.pacing import RefreshReport
from tocsin.limits.plans import best_plan
from tocsin.limits.policies import refresh_policy, rehearse
from tocsin.model.columns import Index
from tocsin.model.delta import Deltas
from tocsin.store.step import Step

__all__ = [
    "RefreshRun",
    "RefreshSetting",
    "measured_costs",
    "measured_setups",
    "pulls_of",
    "run_refresh",
    "simulated",
]

_DEFINITIONS = """
CREATE TABLE region (regionkey BIGINT, name STRING, PRIMARY KEY (regionkey));
CREATE TABLE nation (nationkey BIGINT, regionkey BIGINT, PRIMARY KEY (nationkey));
CREATE TABLE supplier (suppkey BIGINT, nationkey BIGINT, PRIMARY KEY (suppkey));
CREATE TABLE partsupp (id BIGINT, suppkey BIGINT, supplycost DOUBLE, PRIMARY KEY (id));
"""
_QUERY = """
SELECT MIN(ps.supplycost) AS cheapest FROM partsupp ps JOIN supplier s ON ps.suppkey = s.suppkey
JOIN nation n ON s.nationkey = n.nationkey JOIN region r ON n.regionkey = r.regionkey
WHERE r.name = 'MIDDLE EAST'
"""
_REGIONS = ["AFRICA", "AMERICA", "ASIA", "EUROPE", "MIDDLE EAST"]
_NATIONS = 25


class _SlowJoinRoom(JoinRoom):
    """A join room that takes `factor` times as long."""

    factor: ClassVar[float] = 1.0

    def deltas(self, step: Step) -> Deltas:
        start = time.thread_time()
        found = super().deltas(step)
        end = start + self.factor * (time.thread_time() - start)
        while self.factor > 1.0 and time.thread_time() < end:
            pass
        return found


@dataclass(frozen=True)
class RefreshSetting:
    """Sizes, what changes, how often somebody asks."""

    parts: int = 80_000
    suppliers: int = 1_000
    rate: int = 1  # changed parts for each changed supplier
    steps: int = 6_000
    pulls: int = 50
    scan: bool = False  # the join room that sorts in each step
    slow_from: float = 1.0  # the share of steps after which the join room takes three times as long
    cpu: bool = False  # processor time instead of elapsed time: other processes do not count
    seed: int = 0

    def rooms(self) -> Rooms:
        return Rooms(join=JoinScan if self.scan else _SlowJoinRoom)

    @property
    def timer(self) -> Callable[[], float]:
        return time.thread_time if self.cpu else time.perf_counter


@dataclass(frozen=True)
class RefreshRun:
    """What one policy did; times in milliseconds."""

    report: RefreshReport
    taken: tuple[float, ...]  # of refreshes
    predicted: tuple[float, ...]
    acts: int
    recovered: tuple[float, ...]  # refreshes later than 50 actions after the slowdown
    costs: Costs  # as known in the end

    @property
    def spent(self) -> float:
        return self.report.spent

    def ratio(self, share: float = 0.5) -> float:
        """A quantile of measured over predicted."""
        known = [t / p for t, p in zip(self.taken, self.predicted, strict=True) if p > 0.0]
        return float(np.quantile(known, share)) if known else float("nan")


class _View:
    """The engine, and the same tables as arrays."""

    def __init__(self, setting: RefreshSetting, options: str) -> None:
        rng = np.random.default_rng(setting.seed)
        self.setting, self.rng = setting, rng
        self.nation = rng.integers(0, _NATIONS, setting.suppliers)
        self.supplier = rng.integers(0, setting.suppliers, setting.parts)
        self.cost = rng.random(setting.parts) * 1000
        self.engine = Engine(rooms=setting.rooms())
        self.engine.execute(_DEFINITIONS)
        for name, table in self._tables().items():
            self.engine.apply(name, pa.table(table))
        groups = self.engine._roster.rooms["refresh"]
        assert isinstance(groups, RefreshGroups)
        groups.timer = setting.timer
        self.subscription = self.engine.subscribe(f"{_QUERY} WITH ({options})")

    def _tables(self) -> dict[str, dict[str, Any]]:
        return {
            "region": {"regionkey": np.arange(5), "name": _REGIONS},
            "nation": {"nationkey": np.arange(_NATIONS), "regionkey": np.arange(_NATIONS) % 5},
            "supplier": {"suppkey": np.arange(len(self.nation)), "nationkey": self.nation},
            "partsupp": {"id": np.arange(len(self.cost)), "suppkey": self.supplier, "supplycost": self.cost},
        }

    def change_parts(self, count: int) -> None:
        ids: Index = self.rng.choice(len(self.cost), count, replace=False)
        self.cost[ids] = self.rng.random(count) * 1000
        self._update("partsupp", {"id": ids, "supplycost": self.cost[ids]})

    def change_suppliers(self, count: int) -> None:
        ids: Index = self.rng.choice(len(self.nation), count, replace=False)
        self.nation[ids] = self.rng.integers(0, _NATIONS, count)
        self._update("supplier", {"suppkey": ids, "nationkey": self.nation[ids]})

    def _update(self, table: str, columns: dict[str, Any]) -> None:
        count = len(next(iter(columns.values())))
        if count == 1:
            self.engine.update(table, {name: values[0].item() for name, values in columns.items()})
        else:
            self.engine.apply(table, pa.table({**columns, "_op": ["update"] * count}))

    def cheapest(self) -> float:
        return float(self.cost[self.nation[self.supplier] % 5 == 4].min())

    def pull(self) -> tuple[float, float]:
        """Refresh and check the answer; the time it took, and the one predicted."""
        predicted = self.engine.limits(self.subscription).predicted
        start = self.setting.timer()
        self.engine.refresh(self.subscription)
        took = 1e3 * (self.setting.timer() - start)
        ((row,), expected) = self.engine.content(self.subscription, stale=True), self.cheapest()
        if row["cheapest"] != expected:
            raise TocsinError(f"the minimum is {expected}, and {row['cheapest']} was emitted")
        return took, predicted

    def warm_up(self) -> None:
        """Batches of several sizes, so that nothing is built or compiled while it is measured."""
        for count in (1, 1, 4, 16, 64, 256):
            for change in (self.change_parts, self.change_suppliers):
                change(min(count, self.setting.suppliers))
                self.pull()


def measured_setups(setting: RefreshSetting, count: int = 10, repeat: int = 15) -> dict[str, float]:
    """What propagating a small batch of each table takes, in milliseconds: the median.

    Of ten changes, since a single one often changes no row of the region, and then costs half.
    """
    costs = measured_costs(setting, (count,), repeat)
    return {table: costs[table, count] for table, _ in costs}


def measured_costs(
    setting: RefreshSetting, counts: Sequence[int], repeat: int = 15
) -> dict[tuple[str, int], float]:
    """By table and size of a batch: the median milliseconds of refreshing after so many changes.

    The other table has changed since, as in use: what a room derives from it is to be made anew.
    """
    view = _View(setting, "refresh = 'on demand'")
    view.warm_up()
    out = {}
    changes = view.change_parts, view.change_suppliers
    for table, change, other in (("partsupp", *changes), ("supplier", *changes[::-1])):
        for count in counts:
            times = []
            for _ in range(repeat):
                other(1)
                view.pull()
                change(count)
                times.append(view.pull()[0])
            out[table, count] = float(np.median(times))
    return out


def run_refresh(setting: RefreshSetting, policy: str, within: float | None) -> RefreshRun:
    """Changes and pulls under one policy; `within` in milliseconds."""
    limit = "" if within is None else f", within = '{round(1000 * within)} microseconds'"
    _SlowJoinRoom.factor = 1.0
    view = _View(replace(setting), f"refresh = 'on demand', policy = '{policy}'{limit}")
    view.warm_up()
    groups = view.engine._roster.rooms["refresh"]
    assert isinstance(groups, RefreshGroups)
    pacing = groups.pacing_of(0)
    pacing.reset()
    taken, predicted, recovered = [], [], []
    slow_at, slow_acts = int(setting.slow_from * setting.steps), 0
    pulls = pulls_of(setting)
    for step in range(setting.steps):
        if step == slow_at:
            _SlowJoinRoom.factor, slow_acts = 3.0, pacing.acts + len(pacing.taken)
        view.change_parts(setting.rate)
        view.change_suppliers(1)
        if step in pulls:
            took, known = view.pull()
            taken.append(took)
            predicted.append(known)
            if step >= slow_at and pacing.acts + len(pacing.taken) > slow_acts + 50:
                recovered.append(took)
    _SlowJoinRoom.factor = 1.0
    report = view.engine.limits(view.subscription)
    return RefreshRun(report, tuple(taken), tuple(predicted), pacing.acts, tuple(recovered), pacing.known)


_MERGED = 10  # steps of the workload are one of the best plan


def simulated(setting: RefreshSetting, run: RefreshRun, policy: str | None, within: float) -> float:
    """What propagating costs by the costs that a run measured, in milliseconds.

    Without a policy: by the best plan that knows all changes and pulls to come, ten steps at a time.
    """
    changing = {"partsupp": setting.rate, "supplier": 1}
    each = tuple(changing.get(table, 0) for table in run.report.waiting)
    pulls = pulls_of(setting)
    if policy is not None:
        arrivals = [(0,) * len(each), *[each] * setting.steps]
        at = frozenset(step + 1 for step in pulls)
        return rehearse(refresh_policy(policy), run.costs, arrivals, within, refresh_at=at).cost
    merged, cost = tuple(_MERGED * count for count in each), 0.0
    for first, last in pairwise([0, *sorted(pulls), setting.steps]):
        steps = max(1, round((last - first) / _MERGED))
        cost += best_plan(run.costs, [merged] * steps, within).cost
    return cost


def pulls_of(setting: RefreshSetting) -> frozenset[int]:
    """The steps after which somebody asks."""
    rng = np.random.default_rng(setting.seed + 1)
    return frozenset(rng.choice(setting.steps, setting.pulls, replace=False).tolist())
