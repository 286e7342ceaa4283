"""The cost of a join plan on this machine: formulas with constants that are fitted once and stored.

    JoinFirst-E    log |S|, k_j, k_j sqrt |Q|, k_j sqrt k_s, hits
    JoinFirst-S    log |S|, |Q|, k_s, k_s log (1 + k_j)
    SelectFirst    log |S|, log |Q|, k_s, k_s log (1 + k_j)
    Hotspot        log |S|, g, g log (1 + k_j), p |Q_h|, min (1, 4 p) sum over groups sqrt |Q_g|, p k_h,
                   log |Q_c|, k_c, k_c log (1 + k_j)

Each term has a constant. k_j rows join, k_s queries are selected: k_h of Q_h, the queries in the g hot
groups, and k_c of Q_c, the scattered ones. A joining row lies in the other range of a query with chance l, at
least one does with p = 1 - exp(-l k_j), and there are l k_j k_s hits. Constants are microseconds, fitted by
least squares of the relative error over small workloads (`measure_plans`), none below 0.

`machine_costs` reads them from a file (`costs_file`: in TOCSIN_CACHE, or in the user's cache folder); if
there is none, it fits and writes them, which takes two seconds.

>>> form = PlanCosts().form("joinfirst-e", PlanSizes(rows=1000, queries=100))
>>> bool(form @ basis(RowEstimate(joining=2)) > form @ basis(RowEstimate(joining=1)) > 0)
True

T07, sections 4.5.1 and 4.6.7, has log |S|, the terms with sqrt and log |Q|, and those with log k_j. The
others are ours: without them a row that joins few others, or a group without matches, would cost nothing. The
thesis leaves output out, as the same for all plans; here it differs: p and hits stand for it. There each term
is measured and fitted by itself.
"""

from __future__ import annotations

import json
import math
import os
import platform
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.join.strategies.base import JoinStorage, JoinStrategy, Ranges
from tocsin.join.strategies.equality import EqualityStrategy, Hotspot, JoinFirstE, JoinFirstS, SelectFirst
from tocsin.model.columns import Index

__all__ = [
    *("PlanCosts", "PlanSizes", "RowEstimate", "basis", "costs_file", "fit_costs", "fitted", "machine_costs"),
    *("measure_plans", "terms"),
]

Numbers = NDArray[np.float64]
_FORMAT = 7
_QUERIES = {  # number: points, share of scattered queries, length of other ranges as a share of the domain
    2000: (10, 0.5, 0.01),
    10_000: (60, 0.02, 0.001),
    30_000: (20, 0.2, 0.0001),
}
_ROWS_PER_KEY, _SELECTED = (1, 30, 1000), (0.0005, 0.02, 0.4)
_DOMAIN, _ROWS, _EVENTS = 10**8, 20_000, 32
_SLOWEST = 2e-3  # seconds for an event that is not worth the wait


@dataclass(frozen=True)
class PlanSizes:
    """Sizes that the formulas depend on, the same for every row."""

    rows: int = 0
    queries: int = 0
    hot: Sequence[int] = ()  # sizes of the hot groups
    scattered: int = 0


class RowEstimate(NamedTuple):
    """Estimates for one row."""

    joining: float = 0.0
    selected: float = 0.0
    scattered: float = 0.0  # of the selected ones
    chance: float = 0.0  # that a joining row lies in a query's other range


_ONE, _JOINING, _STEPS, _ALL, _ALL_STEPS, _COLD, _COLD_STEPS, _HITS, _REACH, _MOST, _HOT, _OVERLAP = range(12)


def basis(row: RowEstimate) -> Numbers:
    """The quantities that costs are linear in; `plan_choice.cost_tables` computes the same by cell."""
    joining, selected, scattered, chance = row
    steps, reach = math.log1p(joining), -math.expm1(-chance * joining)
    alone = [selected, selected * steps, scattered, scattered * steps]
    ends = [chance * joining * selected, reach, min(1.0, 4 * reach), max(0.0, selected - scattered) * reach]
    return np.array([1.0, joining, steps, *alone, *ends, joining * math.sqrt(selected)])


def terms(plan: str, sizes: PlanSizes) -> Numbers:
    """A column for each constant, a row for each part of the basis."""
    search, queries = _log(sizes.rows), float(sizes.queries)
    if plan == "joinfirst-e":
        parts = [
            (_ONE, search),
            (_JOINING, 1.0),
            (_JOINING, math.sqrt(queries)),
            (_OVERLAP, 1.0),
            (_HITS, 1.0),
        ]
    elif plan == "joinfirst-s":
        parts = [(_ONE, search), (_ONE, queries), (_ALL, 1.0), (_ALL_STEPS, 1.0)]
    elif plan == "selectfirst":
        parts = [(_ONE, search), (_ONE, _log(queries)), (_ALL, 1.0), (_ALL_STEPS, 1.0)]
    else:
        groups, members = float(len(sizes.hot)), float(sum(sizes.hot))
        parts = [(_ONE, search), (_ONE, groups), (_STEPS, groups), (_REACH, members), (_HOT, 1.0)]
        parts += [(_MOST, sum(map(math.sqrt, sizes.hot)))]
        parts += [(_ONE, _log(sizes.scattered)), (_COLD, 1.0), (_COLD_STEPS, 1.0)]
    out = np.zeros((12, len(parts)))
    for column, (row, factor) in enumerate(parts):
        out[row, column] = factor
    return out


def _log(number: float) -> float:
    return math.log2(2 + number)


@dataclass(frozen=True)
class PlanCosts:
    """Constants by plan, in microseconds; the defaults were measured on one machine in 2021."""

    constants: Mapping[str, Sequence[float]] = field(
        default_factory=lambda: {
            "joinfirst-e": (0.1, 0.3, 0.001, 0.01, 0.02),
            "joinfirst-s": (0.1, 0.002, 0.005, 0.005),
            "selectfirst": (0.03, 0.05, 0.005, 0.005),
            "hotspot": (0.03, 0.1, 0.02, 0.001, 0.004, 0.01, 0.05, 0.005, 0.005),
        }
    )

    def form(self, plan: str, sizes: PlanSizes) -> Numbers:
        """The cost as a linear form of the basis."""
        return terms(plan, sizes) @ np.asarray(self.constants[plan], np.float64)


# -- fitting -----------------------------------------------------------------------------------------


def fitted(factors: Numbers, micros: Numbers, known: Numbers | float = 0.0) -> Numbers:
    """Constants, none below 0, of the least relative error: a row of factors for each measured time.

    `known` is the part of the times that other constants explain.

    >>> factors = np.array([[1.0, 1.0], [1.0, 10.0], [1.0, 100.0]])
    >>> fitted(factors, np.array([3.0, 12.0, 102.0])).round(6).tolist()
    [2.0, 1.0]
    """
    scaled = factors / micros[:, None]
    used = np.ones(factors.shape[1], np.bool_)
    out = np.zeros(factors.shape[1])
    while used.any():
        found = np.linalg.lstsq(scaled[:, used], 1.0 - known / micros, rcond=None)[0]
        if (found >= 0).all():
            out[used] = found
            break
        which = np.flatnonzero(used)
        used[which[np.argmin(found)]] = False
    return out


def fit_costs(measure: Callable[[], Mapping[str, tuple[Numbers, Numbers]]]) -> PlanCosts:
    """PlanCosts from factors and times of each plan. For scattered queries Hotspot does what SelectFirst
    does.
    """
    measured = dict(measure())
    factors, micros = measured.pop("hotspot")
    constants = {plan: fitted(*found) for plan, found in measured.items()}
    alone = constants["selectfirst"][1:]
    known = factors[:, -len(alone) :] @ alone
    own = fitted(factors[:, : -len(alone)], micros, known)
    constants["hotspot"] = np.concatenate([own, alone])
    return PlanCosts({plan: tuple(found.tolist()) for plan, found in constants.items()})


# -- measuring ---------------------------------------------------------------------------------------


def measure_plans(
    seed: int = 0, passes: int = 1, shapes: Mapping[int, tuple[int, float, float]] = _QUERIES
) -> Mapping[str, tuple[Numbers, Numbers]]:
    """By plan: a row of factors for each measurement, and microseconds per event.

    Numbers of queries (`shapes`), joining rows and selected queries vary on a grid; ranges of the other table
    lie around some points, and some are scattered, so that Hotspot does both of its parts. It takes about two
    seconds, and need not be exact: corrections follow measured costs later.

    Several passes over all workloads, best counts: passes are far apart, since others may use the machine.
    """
    rng = np.random.default_rng(seed)
    factors: dict[str, list[Numbers]] = defaultdict(list)
    work = [_workload(rng, queries, shape, share) for queries, shape in shapes.items() for share in _SELECTED]
    tables = [_table(rng, joining) for joining in _ROWS_PER_KEY]
    best: dict[str, Numbers] = {}
    for turn in range(passes):
        micros: dict[str, list[float]] = defaultdict(list)
        for storage, plans, ranges in work:
            for joining, (keys, values, events) in zip(_ROWS_PER_KEY, tables, strict=True):
                storage.load(1, keys, values)
                for plan in plans:
                    if not turn:
                        factors[plan.name].append(_factors(plan, plans[3], ranges, joining, events[1]))
                    micros[plan.name].append(_timed(plan, *events))
        best = {name: np.minimum(found, best.get(name, np.inf)) for name, found in micros.items()}
    return {name: (np.array(factors[name]), best[name]) for name in factors}


def _workload(
    rng: np.random.Generator, queries: int, shape: tuple[int, float, float], selected: float
) -> tuple[JoinStorage, list[EqualityStrategy], Ranges]:
    """Queries in all four plans."""
    ranges, storage = _ranges(rng, queries, shape, selected), JoinStorage()
    plans: list[EqualityStrategy] = [make(storage) for make in (JoinFirstE, JoinFirstS, SelectFirst, Hotspot)]
    for plan in plans:
        plan.add(np.arange(queries), ranges)
    return storage, plans, ranges


def _table(rng: np.random.Generator, joining: int) -> tuple[Index, Index, tuple[Index, Index]]:
    """Keys and values of a table with so many rows a key, and keys and values of events."""
    keys = rng.integers(0, _ROWS // joining, _ROWS)
    return keys, rng.integers(0, _DOMAIN, _ROWS), (keys[:_EVENTS], rng.integers(0, _DOMAIN, _EVENTS))


def _ranges(
    rng: np.random.Generator, queries: int, shape: tuple[int, float, float], selected: float
) -> Ranges:
    points, scattered, length = shape
    at_points = (rng.integers(0, points, queries) + 0.5) / points
    around = np.where(rng.random(queries) < scattered, rng.random(queries), at_points) * _DOMAIN
    left, right = rng.exponential(length * _DOMAIN / 2, (2, queries))
    middle = rng.random(queries) * _DOMAIN
    half = selected * _DOMAIN * rng.random(queries)
    ends = around - left, around + right, middle - half, middle + half
    return Ranges(*(part.astype(np.int64) for part in ends))


def _factors(
    plan: JoinStrategy, hotspot: JoinStrategy, ranges: Ranges, joining: int, values: Index
) -> Numbers:
    """The factors of a plan's constants, on average over the events."""
    assert isinstance(hotspot, Hotspot)
    index, queries = hotspot.hot.sets[0].index, len(ranges.low)
    holds = (ranges.own_low[:, None] <= values) & (values <= ranges.own_high[:, None])
    selected = float(holds.sum(axis=0).mean())
    hot = float(holds[index.slots()].sum(axis=0).mean())
    sizes = PlanSizes(_ROWS, queries, index.sizes().tolist(), queries - len(index))
    chance = float((ranges.high - ranges.low).mean()) / _DOMAIN
    return basis(RowEstimate(joining, selected, selected - hot, chance)) @ terms(plan.name, sizes)


def _timed(plan: JoinStrategy, keys: Index, values: Index) -> float:
    """The best of some runs, in microseconds per event."""
    arrays, order, out = plan.plan(0), plan.storage.other(0), plan.buffer()
    counts = np.zeros(len(keys), np.int64)
    plan.batch(arrays, order, keys[:1], values[:1], out, counts)
    best = np.inf
    for _ in range(3):
        began = time.perf_counter()
        plan.batch(arrays, order, keys, values, out, counts)
        best = min(best, (time.perf_counter() - began) / len(keys))
        if best > _SLOWEST:
            break
    return 1e6 * best


# -- storing -----------------------------------------------------------------------------------------


def costs_file(folder: Path | None = None) -> Path:
    """The file of the constants."""
    if folder is None and (given := os.environ.get("TOCSIN_CACHE")):
        folder = Path(given)
    if folder is None:
        home = Path.home()
        if sys.platform == "win32":
            folder = Path(os.environ.get("LOCALAPPDATA", home / "AppData" / "Local")) / "tocsin"
        elif sys.platform == "darwin":
            folder = home / "Library" / "Caches" / "tocsin"
        else:
            folder = Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache") / "tocsin"
    return folder / "join-costs.json"


def machine_costs(
    measure: Callable[[], Mapping[str, tuple[Numbers, Numbers]]], folder: Path | None = None
) -> PlanCosts:
    """The constants of this machine: from the file, or measured now and written there if possible."""
    path = costs_file(folder)
    if (known := _read(path)) is not None:
        return known
    costs = fit_costs(measure)
    text = json.dumps({**_machine(), **asdict(costs), "fitted": time.strftime("%Y-%m-%d")}, indent=2)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}")
        part.write_text(text + "\n", encoding="utf-8")
        part.replace(path)
    except OSError:
        pass
    return costs


def _machine() -> dict[str, Any]:
    return {"format": _FORMAT, "machine": platform.machine(), "node": platform.node()}


def _read(path: Path) -> PlanCosts | None:
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        known = {plan: tuple(map(float, stored["constants"][plan])) for plan in PlanCosts().constants}
    except (OSError, ValueError, KeyError, TypeError):
        return None
    right = all(
        len(known[plan]) == len(given) and all(math.isfinite(c) and c >= 0 for c in known[plan])
        for plan, given in PlanCosts().constants.items()
    )
    return PlanCosts(known) if right and all(stored.get(k) == v for k, v in _machine().items()) else None
