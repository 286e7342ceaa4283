"""The law of sequences: what the engine emits is what the reference does, event by event.

`SequenceWitness` has an engine and the events since each subscription began; `random_sequence` and
`random_change` make the work. `make test` does some of it (`tests/sequence`), `bench/groups_show.py law`
more.

>>> from random import Random
>>> witness, rng = SequenceWitness(), Random(2)
>>> _ = [witness.subscribe(random_sequence(rng)) for _ in range(3)]
>>> for _ in range(30):
...     random_change(witness, rng)
>>> witness.rows > 0
True
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from tocsin.engine import Engine
from tocsin.errors import TocsinError
from tocsin.language.algebra import Query
from tocsin.reference import follow_steps, row_key

__all__ = ["SequenceWitness", "random_change", "random_sequence"]

_DEFINITIONS = """
CREATE STREAM logins (user STRING, ip BIGINT, ok BOOLEAN);
CREATE STREAM visits (who STRING, page BIGINT, ms DOUBLE)
"""
_SECOND = timedelta(seconds=1)

Row = dict[str, Any]
_Steps = list[tuple[datetime, list[tuple[int, str, Row]]]]


class SequenceWitness:
    """An engine, and what the reference says about the same events."""

    def __init__(self) -> None:
        self.now = datetime(2024, 5, 1, tzinfo=UTC)
        self.engine = Engine(clock=lambda: self.now)
        self.engine.execute(_DEFINITIONS)
        self.queries: dict[int, Query] = {}
        self.steps: _Steps = []
        self._since: dict[int, int] = {}  # the first step that a subscription reads
        self.rows = 0  # emitted so far
        self._clock = datetime.min.replace(tzinfo=UTC)

    def subscribe(self, sql: str) -> int:
        """Subscribe; earlier events do not count."""
        id = self.engine.subscribe(sql).id
        self.queries[id], self._since[id] = self.engine.query(id), len(self.steps)
        return id

    def unsubscribe(self, id: int) -> None:
        """Unsubscribe."""
        self.engine.unsubscribe(id)
        del self.queries[id], self._since[id]

    def publish(self, batches: dict[str, list[Row]]) -> None:
        """Publish batches of events, or a single event; compare what is emitted."""
        first = self.engine.last_seq + 1
        if sum(map(len, batches.values())) == 1:
            ((name, (event,)),) = batches.items()
            deltas = self.engine.publish(name, event)
        else:
            deltas = self.engine.apply_all(batches)
        events = [(name, event) for name, some in batches.items() for event in some]
        if any(table.name in batches for query in self.queries.values() for table in query.tables):
            self._clock = max(self._clock, self.now)  # of sequences: it does not go back
        self.steps.append(
            (max(self._clock, self.now), [(seq, n, event) for seq, (n, event) in enumerate(events, first)])
        )
        expected: Counter[Any] = Counter()
        for id, query in self.queries.items():
            found = follow_steps(query, self.steps[self._since[id] :])[-1]
            expected.update((seq, id, 1, row_key(row)) for seq, row in found)
        emitted = Counter((d.seq, d.subscription, d.sign, row_key(d.row)) for d in deltas)
        self.rows += sum(emitted.values())
        assert emitted == expected, (
            f"too many: {[*(emitted - expected)][:3]}, lacks {[*(expected - emitted)][:3]} of "
            f"{[str(self.queries[one[1]]) for one in [*(emitted - expected), *(expected - emitted)][:3]]}"
        )

    def fail(self) -> None:
        """A batch with a bad event changes nothing."""
        batch: Sequence[Row] = [{"user": "a", "ip": 1, "ok": True}, {"user": 5, "ip": "x"}]
        try:
            self.engine.apply_all({"logins": batch})
        except TocsinError:
            return
        raise AssertionError("a bad event was accepted")

    def fail_late(self) -> None:
        """A step that fails after all rooms computed it changes nothing."""

        def refuse(step: Any) -> None:
            raise ValueError("refused")

        stop = self.engine.on_step(refuse)
        try:
            self.engine.apply_all(
                {"logins": [{"user": u, "ip": 1, "ok": ok} for u in "abc" for ok in (True, False)]}
            )
        except ValueError:
            return
        finally:
            stop()
        raise AssertionError("the step was made")

    def reload(self) -> None:
        """Save and load the engine."""
        with TemporaryDirectory() as folder:
            self.engine.save(Path(folder) / "saved")
            self.engine = Engine.load(Path(folder) / "saved", clock=lambda: self.now)


def random_sequence(rng: Random) -> str:
    """A sequence of two to five steps."""
    streams = [rng.choice(["logins", "logins", "visits"]) for _ in range(rng.choice([2, 2, 2, 3, 3, 4, 5]))]
    keys = {"logins": rng.choice(["user", "ip"]), "visits": "who"}
    if keys["logins"] == "ip":
        keys["visits"] = "page"
    text, conditions, shown = "", [], []
    for n, stream in enumerate(streams):
        alias = "abcde"[n]
        own = keys[stream]
        if n:
            before = f"{'abcde'[n - 1]}.`{keys[streams[n - 1]]}`"
            text += f" FOLLOWED BY {stream} AS {alias} ON {alias}.`{own}` = {before}"
        else:
            text = f"{stream} {alias}"
        if rng.random() < 0.8:
            conditions.append(_condition(rng, stream, alias))
        shown += [
            f"{alias}.{column}" for column in ("ip", "page") if (column == "ip") == (stream == "logins")
        ]
    shown = [f"{column} AS x{n}" for n, column in enumerate(shown) if rng.random() < 0.7 or n == 0]
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    return f"SELECT {', '.join(shown)} FROM {text} WITHIN '{rng.choice([1, 3, 7])} seconds'{where}"


def _condition(rng: Random, stream: str, alias: str) -> str:
    if stream == "logins":
        return rng.choice(
            [f"{alias}.ok = TRUE", f"{alias}.ok = FALSE", f"{alias}.ip > 1", f"{alias}.ip IN (1, 3)"]
        )
    return rng.choice(
        [f"{alias}.page = 2", f"{alias}.ms < 0.5", f"NOT {alias}.page = 1", f"{alias}.who LIKE 'a%'"]
    )


def _event(rng: Random, stream: str) -> Row:
    if stream == "logins":
        event: Row = {"user": rng.choice("abc"), "ip": rng.randint(1, 3), "ok": rng.random() < 0.5}
    else:
        event = {"who": rng.choice("abc"), "page": rng.randint(1, 3), "ms": rng.randint(0, 4) / 4}
    return {name: value for name, value in event.items() if rng.random() > 0.05}


def random_change(witness: SequenceWitness, rng: Random) -> None:
    """Some events, a step of the clock, a step that fails, or the engine saved and loaded."""
    witness.now += rng.choice([0, 0, 0.4, 1, 1, 2, 8, -1]) * _SECOND
    what = rng.random()
    if what < 0.9:
        counts = rng.choice([(1, 0), (0, 1), (3, 0), (2, 2), (5, 3)])
        names = zip(("logins", "visits"), counts, strict=True)
        witness.publish({name: [_event(rng, name) for _ in range(count)] for name, count in names if count})
    elif what < 0.94:
        witness.fail()
    elif what < 0.98:
        witness.fail_late()
    else:
        witness.reload()
    witness.engine._check()
