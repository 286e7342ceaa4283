"""What the papers claim, as functions of the tables that `papers.py` has measured.

A statement in words becomes a number with a bar: "at least an order of magnitude" is a ratio of 10. Numbers
that a paper prints are beside ours in the tables already ("..., published", `stated`); they hold within 5 %.
docs/papers.md has the reasons of those that do not.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Rows = list[dict[str, str]]
NEAR = 0.05


@dataclass(frozen=True)
class Verdict:
    """A line of the closing table."""

    paper: str
    figure: str
    published: str
    measured: str
    word: str  # holds, does not hold, not measured
    why: str = ""


@dataclass(frozen=True)
class Statement:
    """A sentence of a paper: the table, a number of it, and what the number has to reach."""

    paper: str
    figure: str
    published: str
    file: str
    value: Callable[[Rows], float | None]
    at_least: float
    why: str = ""  # if it does not hold

    def verdict(self, out: Path) -> Verdict:
        """Whether it holds for what was measured."""
        rows = read_all(out, self.file.split(","))
        value = self.value(rows) if rows else None
        if value is None:
            return Verdict(
                self.paper, self.figure, self.published, "", "not measured", "" if rows else "no table"
            )
        bar = f"{value:,.3g} (at least {self.at_least:g})"
        holds = value >= self.at_least
        word = "holds" if holds else "does not hold"
        return Verdict(self.paper, self.figure, self.published, bar, word, "" if holds else self.why)


def read(path: Path) -> Rows:
    """The rows of a table; none if it was not measured."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def read_all(out: Path, stems: Sequence[str]) -> Rows:
    """The rows of one table, or of several with the table's name before the method's."""
    tables = {stem: read(out / f"{stem}.csv") for stem in stems}
    if len(tables) == 1:
        return tables[stems[0]]
    complete = all(tables.values())
    return [{**row, "index": f"{stem} {row['index']}"} for stem in stems for row in tables[stem] if complete]


# -- numbers of tables -------------------------------------------------------------------------------


def by_index(rows: Rows, measure: str) -> dict[str, dict[str, float]]:
    """For each method the measure by the value of the parameter, the first column (or `x`)."""
    parameter = "x" if rows and "x" in rows[0] else next(iter(rows[0]))
    sums: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        sums.setdefault(row["index"], {}).setdefault(row[parameter], []).append(float(row[measure]))
    return {name: {x: sum(v) / len(v) for x, v in found.items()} for name, found in sums.items()}


def ratio(
    measure: str, other: str, own: str, of: Callable[..., float] = min
) -> Callable[[Rows], float | None]:
    """How many times the other method's measure is the own one's: the least over all points, or the last."""

    def value(rows: Rows) -> float | None:
        found = by_index(rows, measure)
        if other not in found or own not in found:
            return None
        both = [found[other][x] / max(found[own][x], 1e-12) for x in found[own] if x in found[other]]
        return of(both) if both else None

    return value


def last(values: Sequence[float]) -> float:
    """The value at the greatest point of the sweep."""
    return values[-1]


def steady(measure: str, own: str, against: str = "") -> Callable[[Rows], float | None]:
    """How little a measure grows over a sweep, 1: not at all; or how much less than another's."""

    def value(rows: Rows) -> float | None:
        found = {name: list(points.values()) for name, points in by_index(rows, measure).items()}
        if own not in found or (against and against not in found):
            return None
        growth = {name: points[-1] / max(points[0], 1e-12) for name, points in found.items()}
        return (growth[against] if against else 1) / max(growth[own], 1e-12)

    return value


def in_panel(panel: str, value: Callable[[Rows], float | None]) -> Callable[[Rows], float | None]:
    """The same for the rows of one panel."""
    return lambda rows: value(own) if (own := [r for r in rows if r["panel"].startswith(panel)]) else None


def worst_rival(measure: str, own: str, rivals: Sequence[str]) -> Callable[[Rows], float | None]:
    """The best rival's measure over the own one's: the least over all points."""

    def value(rows: Rows) -> float | None:
        found = [ratio(measure, rival, own)(rows) for rival in rivals]
        return None if any(one is None for one in found) else min(one for one in found if one is not None)

    return value


def histogram_error(rows: Rows) -> float | None:
    """Equal widths' error over that of the stabbing groups, 20 buckets; intervals that form 16 groups."""
    own = [row for row in rows if row["buckets"] == "20" and row["deviation"] == "150"]
    found = {row["index"]: float(row["mean relative error, %"]) for row in own}
    both = found.get("equal width"), found.get("joined groups")
    return None if both[0] is None or both[1] is None else both[0] / both[1]


# -- statements --------------------------------------------------------------------------------------

_US, _BYTES = "us_per_event", "megabytes"
_LANGUAGE = "all methods are compiled alike here; the paper's were separate programs"
_SCALE = "not at this share of the paper's size"
_LOST = "table 2 of the paper is lost; it holds on some workloads and not on others (docs/papers.md)"
_J08_RIVALS = ("enum-j", "enum-sj", "ref-j+")
STATEMENTS = [
    Statement(
        "O14",
        "8a",
        "k-index takes 7 times the memory of OpIndex",
        "o14-n",
        ratio(_BYTES, "kindex", "opindex", last),
        7,
        "k-index writes ranges out by elementary intervals here, not value by value",
    ),
    Statement(
        "O14",
        "8a",
        "BE-Tree takes about 2 times the memory",
        "o14-n",
        ratio(_BYTES, "betree", "opindex", last),
        2,
        "the same packed filters are counted for all methods",
    ),
    Statement(
        "O14",
        "9a",
        "inserted 1,000 times as fast as BE-Tree",
        "o14-n",
        ratio("build_s", "betree", "opindex", last),
        1000,
        _LANGUAGE,
    ),
    Statement(
        "O14",
        "9a",
        "inserted 10 times as fast as k-index",
        "o14-n",
        ratio("build_s", "kindex", "opindex", last),
        10,
        _LANGUAGE,
    ),
    Statement(
        "O14",
        "10a",
        "matching more than 10 times as fast as k-index",
        "o14-n",
        ratio(_US, "kindex", "opindex", last),
        10,
        _SCALE,
    ),
    Statement(
        "O14",
        "10a",
        "the best event matching time: BE-Tree",
        "o14-n",
        ratio(_US, "betree", "opindex", last),
        1,
        _SCALE,
    ),
    Statement(
        "O14", "10a", "scales better than OpIndex-BS", "o14-n", steady(_US, "opindex", "opindexbs"), 1, _SCALE
    ),
    Statement(
        "O14",
        "10b",
        "the best scalability in the subscription size: k-index",
        "o14-size",
        steady(_US, "opindex", "kindex"),
        1,
        _SCALE,
    ),
    Statement(
        "O14",
        "10e",
        "matching time is stable in the value space",
        "o14-domain",
        steady(_US, "opindex"),
        0.5,
        _SCALE,
    ),
    Statement(
        "O14",
        "10f",
        "the best performance at any skew: k-index",
        "o14-zipf",
        ratio(_US, "kindex", "opindex"),
        1,
        _SCALE,
    ),
    Statement(
        "O14",
        "11c",
        "tweets: two orders of magnitude faster than k-index",
        "o14-tweets=",
        ratio(_US, "kindex", "opindex", last),
        100,
        _SCALE,
    ),
    Statement(
        "O14",
        "11c",
        "tweets: 4 to 9 times as fast as BE-Tree",
        "o14-tweets=",
        ratio(_US, "betree", "opindex", last),
        4,
        _SCALE,
    ),
    Statement(
        "O14",
        "13a",
        "DNF scales better than CNF with N",
        "o14-dnf-n,o14-cnf-n",
        steady(_US, "o14-dnf-n opindex", "o14-cnf-n opindex"),
        1,
        _SCALE,
    ),
    Statement(
        "O14",
        "14a",
        "below 0.4 ms with prefixes alone",
        "o14-prefix-share",
        lambda rows: 400 / max(by_index(rows, _US)["opindex"].values()),
        1,
        _SCALE,
    ),
    Statement(
        "F01",
        "matching",
        "dynamic clustering is faster than counting",
        "f01-n",
        ratio(_US, "counting", "dynamic", last),
        1,
    ),
    Statement(
        "F01",
        "matching",
        "dynamic clustering is faster than propagation with prefetch",
        "f01-n",
        ratio(_US, "propagationprefetch", "dynamic", last),
        1,
    ),
    Statement(
        "F01",
        "memory",
        "propagation takes the least memory, counting little more",
        "f01-n",
        ratio(_BYTES, "counting", "propagation", last),
        1,
        "counting's sorted arrays take less here than the paper's trees",
    ),
    Statement(
        "F01",
        "memory",
        "dynamic clustering takes more, for its hash tables",
        "f01-n",
        ratio(_BYTES, "dynamic", "counting", last),
        1,
    ),
    Statement(
        "T07 4",
        "4.7i",
        "SSI above NAIVE by orders of magnitude at many queries",
        "t07-4.7i",
        ratio(_US, "naive", "ssi", last),
        10,
        _SCALE,
    ),
    Statement(
        "T07 4",
        "4.7i",
        "SSI above SelectFirst at many queries",
        "t07-4.7i",
        ratio(_US, "selectfirst", "ssi", last),
        1,
        _SCALE,
    ),
    Statement(
        "T07 4",
        "4.10i",
        "BJ-SSI above BJ-Q by orders of magnitude",
        "t07-4.10i",
        ratio(_US, "qouter", "ssi", last),
        10,
        _SCALE,
    ),
    Statement("T07 4", "4.10i", "BJ-SSI above BJ-MJ", "t07-4.10i", ratio(_US, "mj", "ssi", last), 1, _SCALE),
    Statement(
        "T07 4",
        "4.12",
        "equal widths err 4.7 times as much (14.9 % against 70 %)",
        "t07-histogram",
        histogram_error,
        4.7,
        "lengths as printed form 350 groups, not 18; these form 16: about 16 % against 56 %",
    ),
    Statement(
        "T07 5",
        "5.6",
        "S-UN takes 2.5 to 3.5 times as long as S-CN",
        "t07-5-5.6",
        ratio(_US, "s-un", "s-cn", last),
        2.5,
        "messages of S-UN are proportional to the number of subscriptions, which is scaled",
    ),
    Statement(
        "T07 5", "5.8", "S-CN performs best: S-UN", "t07-network-ignorable", ratio("bytes", "S-UN", "S-CN"), 1
    ),
    Statement(
        "T07 5",
        "5.9",
        "S-CN close to an order of magnitude better than CN",
        "t07-network-spikes",
        ratio("bytes", "CN", "S-CN"),
        8,
        "2.4 to 3.8 times: how rows move is not defined in the thesis",
    ),
    Statement(
        "K12",
        "5a",
        "Paint-Dense 1.5 orders of magnitude below Unicast",
        "k12-5a",
        ratio("bytes per event", "Unicast", "Paint-Dense", max),
        31.6,
        "the lead grows with the number of ranges, which is scaled",
    ),
    Statement(
        "K12",
        "5a",
        "Paint-Sparse 2 to 2.5 orders of magnitude below Unicast",
        "k12-5a",
        ratio("bytes per event", "Unicast", "Paint-Sparse", max),
        100,
        "the lead grows with the number of ranges, which is scaled",
    ),
    Statement(
        "K12",
        "7",
        "over brokers Paint-Sparse leads Unicast by an order of magnitude",
        "k12-network-uniform",
        in_panel("a", ratio("bytes", "Unicast", "Paint-Sparse", max)),
        10,
        "8 to 22 times at 2,000,000 ranges (docs/papers.md)",
    ),
    Statement(
        "J08",
        "6",
        "Ref-SJ-Clu+ an order of magnitude below the strawmen, on W1",
        "j08-subscriptions",
        in_panel("W1", worst_rival("traffic_bytes_per_event", "ref-sj-clu+", _J08_RIVALS)),
        10,
        _LOST,
    ),
    Statement(
        "J08",
        "6",
        "the same on W2",
        "j08-subscriptions",
        in_panel("W2", worst_rival("traffic_bytes_per_event", "ref-sj-clu+", _J08_RIVALS)),
        10,
        _LOST,
    ),
    Statement(
        "J08",
        "6",
        "Rel-Sel an order of magnitude above, on W1",
        "j08-subscriptions",
        in_panel("W1", ratio("traffic_bytes_per_event", "rel-sel", "ref-sj-clu+")),
        10,
        _LOST,
    ),
    Statement(
        "J08",
        "T3",
        "enumeration takes orders of magnitude more of the server's bandwidth",
        "j08-subscriptions",
        ratio("server_stress_bytes_per_event", "enum-sj", "ref-sj-clu+"),
        100,
        _LOST,
    ),
    Statement(
        "J08",
        "9",
        "Ref-J+ degrades with the join's output, Ref-SJ-Clu+ hardly",
        "j08-rjor",
        steady("traffic_bytes_per_event", "ref-sj-clu+", "ref-j+"),
        2.5,
        _LOST,
    ),
]

_WHY = {
    "K12 II": "uniform ranges hold a third of x, the paper's held less; redundancy is divided by table I",
    "K12 V": "the paper's quotes are not available: stocks are drawn",
    "K12 VI": "the paper's quotes are not available: stocks are drawn",
    "K12": "fewer ranges and events than published; one run is not precise to 5 %",
    "T07 5": "how objects move is not defined; messages of S-UN scale with subscriptions (docs/papers.md)",
    "T07 2-3": "see docs/papers.md",
    "J08": _LOST,
}


def verdicts(out: Path) -> list[Verdict]:
    """All claims, in the order of the papers."""
    found = [one.verdict(out) for one in STATEMENTS]
    found += _pairs(out) + _stated(out) + _of_logs(out)
    return sorted(found, key=lambda one: one.paper)


def _pairs(out: Path) -> list[Verdict]:
    """Numbers with a published one beside them: "..., published"; the last value of each column."""
    found = []
    for path in [*sorted(out.glob("k12-[IV]*.csv")), *sorted(out.glob("t07-5-*.csv"))]:
        rows, paper, figure = (
            read(path),
            "K12" if path.stem.startswith("k12") else "T07 5",
            path.stem.split("-")[-1],
        )
        if not rows or "index" not in rows[0] or len(rows[0]) != 3:
            continue
        for name, points in by_index(rows, list(rows[0])[-1]).items():
            other = by_index(rows, list(rows[0])[-1]).get(f"{name}, published")
            if other:
                x = list(points)[-1]
                found.append(_near(paper, figure, f"{name} at {x}", points[x], other.get(x)))
    return [one for one in found if one is not None]


def _stated(out: Path) -> list[Verdict]:
    """Numbers with a stated one in the same row."""
    found = []
    for path in sorted(out.glob("t07-[23].*.csv")):
        for row in read(path):
            if re.fullmatch(r"[\d.]+", row.get("stated") or ""):
                name = f"{row['workload']}, {row['policy']}"
                found.append(_near("T07 2-3", path.stem[4:], name, float(row["value"]), float(row["stated"])))
    return [one for one in found if one is not None]


def _near(paper: str, figure: str, name: str, value: float, published: float | None) -> Verdict | None:
    if published is None:
        return None
    holds = abs(value - published) <= NEAR * abs(published)
    why = "" if holds else _WHY.get(f"{paper} {figure}", _WHY[paper])
    return Verdict(
        paper, figure, f"{name}: {published:,g}", f"{value:,.4g}", "holds" if holds else "does not hold", why
    )


def _of_logs(out: Path) -> list[Verdict]:
    """Claims that scripts print as JSON."""
    found = []
    for path in sorted((out / "logs").glob("*.log")):
        paper = "J08" if path.stem.startswith("j08") else "T07 2-3"
        for claim in _claims(path):
            bar = (
                f"at least {claim['at_least']:g}" if "at_least" in claim else f"at most {claim['at_most']:g}"
            )
            word = "holds" if claim["met"] else "does not hold"
            why = "" if claim["met"] else _WHY[paper]
            figure = path.stem.removeprefix("t07-limits-").removeprefix("j08-")
            found.append(
                Verdict(paper, figure, f"{claim['claim']}: {bar}", f"{claim['value']:,.4g}", word, why)
            )
    return found


def _claims(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith('{"claim"'):
            yield json.loads(line)
