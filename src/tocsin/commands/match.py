"""`tocsin match`: which events of a file match which subscriptions of another.

    subscriptions ─► engine ◄─ batches of events
                        └─► pairs (event, subscription) ─► counts, an output file, the first few on the screen

Only counts stay in memory, so the file of events may have any length. Events are numbered from 0 in file
order.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import pyarrow as pa

from tocsin.commands.data import FORMATS, check_format, reading
from tocsin.commands.replay import BadRowCounts, EventReplay, ReplayedBatch, prepare
from tocsin.commands.stdin import STDIN, check_one_stdin
from tocsin.engine import Engine
from tocsin.errors import UsageError
from tocsin.model.columns import Index
from tocsin.model.json_rows import row_json
from tocsin.subscriptions.sources import Subscription

__all__ = ["MatchSummary", "PairSink", "ShownMatch", "TopSubscription", "match", "match_files"]

TOP = 10  # listed subscriptions with most matches
EXPLAINED = 3  # explained matches without --limit
_WIDTH = 80  # characters of a SELECT in a line


@dataclass(frozen=True)
class ShownMatch:
    """A printed match: the event with its row, the subscription, and optionally why it matches."""

    event: int
    subscription: int
    subscriber: str | None
    row: str  # JSON
    why: tuple[str, ...] = ()

    def __str__(self) -> str:
        who = f" ({self.subscriber})" if self.subscriber else ""
        head = f"event {self.event} matches subscription {self.subscription}{who}: {self.row}"
        return "\n".join([head, *self.why])


@dataclass(frozen=True)
class TopSubscription:
    """A subscription with many matches."""

    subscription: int
    subscriber: str | None
    matches: int
    sql: str

    def __str__(self) -> str:
        sql = " ".join(self.sql.split())
        sql = sql if len(sql) <= _WIDTH else sql[: _WIDTH - 3] + "..."
        who = f" ({self.subscriber})" if self.subscriber else ""
        return f"{self.matches:>9,}  {self.subscription}{who}: {sql}"


@dataclass(frozen=True)
class MatchSummary:
    """The result of matching a file."""

    relation: str
    events: int  # good and bad
    subscriptions: int
    matches: int
    without_match: int  # good events that match no subscription
    seconds: float
    events_per_second: float
    top: tuple[TopSubscription, ...]
    bad: BadRowCounts
    shown: tuple[ShownMatch, ...] = ()
    warnings: tuple[str, ...] = ()
    output: str | None = None
    stopped: bool = False  # by Ctrl-C

    @property
    def ok(self) -> bool:
        return not self.bad.rows and not self.stopped

    def to_dict(self) -> dict[str, Any]:
        plain = {name: value for name, value in vars(self).items() if name not in ("top", "bad", "shown")}
        return {
            "ok": self.ok,
            **plain,
            "top": [asdict(top) for top in self.top],
            "bad_rows": self.bad.rows,
            "reasons": [kind.to_dict() for kind in self.bad.kinds()],
            "shown": [asdict(shown) for shown in self.shown],
        }

    def lines(self) -> Iterator[str]:
        """The printed summary."""
        yield from map(str, self.shown)
        if self.shown:
            yield ""
        took = f"{self.seconds:.1f} s, {self.events_per_second:,.0f} events/s"
        yield f"{self.events:,} events of {self.relation}, {self.subscriptions:,} subscriptions: {took}"
        where = "stdout" if self.output == "-" else self.output
        yield f"matches: {self.matches:,}{f', written to {where}' if self.output else ''}"
        yield f"events without a match: {self.without_match:,}"
        if self.top:
            yield "most matched:"
        yield from map(str, self.top)
        yield from self.bad.lines()
        yield from (f"note: {warning}" for warning in self.warnings)
        if self.stopped:
            yield "stopped before the end of the file"


def match_files(
    subscriptions: Path,
    events: Path,
    *,
    schema: Path | None = None,
    relation: str | None = None,
    output: Path | None = None,
    form: str | None = None,
    limit: int | None = None,
    explain: bool = False,
) -> MatchSummary:
    """Match the events of a file against the subscriptions of a file; `-` is stdin, as output stdout."""
    check_one_stdin(subscriptions, events, schema)
    if events != STDIN:
        check_format(events)
    sink = None if output is None else PairSink(output, (subscriptions, events), form)
    engine = prepare(subscriptions, schema, relation)
    return match(engine, events, relation=relation, sink=sink, limit=limit, explain=explain)


def match(
    engine: Engine,
    events: Path,
    *,
    relation: str | None = None,
    sink: PairSink | None = None,
    limit: int | None = None,
    explain: bool = False,
) -> MatchSummary:
    """Apply the events of a file to an engine; show `limit` matches, with explanations if `explain`."""
    limit = (EXPLAINED if explain else 0) if limit is None else limit
    replay = EventReplay(engine, events, relation)
    subscriptions = sorted(engine.subscriptions(), key=lambda s: s.id)
    ids = np.array([s.id for s in subscriptions], np.int64)
    counts = np.zeros(len(ids), np.int64)
    matched, shown = 0, list[ShownMatch]()
    with ExitStack() as open_files:
        if sink is not None:
            open_files.enter_context(sink)
        for batch in replay:
            counts += np.bincount(np.searchsorted(ids, batch.subscription), minlength=len(ids))
            matched += len(np.unique(batch.event))
            if sink is not None:
                sink.write(batch.event, batch.subscription)
            if len(shown) < limit:
                shown += _shown(engine, replay.relation.name, batch, limit - len(shown), explain)
    return MatchSummary(
        relation=replay.relation.name,
        events=replay.events,
        subscriptions=len(ids),
        matches=replay.matches,
        without_match=replay.events - replay.bad.rows - matched,
        seconds=round(replay.seconds, 3),
        events_per_second=round(replay.rate, 1),
        top=tuple(_top(subscriptions, counts)),
        bad=replay.bad,
        shown=tuple(shown),
        warnings=tuple(replay.warnings()),
        output=None if sink is None else str(sink.path),
        stopped=replay.stopped,
    )


def _top(subscriptions: list[Subscription], counts: Any) -> Iterator[TopSubscription]:
    for i in np.argsort(-counts, kind="stable")[:TOP].tolist():
        if counts[i]:
            one = subscriptions[i]
            yield TopSubscription(one.id, one.subscriber, int(counts[i]), one.sql)


def _shown(engine: Engine, relation: str, batch: ReplayedBatch, most: int, explain: bool) -> list[ShownMatch]:
    event, ids = batch.event[:most], batch.subscription[:most].tolist()
    rows = batch.changes.rows.to_dicts(np.searchsorted(batch.changes.origin, event))
    known = {s.id: s for s in engine.subscriptions()} if ids else {}
    out = []
    for number, id, row in zip(event.tolist(), ids, rows, strict=True):
        why = str(engine.explain(id, row, table=relation)).splitlines()[1:] if explain else []
        out.append(ShownMatch(number, id, known[id].subscriber, row_json(row), tuple(why)))
    return out


BUFFERED = 200_000  # pairs per write, so that Parquet has few large row groups
_SCHEMA = pa.schema([("event", pa.int64()), ("subscription", pa.int64())])


class PairSink:
    """Writes pairs (event, subscription) to a file: JSON lines, CSV or Parquet, by the end of its name.

    A context manager. The file has a temporary name until it is complete; after an error it is removed. `-`
    is stdout, in the format `form` (default: JSON lines); there, pairs are written batch by batch.
    """

    def __init__(self, path: Path, inputs: Iterable[Path] = (), form: str | None = None) -> None:
        self.path, self.to_stdout = path, path == STDIN
        self.suffix = f".{form.lstrip('.')}" if form else ".jsonl" if self.to_stdout else path.suffix
        if self.suffix not in FORMATS:
            named = path if not form else f"the format {form!r}"
            fact = f"{named} has an unknown format" if not form else f"{named} is unknown"
            raise UsageError(fact, hint=f"files end in {', '.join(FORMATS)}")
        if self.to_stdout and self.suffix == ".parquet":
            raise UsageError("Parquet cannot be written to stdout", hint="name a file: -o matches.parquet")
        if not self.to_stdout:
            self._check_file(path, inputs)
        self._part = path.with_name(f".{path.name}.part")
        self._buffer: list[tuple[Index, Index]] = []
        self._count = 0
        self._writer: Any = None

    @staticmethod
    def _check_file(path: Path, inputs: Iterable[Path]) -> None:
        if not path.parent.is_dir() or path.is_dir():
            raise UsageError(f"{path} cannot be written", hint="name a file in an existing folder")
        if any(path.resolve() == file.resolve() for file in inputs):
            raise UsageError(f"{path} is an input: it cannot be the output", hint="choose another --output")

    def __enter__(self) -> Self:
        with reading(self.path):
            if self.suffix == ".parquet":
                import pyarrow.parquet as parquet

                self._writer = parquet.ParquetWriter(self._part, _SCHEMA)
                return self
            self._writer = (
                sys.stdout if self.to_stdout else self._part.open("w", encoding="utf-8", newline="\n")
            )
            self._writer.write("event,subscription\n" if self.suffix == ".csv" else "")
        return self

    def write(self, event: Index, subscription: Index) -> None:
        """Write pairs, in order."""
        self._buffer.append((event, subscription))
        self._count += len(event)
        if self._count >= BUFFERED or self.to_stdout:
            self._flush()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._flush()
        if self.to_stdout:
            return
        self._writer.close()
        if kind is None:
            self._part.replace(self.path)
        else:
            self._part.unlink(missing_ok=True)

    def _flush(self) -> None:
        if not self._count:
            return
        event, subscription = (np.concatenate([pair[i] for pair in self._buffer]) for i in (0, 1))
        self._buffer, self._count = [], 0
        pairs = zip(event.tolist(), subscription.tolist(), strict=True)
        if self.suffix == ".parquet":
            self._writer.write_table(pa.table([event, subscription], schema=_SCHEMA))
        elif self.suffix == ".csv":
            self._writer.writelines(f"{e},{s}\n" for e, s in pairs)
        else:
            self._writer.writelines(f'{{"event": {e}, "subscription": {s}}}\n' for e, s in pairs)
        if self.to_stdout:
            self._writer.flush()
