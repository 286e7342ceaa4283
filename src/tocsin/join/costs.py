"""What a join plan costs on this machine: formulas with constants that are fitted, once, and kept.

    JoinFirst-E    log |S|, k_j, k_j sqrt |Q|, k_j sqrt k_s, hits
    JoinFirst-S    log |S|, |Q|, k_s, k_s log (1 + k_j)
    SelectFirst    log |S|, log |Q|, k_s, k_s log (1 + k_j)
    Hotspot        log |S|, g, g log (1 + k_j), p |Q_h|, min (1, 4 p) sum over groups sqrt |Q_g|, p k_h,
                   log |Q_c|, k_c, k_c log (1 + k_j)

Each term has a constant. k_j rows join, k_s queries are selected, k_h of them among Q_h, those in the g hot
groups, k_c among the scattered Q_c. A joining row lies in the other range of a query with the chance l, some
do with p = 1 - exp(-l k_j), and there are l k_j k_s hits. Constants are microseconds, by least squares of the
relative error over small workloads, none below 0.

`machine_costs` takes them from a file (`costs_file`: in TOCSIN_CACHE, or where caches are kept) and fits
and writes them if it is not there, which takes two seconds.

>>> form = Costs().form("joinfirst-e", Sizes(rows=1000, queries=100))
>>> bool(form @ basis(Row(joining=2)) > form @ basis(Row(joining=1)) > 0)
True

T07, sections 4.5.1 and 4.6.7, has log |S|, the terms with sqrt and log |Q|, and those with log k_j. The
others are ours: without them a row that joins few others, or a group that is asked in vain, would cost
nothing. The thesis leaves output out, as the same for all plans; here it is not: p and hits stand for it.
There each term is measured and fitted by itself.
"""

from __future__ import annotations

import json
import math
import os
import platform
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Costs", "Row", "Sizes", "basis", "costs_file", "fit_costs", "fitted", "machine_costs", "terms"]

Numbers = NDArray[np.float64]
_FORMAT = 7


@dataclass(frozen=True)
class Sizes:
    """What the formulas depend on, whatever the row."""

    rows: int = 0
    queries: int = 0
    hot: Sequence[int] = ()  # sizes of the hot groups
    scattered: int = 0


class Row(NamedTuple):
    """What is estimated for a row."""

    joining: float = 0.0
    selected: float = 0.0
    scattered: float = 0.0  # of the selected ones
    chance: float = 0.0  # that a joining row lies in a query's other range


_ONE, _JOINING, _STEPS, _ALL, _ALL_STEPS, _COLD, _COLD_STEPS, _HITS, _REACH, _MOST, _HOT, _OVERLAP = range(12)


def basis(row: Row) -> Numbers:
    """What the costs are linear in; `_kernels/routing.py` computes the same."""
    joining, selected, scattered, chance = row
    steps, reach = math.log1p(joining), -math.expm1(-chance * joining)
    alone = [selected, selected * steps, scattered, scattered * steps]
    ends = [chance * joining * selected, reach, min(1.0, 4 * reach), max(0.0, selected - scattered) * reach]
    return np.array([1.0, joining, steps, *alone, *ends, joining * math.sqrt(selected)])


def terms(plan: str, sizes: Sizes) -> Numbers:
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
class Costs:
    """Constants by plan, in microseconds; the defaults are of a machine of 2021."""

    constants: Mapping[str, Sequence[float]] = field(
        default_factory=lambda: {
            "joinfirst-e": (0.1, 0.3, 0.001, 0.01, 0.02),
            "joinfirst-s": (0.1, 0.002, 0.005, 0.005),
            "selectfirst": (0.03, 0.05, 0.005, 0.005),
            "hotspot": (0.03, 0.1, 0.02, 0.001, 0.004, 0.01, 0.05, 0.005, 0.005),
        }
    )

    def form(self, plan: str, sizes: Sizes) -> Numbers:
        """The cost as a linear form of the basis."""
        return terms(plan, sizes) @ np.asarray(self.constants[plan], np.float64)


# -- fitting -----------------------------------------------------------------------------------------


def fitted(factors: Numbers, micros: Numbers, known: Numbers | float = 0.0) -> Numbers:
    """Constants, none below 0, of the least relative error: a row of factors for each measured time.

    `known` is a part of the times that has been explained already.

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


def fit_costs(measure: Callable[[], Mapping[str, tuple[Numbers, Numbers]]]) -> Costs:
    """Costs from factors and times of each plan. For scattered queries Hotspot does what SelectFirst does."""
    measured = dict(measure())
    factors, micros = measured.pop("hotspot")
    constants = {plan: fitted(*found) for plan, found in measured.items()}
    alone = constants["selectfirst"][1:]
    known = factors[:, -len(alone) :] @ alone
    own = fitted(factors[:, : -len(alone)], micros, known)
    constants["hotspot"] = np.concatenate([own, alone])
    return Costs({plan: tuple(found.tolist()) for plan, found in constants.items()})


# -- keeping -----------------------------------------------------------------------------------------


def costs_file(folder: Path | None = None) -> Path:
    """Where the constants are kept."""
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
) -> Costs:
    """The constants of this machine, from the file, or measured now and written there if that is possible."""
    path = costs_file(folder)
    if (stored := _read(path)) is not None:
        return stored
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


def _read(path: Path) -> Costs | None:
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        known = {plan: tuple(map(float, told["constants"][plan])) for plan in Costs().constants}
    except (OSError, ValueError, KeyError, TypeError):
        return None
    right = all(
        len(known[plan]) == len(given) and all(math.isfinite(c) and c >= 0 for c in known[plan])
        for plan, given in Costs().constants.items()
    )
    return Costs(known) if right and all(told.get(k) == v for k, v in _machine().items()) else None
