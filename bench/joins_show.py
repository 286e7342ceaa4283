"""Tocsin's claims about joins in the engine, measured: one subcommand per claim.

    engine    100,000 join subscriptions, `engine.apply` of 10,000 changes, against the scan room
    star      10,000 subscriptions over a fact and three dimensions, changes in all four tables

    python bench/joins_show.py engine
    python bench/joins_show.py star --subscriptions 2000 --no-bar

Before a time is printed, the deltas of a sample of subscriptions are compared with the scan room's, and their
sum with the difference of two answers of the reference. The scan would take minutes for all subscriptions: it
is measured with the sample and with a tenth of it, and extrapolated linearly (`scan_s`). The first two
batches compile and build; they are printed but not counted. Standard output has one JSON object per claim,
standard error a readable line; the exit code is 1 if an answer is wrong or a claim does not hold.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from claims import Claim, Claims, parser_of, say, show_claims

from tocsin import Engine
from tocsin.engine import Rooms
from tocsin.errors import TocsinError
from tocsin.join.room import JoinRoom
from tocsin.join.scan import JoinScan
from tocsin.language.algebra import Query
from tocsin.model.delta import Deltas
from tocsin.reference import evaluate, row_key

Database = dict[str, list[dict[str, Any]]]
Bag = Counter[Any]


# -- a workload --------------------------------------------------------------------------------------


class JoinedTables(NamedTuple):
    """Tables with their rows, subscriptions as rows of a template, and batches of changes in order."""

    definitions: tuple[str, ...]
    rows: Mapping[str, Any]
    template: str
    ranges: Any  # `id`, and for a column x of a table `x_low` and `x_high`
    selected: Mapping[str, str]  # by table: the column with a range
    batches: list[tuple[str, Any]]

    def engine(self, room: Callable[[], Any], ranges: Any) -> Engine:
        engine = Engine(rooms=Rooms(join=room))
        for definition in self.definitions:
            engine.execute(definition)
        for name, rows in self.rows.items():
            engine.apply(name, rows)
        engine.subscribe_many(self.template, ranges)
        return engine


def changed(rng: np.random.Generator, count: int, rows: Any, fresh: Any) -> Any:
    """Changes in random order: half inserts, a quarter updates, a quarter deletes."""
    old = rng.choice(rows["id"].to_numpy(), count - count // 2, replace=False)
    given = fresh.slice(0, len(old)).set_column(0, "id", pa.array(old))
    ops = np.repeat(["insert", "update", "delete"], [count // 2, count // 4, len(old) - count // 4])
    both = pa.concat_tables([fresh.slice(len(old), count // 2), given])
    return both.append_column("_op", pa.array(ops)).take(pa.array(rng.permutation(count)))


def joins(options: argparse.Namespace) -> JoinedTables:
    """Stocks and reviews by symbol; the ranges of `rating` lie around 30 values."""
    rng = np.random.default_rng(options.seed)
    symbols, n = max(1, options.rows // 20), options.subscriptions

    def drawn(first: int, count: int, attribute: str) -> Any:
        names = pa.array(rng.integers(0, symbols, count)).cast(pa.string())
        return pa.table(
            {"id": np.arange(first, first + count), "symbol": names, attribute: rng.normal(500, 100, count)}
        )

    rows = {"stocks": drawn(0, options.rows, "per"), "reviews": drawn(0, options.rows, "rating")}
    per, width = rng.normal(500, 100, n), np.abs(rng.normal(3, 1, n))
    rating, reach = rng.choice(np.linspace(100, 900, 30), n) + rng.normal(0, 1, n), 1 + rng.exponential(1, n)
    ends = {"per_low": per - width, "per_high": per + width}
    ends |= {"rating_low": rating - reach, "rating_high": rating + reach}
    batches = []
    for turn in range(options.repeat):
        for name, attribute in (("stocks", "per"), ("reviews", "rating")):
            fresh = drawn(10 * options.rows + 2 * turn * options.changes, options.changes + 1, attribute)
            batches.append((name, changed(rng, options.changes, _alive(rows, name, batches), fresh)))
    return JoinedTables(
        tuple(
            f"CREATE TABLE {name} (id BIGINT, symbol STRING, {attribute} DOUBLE, PRIMARY KEY (id))"
            for name, attribute in (("stocks", "per"), ("reviews", "rating"))
        ),
        rows,
        "SELECT * FROM stocks JOIN reviews USING (symbol) "
        "WHERE per BETWEEN :per_low AND :per_high AND rating BETWEEN :rating_low AND :rating_high",
        pa.table({"id": np.arange(1, n + 1), **ends}),
        {"stocks": "per", "reviews": "rating"},
        batches,
    )


def star(options: argparse.Namespace) -> JoinedTables:
    """Sales, each with an item, a shop and a day; a tenth of the dimension rows arrive later."""
    rng = np.random.default_rng(options.seed)
    n, sizes = options.subscriptions, {"items": 2000, "shops": 500, "days": 365}
    values = {"sales": "amount", "items": "price", "shops": "area", "days": "heat"}

    def dimension(name: str, ids: Any) -> Any:
        return pa.table({"id": ids, values[name]: rng.integers(0, 1000, len(ids))})

    def sales(first: int, count: int) -> Any:
        keys = {name[:-1]: rng.integers(0, size, count) for name, size in sizes.items()}
        return pa.table(
            {"id": np.arange(first, first + count), **keys, "amount": rng.integers(0, 1000, count)}
        )

    rows = {"sales": sales(0, options.rows)}
    rows |= {name: dimension(name, np.arange(size * 9 // 10)) for name, size in sizes.items()}
    ends = {}
    for column, width in {"amount": 60, "price": 300, "area": 300, "heat": 300}.items():
        low = rng.integers(0, 1000, n)
        ends |= {f"{column}_low": low, f"{column}_high": low + rng.integers(0, width, n)}
    batches: list[tuple[str, Any]] = []
    for turn in range(options.repeat):
        fresh = sales(10 * options.rows + 2 * turn * options.changes, options.changes + 1)
        batches.append(("sales", changed(rng, options.changes, _alive(rows, "sales", batches), fresh)))
        for name, size in sizes.items():
            added = np.arange(size * 9 // 10, size)[turn :: options.repeat]
            batches.append((name, dimension(name, added)))
    columns = "id BIGINT, item BIGINT, shop BIGINT, day BIGINT, amount BIGINT"
    definitions = [f"CREATE TABLE sales ({columns}, PRIMARY KEY (id))"]
    definitions += [
        f"CREATE TABLE {name} (id BIGINT, {values[name]} BIGINT, PRIMARY KEY (id))" for name in sizes
    ]
    where = " AND ".join(f"{column} BETWEEN :{column}_low AND :{column}_high" for column in values.values())
    return JoinedTables(
        tuple(definitions),
        rows,
        "SELECT sales.id, amount, price, area, heat FROM sales JOIN items ON item = items.id "
        f"JOIN shops ON shop = shops.id JOIN days ON day = days.id WHERE {where}",
        pa.table({"id": np.arange(1, n + 1), **ends}),
        values,
        batches,
    )


def _alive(rows: Mapping[str, Any], name: str, batches: list[tuple[str, Any]]) -> Any:
    """Initial rows that no batch has deleted."""
    alive = rows[name]
    for which, batch in batches:
        if which == name:
            deleted = batch["id"].filter(pc.equal(batch["_op"], "delete"))
            alive = alive.filter(pc.invert(pc.is_in(alive["id"], value_set=deleted)))
    return alive


# -- answers -----------------------------------------------------------------------------------------


def bag_of(deltas: Deltas, ids: set[int]) -> dict[int, Bag]:
    """The sums of the deltas of some subscriptions, by row."""
    mine = deltas.take(np.isin(deltas.subscription, np.array(sorted(ids))))
    out: dict[int, Bag] = {id: Counter() for id in ids}
    for delta in mine:
        out[delta.subscription][row_key(delta.row)] += delta.sign
    return {id: Counter({key: n for key, n in bag.items() if n}) for id, bag in out.items()}


def answer(work: JoinedTables, query: Query, ends: Mapping[str, float], engine: Engine) -> Bag:
    """The reference's answer: rows in the ranges, evaluated in parts that share keys."""
    selected_rows: Database = {}
    for name, column in work.selected.items():
        rows = engine.rows(name)
        inside = pc.and_(
            pc.greater_equal(rows[column], ends[f"{column}_low"]),
            pc.less_equal(rows[column], ends[f"{column}_high"]),
        )
        selected_rows[name] = rows.filter(inside).to_pylist()
    keys = dict.fromkeys(selected_rows, ("id",))
    out: Bag = Counter()
    for part in parts_of(selected_rows):
        out.update(row_key(row) for row in evaluate(query, part, keys))
    return out


def parts_of(selected_rows: Database) -> Iterator[Database]:
    """Small databases, such that no row of one joins a row of another."""
    first, *others = selected_rows
    if first == "stocks":
        by: dict[str, Database] = {}
        for name, rows in selected_rows.items():
            for row in rows:
                by.setdefault(row["symbol"], {n: [] for n in selected_rows})[name].append(row)
        yield from (part for part in by.values() if all(part.values()))
        return
    known = {name: {row["id"]: row for row in selected_rows[name]} for name in others}
    for sale in selected_rows[first]:
        found = {name: known[name].get(sale[name[:-1]]) for name in others}
        if all(found.values()):
            yield {first: [sale], **{name: [row] for name, row in found.items() if row}}


def compare(
    work: JoinedTables, engines: tuple[Engine, Engine, Engine], sample: Any, referred: int
) -> list[dict[str, Any]]:
    """Apply all batches; raise unless the sample's deltas are the scan's and add up to the reference."""
    joined, scan, few = engines
    ids = np.array(sample["id"].to_pylist())
    compared = {row["id"]: row for row in sample.slice(0, referred).to_pylist()}
    measured = []
    for name, batch in work.batches:
        before = {id: answer(work, joined.query(id), row, joined) for id, row in compared.items()}
        times, emitted = [], []
        for engine in (joined, scan, few):
            began = time.perf_counter()
            emitted.append(engine.apply(name, batch))
            times.append(time.perf_counter() - began)
        count = {"table": name, "changes": batch.num_rows, "deltas": len(emitted[0])}
        measured.append({**count, **dict(zip(("s", "scan_sample_s", "scan_few_s"), times, strict=True))})
        mine = emitted[0].take(np.isin(emitted[0].subscription, ids))
        if sorted(map(str, mine)) != sorted(map(str, emitted[1])):
            raise TocsinError(f"deltas of {name} differ from the scan's")
        sums = bag_of(mine, set(compared))
        for id, row in compared.items():
            after = answer(work, joined.query(id), row, joined)
            after.subtract(before[id])
            if Counter({key: n for key, n in after.items() if n}) != sums[id]:
                raise TocsinError(f"subscription {id} differs from the reference after changes of {name}")
    return measured


# -- claims ------------------------------------------------------------------------------------------


def show(name: str, work: JoinedTables, options: argparse.Namespace, at_least: float) -> Claim:
    """Compare and measure: JoinRoom with all subscriptions, the scan with the sample and a tenth of it."""
    rng = np.random.default_rng(options.seed + 1)
    chosen = np.sort(rng.choice(len(work.ranges), options.sample, replace=False))
    sample, few = work.ranges.take(pa.array(chosen)), max(1, options.sample // 10)
    say(f"loading {len(work.ranges):,} subscriptions")
    began = time.perf_counter()
    joined = work.engine(JoinRoom, work.ranges)
    load_s = time.perf_counter() - began
    scans = work.engine(JoinScan, sample), work.engine(JoinScan, sample.slice(0, few))
    say("comparing and measuring")
    measured = compare(work, (joined, *scans), sample, options.referred)
    times = ("s", "scan_sample_s", "scan_few_s")
    seconds, by_sample, by_few = (sum(one[which] for one in measured[2:]) for which in times)
    slope = (by_sample - by_few) / (options.sample - few)
    scan_s = by_sample + slope * (len(work.ranges) - options.sample)
    return Claim(f"joins {name}", scan_s / seconds, "times the scan room", at_least).show(
        options,
        subscriptions=len(work.ranges),
        sample=options.sample,
        compared_with_the_reference=options.referred,
        load_s=load_s,
        counted_s=seconds,
        scan_s=scan_s,
        changes_per_s=sum(one["changes"] for one in measured[2:]) / seconds,
        batches=measured,
        room=[
            {k: v for k, v in group.items() if k != "constants"}
            for family in joined.stats()["join"]["signatures"]
            for group in family["groups"]
        ],
    )


def show_engine(options: argparse.Namespace) -> Claims:
    """100,000 join subscriptions, batches of 10,000 changes, 50 times the scan room."""
    yield show("engine", joins(options), options, 50.0)


def show_star(options: argparse.Namespace) -> Claims:
    """10,000 subscriptions over a fact and three dimensions, exact."""
    yield show("star", star(options), options, 1.0)


COMPARED = {"sample": 200, "referred": 200}
COMMANDS: dict[Callable[[argparse.Namespace], Claims], dict[str, int]] = {
    show_engine: {"subscriptions": 100_000, "rows": 100_000, "changes": 10_000, **COMPARED},
    show_star: {"subscriptions": 10_000, "rows": 50_000, "changes": 2000, **COMPARED},
}


def main() -> int:
    """Run a subcommand; 0 if all answers are right and all claims hold."""
    options = parser_of(__doc__, COMMANDS, repeat=2).parse_args()
    if options.repeat < 2:
        sys.exit("--repeat must be at least 2: the first batches build and are not counted")
    return show_claims(options)


if __name__ == "__main__":
    sys.exit(main())
