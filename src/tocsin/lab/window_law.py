"""The law of windows: an engine beside the reference, compared at every moment of random changes.

A `WindowWitness` has an engine with a clock of its own, and remembers what came when. After each change it
computes with `reference` the answer of every subscription after the clock moved and after each event, and
asserts that the deltas are exactly the differences, each at its seq, and that contents agree.

`random_queries` draws queries of all shapes over windows of both kinds; `random_change` does something to the
engine: events in and out of order, batches and single ones, rows of a table, steps of the clock, ticks.
Tests run some of it (`tests/test_window_law.py`), `bench/windows_show.py law` thousands.

>>> from random import Random
>>> witness = WindowWitness()
>>> for sql in random_queries(Random(1), 5):
...     _ = witness.subscribe(sql)
>>> for _ in range(20):
...     random_change(witness, Random(1))
>>> witness.moments > 0
True
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from tocsin.engine import Engine, Rooms
from tocsin.language.algebra import Query, Truth
from tocsin.language.options import FOREVER
from tocsin.language.windows import WindowSpec, over_windows, windows_of
from tocsin.model.delta import Deltas
from tocsin.model.schema import Stream
from tocsin.reference import absent_in, as_bag, evaluate, events_in, row_key

__all__ = ["DEFINITIONS", "SHAPES", "WindowWitness", "random_change", "random_event", "random_queries"]

DEFINITIONS = """
CREATE STREAM hits (page STRING, k BIGINT, ms BIGINT, load DOUBLE, at TIMESTAMP, seen TIMESTAMP);
CREATE STREAM clicks (page STRING, k BIGINT, x DOUBLE, at TIMESTAMP) RETAIN '7 seconds';
CREATE TABLE pages (page STRING, k BIGINT, owner STRING, PRIMARY KEY (page))
"""
_PAGES = ("a", "b", "c", "d")
_SECOND = timedelta(seconds=1)
_BEGIN = datetime(2024, 5, 1, tzinfo=UTC)

Row = dict[str, Any]
_Answer = Counter[Hashable]


class WindowWitness:
    """An engine, and what the reference says about the same events."""

    def __init__(self, rooms: Rooms | None = None) -> None:
        self.now = _BEGIN
        self.rooms = rooms
        self.engine = Engine(clock=self._clock, rooms=rooms)
        self.engine.execute(DEFINITIONS)
        self.catalog = {relation.name: relation for relation in self.engine.schemas()}
        self.moments = 0  # at which all answers were compared
        self._came: dict[str, list[tuple[int, Row]]] = {"hits": [], "clicks": []}  # what is retained
        self._windows: dict[WindowSpec, list[tuple[int, Row | None]]] = {}  # since each began
        self._tables: dict[str, dict[Hashable, Row]] = {"pages": {}}
        self.queries: dict[int, Query] = {}
        self._answers: dict[int, _Answer] = {}

    def _clock(self) -> datetime:
        return self.now

    # -- subscriptions -----------------------------------------------------------------------------

    def subscribe(self, sql: str) -> int:
        """Subscribe; the content is there at once."""
        self.tick()
        return self.entered(self.engine.subscribe(sql).id)

    def entered(self, id: int) -> int:
        """Note a subscription that the engine has."""
        query = self.engine.query(id)
        for window in self._specs(query):
            if window is not None and window not in self._windows:
                self._windows[window] = self._past(window)
        self.queries[id] = query
        self._answers[id] = as_bag(self._expected(query))
        self._compare_content(id)
        return id

    def unsubscribe(self, id: int) -> None:
        """Unsubscribe; windows without users are dropped."""
        self.engine.unsubscribe(id)
        del self.queries[id], self._answers[id]
        used = {window for query in self.queries.values() for window in self._specs(query)}
        self._windows = {window: came for window, came in self._windows.items() if window in used}

    def _specs(self, query: Query) -> tuple[WindowSpec | None, ...]:
        return windows_of(query, self.catalog)

    def _past(self, window: WindowSpec) -> list[tuple[int, Row | None]]:
        """What a window that begins now takes in: the retained events."""
        now = self._micros()
        return [*((when, event) for when, event in self._came[window.stream] if when <= now), (now, None)]

    def _forget(self) -> None:
        """Drop events that their stream does not retain any more."""
        for name, came in self._came.items():
            stream = self.catalog[name]
            assert isinstance(stream, Stream)
            span = 0 if stream.retain is None else stream.retain // timedelta(microseconds=1)
            self._came[name] = [(when, event) for when, event in came if self._micros() - when < span]

    # -- changes -----------------------------------------------------------------------------------

    def publish(self, stream: str, events: Sequence[Row]) -> None:
        """Publish a batch of events, or one by one if there is a single one."""
        with_expiry = self._expected_expiry()
        first = self.engine.last_seq + 1
        deltas = (
            self.engine.publish(stream, events[0])
            if len(events) == 1
            else self.engine.apply(stream, list(events))
        )
        expected = [with_expiry]
        for seq, event in enumerate(events, first):
            came = {**event, "_seq": seq}
            self._came[stream].append((self._micros(), came))
            for window, moments in self._windows.items():
                if window.stream == stream:
                    moments.append((self._micros(), came))
            expected.append(self._advance(seq))
        self._compare(deltas, expected)

    def change(self, table: str, op: str, row: Row) -> None:
        """Insert, update, delete or upsert a row of a table."""
        with_expiry = self._expected_expiry()
        deltas = getattr(self.engine, op)(table, row)
        rows = self._tables[table]
        if op == "delete":
            del rows[row["page"]]
        else:
            blank = dict.fromkeys(self.catalog[table].names)
            rows[row["page"]] = blank | rows.get(row["page"], {}) | row
        self._compare(deltas, [with_expiry, self._advance(self.engine.last_seq)])

    def tick(self) -> None:
        """Let events leave by the clock."""
        self._compare(self.engine.tick(), [self._expected_expiry()])

    def look(self) -> None:
        """Read contents: they are as of now, and what changed is emitted with the next change."""
        with_expiry = self._expected_expiry()
        for id in self.queries:
            self._compare_content(id)
        self._compare(self.engine.tick(), [with_expiry])

    def keys(self, table: str) -> list[Hashable]:
        """The keys of a table's rows."""
        return list(self._tables[table])

    # -- comparing ---------------------------------------------------------------------------------

    def _micros(self) -> int:
        return (self.now - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)

    def _expected(self, query: Query) -> list[Row]:
        database: dict[str, Sequence[Mapping[str, Any]]] = {n: [*t.values()] for n, t in self._tables.items()}
        keys = {"pages": ("page",)}
        for window in self._specs(query):
            if window is not None:
                database[window.table] = self._rows_in(window)
                keys[window.table] = ("_seq",)
        read = over_windows(query, self._specs(query))
        return evaluate(replace(read), database, keys)

    def _rows_in(self, window: WindowSpec) -> list[Any]:
        came = self._windows[window]
        if window.absent is None:
            return events_in(came, window.span, window.time, window.late)
        kept = None if window.absent == FOREVER else window.absent
        where = Truth(True) if window.where is None else window.where.predicate
        return absent_in(came, window.span, kept, window.columns or (), where, window.time, window.late)

    def _expected_expiry(self) -> Counter[Any]:
        self._forget()
        for moments in self._windows.values():
            moments.append((self._micros(), None))
        return self._advance(self.engine.last_seq)

    def _advance(self, seq: int) -> Counter[Any]:
        """The deltas from the answers so far to those now."""
        out: Counter[Any] = Counter()
        self.moments += 1
        for id, query in self.queries.items():
            before, after = self._answers[id], as_bag(self._expected(query))
            out.update({(seq, id, 1, row): n for row, n in (after - before).items()})
            out.update({(seq, id, -1, row): n for row, n in (before - after).items()})
            self._answers[id] = after
        return out

    def _compare(self, deltas: Deltas, expected: Sequence[Counter[Any]]) -> None:
        found = Counter((d.seq, d.subscription, d.sign, row_key(d.row)) for d in deltas)
        total: Counter[Any] = Counter()
        for part in expected:
            total.update(part)
        assert found == total, _difference(found, total, self.queries)
        for id in self.queries:
            self._compare_content(id)

    def _compare_content(self, id: int) -> None:
        query, found = self.queries[id], self.engine.content(id)
        expected = self._expected(query)
        assert as_bag(found) == as_bag(expected), f"{query}: {found} instead of {expected}"
        if query.order and not query.partition:
            assert [row_key(row) for row in found] == [row_key(row) for row in expected], str(query)


def _difference(found: Counter[Any], expected: Counter[Any], queries: Mapping[int, Query]) -> str:
    shown = []
    for what, wrong in (("too many", found - expected), ("lacks", expected - found)):
        shown += [f"{what} {delta} of {queries.get(delta[1])}" for delta in [*wrong][:3]]
    return "; ".join(shown)


# -- random work -----------------------------------------------------------------------------------

_HITS = ("ms", "load", "k")
SHAPES = (
    *("filter", "extreme", "aggregate", "combined", "distinct", "topk", "join", "band", "multiway"),
    *("group", "joined group", "ranked", "outer", "union", "exists", "absent"),
)


def random_queries(rng: Random, count: int) -> Iterator[str]:
    """Queries of all shapes, in turn, over windows of both kinds."""
    for n in range(count):
        yield random_query(rng, SHAPES[n % len(SHAPES)])


def random_query(rng: Random, shape: str) -> str:
    """A query of one shape over windows."""
    span = rng.choice(["2 seconds", "5 seconds", "9 seconds"])
    options = [f"window = '{span}'"]
    if shape == "absent":
        options.append(f"absent = '{rng.choice(['forever', '10 seconds', '20 seconds'])}'")
    by_time = rng.random() < 0.6
    if by_time:
        late = rng.choice(["0.5 seconds", "2 seconds"])
        options += [*rng.choice([[], [f"late = '{late}'"]]), "time = 'at'"]
        rng.shuffle(options)
    where = _conditions(rng)
    column = rng.choice(_HITS)
    selects = _of_one(rng, column, where) | _of_groups(rng, column, where) | _of_several(rng)
    return f"{selects[shape]} WITH ({', '.join(options)})"


def _of_one(rng: Random, column: str, where: str) -> dict[str, str]:
    """Queries over one stream, by shape."""
    return {
        "filter": f"SELECT page, {column} FROM hits{where}",
        "extreme": f"SELECT {rng.choice(['MIN', 'MAX'])}({column}) AS m FROM hits{where}",
        "aggregate": f"SELECT COUNT(*) AS n, {rng.choice(['SUM', 'AVG'])}({column}) AS s FROM hits{where}",
        "combined": f"SELECT MAX({column}) AS h, MIN(at) AS l, COUNT(*) AS n FROM hits{where}",
        "distinct": f"SELECT DISTINCT page, k FROM hits{where}",
        "topk": f"SELECT page, {column} FROM hits{where} ORDER BY {column}{rng.choice(['', ' DESC'])}"
        f" LIMIT {rng.choice([1, 3])}",
        "ranked": rng.choice(
            [
                f"SELECT page, {column} FROM hits{where} ORDER BY {column}"
                f" LIMIT 2 OFFSET {rng.randint(1, 2)}",
                f"SELECT page, {column} FROM hits{where} QUALIFY ROW_NUMBER() OVER (PARTITION BY page"
                f" ORDER BY {column} DESC) <= {rng.randint(1, 2)}",
                "SELECT h.ms, p.owner FROM hits h JOIN pages p ON h.page = p.page ORDER BY h.ms DESC LIMIT 2",
            ]
        ),
        "absent": rng.choice(
            [
                f"SELECT DISTINCT page FROM hits{where}",
                f"SELECT DISTINCT page, k FROM hits{where}",
                f"SELECT DISTINCT k AS key FROM clicks{rng.choice(['', ' WHERE k > 1', ' WHERE x < 2'])}",
                f"SELECT DISTINCT load, k FROM hits WHERE k < {rng.randint(1, 4)} OR load = 1",
            ]
        ),
    }


def _of_groups(rng: Random, column: str, where: str) -> dict[str, str]:
    """Queries over groups, by shape."""
    return {
        "group": rng.choice(
            [
                f"SELECT page, COUNT(*) AS n FROM hits{where} GROUP BY page"
                f" HAVING COUNT(*) >= {rng.randint(1, 3)}",
                f"SELECT page, COUNT(DISTINCT k) AS n, SUM({column}) AS s FROM hits{where} GROUP BY page",
                f"SELECT k, MAX({column}) AS h, MIN(page) AS l FROM hits{where} GROUP BY k, page"
                f" HAVING MAX({column}) > {rng.randint(0, 5)} OR k = 2",
                f"SELECT page FROM hits GROUP BY page HAVING page = '{rng.choice(_PAGES)}'"
                f" AND COUNT(*) > {rng.randint(0, 2)} AND AVG({column}) < 6",
                f"SELECT COUNT(*) FILTER (WHERE ms > 4) AS n FROM hits{where}"
                f" HAVING COUNT(*) < {rng.randint(1, 4)}",
            ]
        ),
        "joined group": rng.choice(
            [
                "SELECT COUNT(*) AS n, SUM(h.ms) AS s FROM hits h JOIN clicks c ON h.page = c.page",
                "SELECT p.owner, COUNT(*) AS n FROM hits h JOIN pages p ON h.page = p.page GROUP BY p.owner"
                f" HAVING COUNT(*) > {rng.randint(0, 2)}",
                "SELECT DISTINCT h.ms, p.owner FROM hits h JOIN pages p ON h.page = p.page WHERE h.ms > 3",
            ]
        ),
    }


def _of_several(rng: Random) -> dict[str, str]:
    """Queries over several streams and tables, by shape."""
    return {
        "join": rng.choice(
            [
                "SELECT h.ms, c.x FROM hits h JOIN clicks c ON h.page = c.page",
                "SELECT h.ms, p.owner FROM hits h JOIN pages p ON h.page = p.page WHERE h.ms > 3",
                "SELECT l.ms AS a, r.ms AS b FROM hits l JOIN hits r ON l.k = r.k WHERE l.page = 'a'",
            ]
        ),
        "band": rng.choice(
            [
                "SELECT h.ms, c.x FROM hits h JOIN clicks c ON c.k - h.k BETWEEN -1 AND 1",
                "SELECT l.ms AS a, r.ms AS b FROM hits l JOIN hits r ON l.load - r.load BETWEEN 0 AND 1",
            ]
        ),
        "multiway": "SELECT h.ms, c.x, p.owner FROM hits h JOIN clicks c ON h.page = c.page"
        " JOIN pages p ON c.page = p.page",
        "outer": rng.choice(
            [
                "SELECT h.ms, c.x FROM hits h LEFT JOIN clicks c ON h.page = c.page AND c.x < 2",
                "SELECT p.owner, h.ms FROM pages p LEFT JOIN hits h ON h.page = p.page WHERE h.ms > 3",
                "SELECT p.page, h.ms FROM hits h RIGHT JOIN pages p ON h.page = p.page AND h.load > 1",
                "SELECT h.page AS a, c.page AS b FROM hits h FULL JOIN clicks c ON h.k = c.k",
                "SELECT h.ms, c.x FROM hits h LEFT JOIN clicks c ON h.page = c.page WHERE c.x IS NULL",
            ]
        ),
        "union": rng.choice(
            [
                f"SELECT page, ms FROM hits{_conditions(rng)}"
                " UNION ALL SELECT page, k FROM clicks WHERE k < 2",
                f"SELECT k FROM hits{_conditions(rng)} UNION ALL SELECT k FROM hits{_conditions(rng)}"
                " UNION ALL SELECT k FROM pages WHERE owner = 'x'",
                "SELECT h.ms AS a, p.owner FROM hits h JOIN pages p ON h.page = p.page WHERE h.k > 0"
                " UNION ALL SELECT k, owner FROM pages",
                "SELECT p.page AS a FROM pages p WHERE NOT EXISTS"
                " (SELECT 1 FROM hits h WHERE h.page = p.page)"
                f" UNION ALL SELECT page FROM hits{_conditions(rng)}",
                "SELECT h.page AS a, c.x FROM hits h LEFT JOIN clicks c ON h.k = c.k"
                " UNION ALL SELECT page, x FROM clicks WHERE x > 1",
            ]
        ),
        "exists": rng.choice(
            [
                "SELECT * FROM pages p WHERE NOT EXISTS (SELECT 1 FROM hits h WHERE h.page = p.page"
                f"{rng.choice(['', ' AND h.ms > 5', ' AND h.k = p.k', ' AND p.k = 1'])})",
                "SELECT p.page FROM pages p WHERE EXISTS (SELECT 1 FROM hits h WHERE h.page = p.page"
                " AND h.k < 2) AND NOT EXISTS (SELECT 1 FROM clicks c WHERE c.page = p.page)",
                f"SELECT page, owner FROM pages WHERE k {rng.choice(['', 'NOT '])}IN (SELECT k FROM hits"
                f"{rng.choice(['', ' WHERE ms < 4'])})",
                "SELECT h.ms FROM hits h WHERE NOT EXISTS"
                " (SELECT 1 FROM clicks c WHERE c.k - h.k BETWEEN 0 AND 1)",
                "SELECT h.ms FROM hits h WHERE EXISTS"
                " (SELECT 1 FROM hits g WHERE g.k = h.k AND g.page = 'a')",
            ]
        ),
    }


def _conditions(rng: Random) -> str:
    low = rng.randint(0, 6)
    parts = [
        f"page = '{rng.choice(_PAGES)}'",
        f"ms BETWEEN {low} AND {low + rng.randint(0, 5)}",
        f"load > {rng.randint(0, 3)}",
        "page LIKE '%a%' OR k = 1",
    ]
    chosen = rng.sample(parts, rng.choice([0, 1, 1, 2, 2]))
    return f" WHERE {' AND '.join(f'({part})' for part in chosen)}" if chosen else ""


def random_event(rng: Random, witness: WindowWitness, stream: str) -> Row:
    """An event, mostly of about now; some columns are NULL."""
    at = witness.now + rng.choice([0, 0, -0.4, 0.3, -1, -3, -11, 1]) * _SECOND
    event: Row = {"page": rng.choice(_PAGES), "k": rng.randint(0, 3), "at": at}
    if stream == "hits":
        event |= {
            "ms": rng.randint(0, 9),
            "load": rng.randint(0, 16) / 4,
            "seen": at + rng.choice([0, 2]) * _SECOND,
        }
    else:
        event |= {"x": rng.randint(0, 5) / 2}
    for name in [name for name in event if rng.random() < 0.04]:
        del event[name]
    return event


def random_change(witness: WindowWitness, rng: Random, most: int = 6) -> None:
    """One change, or a step of the clock, at random."""
    witness.now += rng.choice([0, 0, 0.2, 0.5, 1, 1, 3, 12, -1]) * _SECOND
    what = rng.random()
    if what < 0.75:
        stream = rng.choice(["hits", "hits", "clicks"])
        events = [random_event(rng, witness, stream) for _ in range(rng.choice([1, 1, rng.randint(2, most)]))]
        witness.publish(stream, events)
    elif what < 0.87:
        page = rng.choice(_PAGES)
        row = {"page": page, "k": rng.randint(0, 3), "owner": rng.choice(["x", "y"])}
        op = "insert" if page not in witness.keys("pages") else rng.choice(["update", "delete", "upsert"])
        witness.change("pages", op, row)
    elif what < 0.94:
        witness.tick()
    else:
        witness.look()
