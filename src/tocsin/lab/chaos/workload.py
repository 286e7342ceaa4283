"""What a chaos run feeds to a pipeline, drawn by a seed, and what must come out of it.

Stocks and reviews are inserted, updated and deleted; listings are events. Filters, joins and top-k subscribe
to them, and meanwhile some subscriptions are removed, others added, and some replaced under the same id:
each such change of the set is a version of the subscriptions. Half-way the set is compacted, which is a
version too.

The expected output depends on one thing that only the run decides: which batch ran on which version. The
pins record it; `ExpectedDeltas` reads from them the version and the end of each batch, and nothing else.

>>> workload = ChaosWorkload(seed=1, files=3)
>>> [len(changes) for changes in workload.changes()] == [workload.size] * 3
True
>>> first, *later = workload.versions()
>>> len(first.add), [(change.at, len(change.add), change.compact) for change in later]
(40, [(1, 6, False), (1, 0, True), (2, 6, False)])
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple

from tocsin.client import Client
from tocsin.engine import Engine
from tocsin.errors import TocsinError
from tocsin.model.change import ChangeBatch
from tocsin.model.delta import Delta, Deltas
from tocsin.model.json_rows import row_json
from tocsin.reference import evaluate
from tocsin.spark.versions.batch import Pin

__all__ = ["DDL", "ChaosWorkload", "DeltaBag", "ExpectedDeltas", "PinnedBatch", "contents_of", "delta_bag"]

DDL = """
CREATE TABLE stocks (symbol STRING, per DOUBLE, risk DOUBLE, PRIMARY KEY (symbol));
CREATE TABLE reviews (id BIGINT, symbol STRING, rating DOUBLE, PRIMARY KEY (id));
CREATE STREAM listings (model STRING, price DOUBLE, storage BIGINT)
"""

ChangeRow = dict[str, Any]  # table, op, row (JSON text), seq
DeltaBag = Counter[tuple[int, int, int, str, int]]  # (batch, seq, subscription, row as JSON, sign)


class ChaosSubscription(NamedTuple):
    """A subscription."""

    id: int
    sql: str


class SetChange(NamedTuple):
    """A change of the set of subscriptions, made when file `at` is written."""

    at: int
    add: list[ChaosSubscription]
    replace: Sequence[ChaosSubscription] = ()
    remove: Sequence[int] = ()
    compact: bool = False


@dataclass(frozen=True)
class ChaosWorkload:
    """A workload. The same numbers draw the same changes and subscriptions."""

    seed: int
    files: int = 10
    size: int = 60  # changes in a file
    subscriptions: int = 40
    turnover: int = 6  # subscriptions that are removed, and that are added, with each version
    replaced: int = 3  # subscriptions that get another meaning
    updates: int | None = None  # versions after the first; None: with the first files, then with every second

    def changes(self) -> list[list[ChangeRow]]:
        """The changes, file by file."""
        draw, stocks, reviews, out = Random(f"changes {self.seed}"), set[str](), set[int](), []
        for seq in range(1, self.files * self.size + 1):
            table = draw.choice(("stocks", "reviews", "listings"))
            if table == "stocks":
                symbol = f"S{draw.randrange(30)}"
                rest = {"per": draw.choice([None, *range(5, 95, 5)]), "risk": draw.randrange(10)}
                op, row = _op(draw, stocks, symbol, {"symbol": symbol}, rest)
            elif table == "reviews":
                number = draw.randrange(40)
                rest = {"symbol": f"S{draw.randrange(35)}", "rating": draw.randrange(10)}
                op, row = _op(draw, reviews, number, {"id": number}, rest)
            else:
                op = "insert"
                row = {"model": f"m{draw.randrange(5)}", "price": draw.randrange(900), "storage": 64}
            out.append({"table": table, "op": op, "row": json.dumps(row), "seq": seq})
        return [out[start : start + self.size] for start in range(0, len(out), self.size)]

    def versions(self) -> list[SetChange]:
        """The first set, and its changes."""
        draw = Random(f"subscriptions {self.seed}")
        new = [ChaosSubscription(number, _query(draw, number)) for number in range(1, self.subscriptions + 1)]
        there, next_id = [s.id for s in new], self.subscriptions + 1
        changes = [SetChange(0, new)]
        for at in self._moments():
            gone = draw.sample(there, self.turnover)
            other = draw.sample([i for i in there if i not in gone and i % 4 != _PASSES], self.replaced)
            new = [ChaosSubscription(next_id + i, _query(draw, next_id + i)) for i in range(self.turnover)]
            next_id += self.turnover
            there = [i for i in there if i not in gone] + [s.id for s in new]
            changed = [ChaosSubscription(i, _query(draw, draw.choice(_STAY))) for i in other]
            changes.append(SetChange(at, new, changed, sorted(gone)))
            if self.updates is None and len(changes) == 1 + self.files // 3:
                changes.append(SetChange(at, [], compact=True))
        return changes

    def _moments(self) -> list[int]:
        """The file with which each version after the first is published."""
        if self.updates is None:
            return [at for at in range(1, self.files) if at < 3 or at % 2 == 0]
        return [1 + n * (self.files - 1) // self.updates for n in range(self.updates)]

    def sets(self) -> list[dict[int, str]]:
        """The whole set of each version, by id."""
        there: dict[int, str] = {}
        out = []
        for _, add, replace, remove, _ in self.versions():
            there = {i: sql for i, sql in there.items() if i not in remove} | dict(replace) | dict(add)
            out.append(there)
        return out


def _op(draw: Random, there: set[Any], key: Any, named: ChangeRow, rest: ChangeRow) -> tuple[str, ChangeRow]:
    if key not in there:
        there.add(key)
        return draw.choice(("insert", "upsert")), named | rest
    if draw.random() < 0.25:
        there.remove(key)
        return "delete", named
    return "update", named | {name: value for name, value in rest.items() if draw.random() < 0.7}


_PASSES, _STAY = (
    1,
    (0, 2, 3),
)  # kinds of queries: events are never retracted, so their queries are not replaced


def _query(draw: Random, number: int) -> str:
    low = draw.randrange(0, 60, 5)
    return (
        f"SELECT symbol, per FROM stocks WHERE per BETWEEN {low} AND {low + 25}",
        f"SELECT model, price FROM listings WHERE price < {10 * low} AND model = 'm{draw.randrange(5)}'",
        "SELECT symbol, per, rating FROM stocks JOIN reviews USING (symbol) "
        f"WHERE per BETWEEN {low} AND {low + 30} AND rating >= {draw.randrange(8)}",
        f"SELECT symbol, per FROM stocks WHERE risk BETWEEN {low // 10} AND {low // 10 + 4} "
        f"ORDER BY per {draw.choice(('ASC', 'DESC'))} LIMIT {draw.randrange(1, 6)}",
    )[number % 4]


class PinnedBatch(NamedTuple):
    """A batch that was run: its pin, and the last seq it applied."""

    number: int
    pin: Pin
    last: int


@dataclass
class ExpectedDeltas:
    """What an undisturbed engine emits, batch by batch."""

    deltas: DeltaBag = field(default_factory=Counter)
    contents: dict[int, Counter[str]] = field(default_factory=dict)  # at the end, by the reference

    @classmethod
    def of(cls, workload: ChaosWorkload, batches: Iterable[PinnedBatch]) -> ExpectedDeltas:
        """Apply the changes of each batch to the subscriptions of its version."""
        made, engine = cls(), Engine()
        engine.execute(DDL)
        sets, changes = workload.sets(), [change for file in workload.changes() for change in file]
        there: Mapping[int, str] = {}
        done = 0
        for batch in batches:
            wanted = sets[batch.pin.version - 1]
            old = {number for number, sql in there.items() if wanted.get(number) != sql}
            retracted = engine.contents(sorted(old & wanted.keys()))
            engine.unsubscribe_many(sorted(old))
            fresh = sorted(number for number, sql in wanted.items() if there.get(number) != sql)
            for number in fresh:
                engine.subscribe(wanted[number], id=number)
            initial = Deltas.concat([retracted.negated(), engine.contents(fresh)])
            made._add(batch.number, initial.at(batch.pin.start_seq))
            there = wanted
            made._add(batch.number, _apply(engine, changes[done : batch.last]))
            done = max(done, batch.last)
        tables = [relation for relation in engine.schemas() if relation.key]
        database = {table.name: engine.rows(table.name).to_pylist() for table in tables}
        keys = {table.name: table.key for table in tables}
        for number in there:
            query = engine.query(number)
            if query.tables[0].name in keys:
                made.contents[number] = Counter(map(row_json, evaluate(query, database, keys)))
        return made

    def _add(self, batch: int, deltas: Any) -> None:
        """Add the deltas of a batch; those of one row at one seq add up or cancel."""
        bag: Counter[tuple[int, int, str]] = Counter()
        for (_, seq, number, row, sign), count in delta_bag(
            batch, deltas.to_arrow(rows=True).to_pylist()
        ).items():
            bag[seq, number, row] += sign * count
        for (seq, number, row), count in bag.items():
            if count:
                self.deltas[batch, seq, number, row, 1 if count > 0 else -1] += abs(count)


def delta_bag(batch: int, rows: Iterable[Mapping[str, Any]]) -> DeltaBag:
    """Deltas of a batch as a bag; a row is a text or, in the files of a JSON sink, an object."""
    return Counter((batch, r["seq"], r["subscription"], _text(r["row"]), int(r["sign"])) for r in rows)


def _text(row: Any) -> str:
    return json.dumps(json.loads(row) if isinstance(row, str) else row, separators=(",", ":"))


def contents_of(deltas: DeltaBag, wanted: Iterable[int]) -> dict[int, Counter[str] | str]:
    """The contents of a client that receives the deltas in order; or why it cannot go on."""
    client, broken = Client(), dict[int, str]()
    ids = list(wanted)
    for number in ids:
        client.start(number)
    for (_, seq, number, row, sign), count in sorted(deltas.items(), key=lambda item: _order(item[0])):
        try:
            client.receive([Delta(seq, number, sign, json.loads(row))] * count)
        except TocsinError as error:
            broken.setdefault(number, error.fact)
    return {i: broken.get(i) or Counter(map(row_json, client.content(i))) for i in ids}


def _order(delta: Sequence[Any]) -> tuple[int, int, int]:
    batch, seq, _, _, sign = delta
    return batch, seq, sign


def _apply(engine: Engine, changes: Sequence[ChangeRow]) -> Any:
    """One batch of changes to several tables, each change with its own seq."""
    batches = {}
    for name in sorted({change["table"] for change in changes}):
        own = [change for change in changes if change["table"] == name]
        ops, seqs, rows = ([change[key] for change in own] for key in ("op", "seq", "row"))
        batch, bad = ChangeBatch.from_json(engine.schema(name), ops, seqs, rows)
        batches[name] = batch.or_raise(bad)
    return engine.apply_all(batches)
