"""Backtests: what a query would have matched among the events that its stream retains.

The events are replayed, as they arrived, into an engine of their own with that one subscription, beside the
server's. Nothing is registered, and changes do not wait. A query with a window has the window that it would
have had at each arrival.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import numpy as np

from tocsin.engine import Engine
from tocsin.errors import TocsinError
from tocsin.model.change import ChangeBatch
from tocsin.model.columns import Index, Rows
from tocsin.model.delta import Deltas
from tocsin.model.json_rows import row_json
from tocsin.model.schema import Stream, Table
from tocsin.store.retained import joined, layout

__all__ = ["BacktestSource", "backtest", "source_of"]

BINS = 60
MOST = 4096  # events at a time, about
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class BacktestSource(NamedTuple):
    """What a backtest needs of the server's engine."""

    definitions: list[str]
    stream: Stream
    tables: dict[str, Any]
    arrivals: Sequence[tuple[datetime, Any, Rows]]
    by_arrival: bool  # whether it depends on when events came


def source_of(engine: Engine, sql: str) -> BacktestSource:
    """The retained events, and the tables that they are joined with; called between two commands."""
    query = engine.plan(sql).query
    relations = [engine.schema(table.name) for table in query.tables]
    streams = [relation for relation in dict.fromkeys(relations) if isinstance(relation, Stream)]
    if len(streams) != 1:
        what = "no stream" if not streams else "two streams"
        raise TocsinError(
            f"the query reads {what}", hint="a backtest replays the events that one stream retains"
        )
    stream, retained = streams[0], engine.retained_batches()
    if stream.name not in retained:
        hint = f"declare it with RETAIN, as in CREATE STREAM {stream.name} RETAIN '1 hour'"
        raise TocsinError(f"{stream.name} retains no events", hint=hint)
    tables = {r.name: engine.rows(r.name) for r in relations if isinstance(r, Table)}
    arrivals = retained[stream.name]
    definitions = [str(relation) for relation in dict.fromkeys(relations)]
    by_arrival = query.options.window is not None or query.within is not None
    return BacktestSource(definitions, stream, tables, arrivals, by_arrival)


def backtest(source: BacktestSource, sql: str, limit: int) -> dict[str, Any]:
    """Replay the events; may run in any thread."""
    now = [source.arrivals[0][0] if source.arrivals else _EPOCH]
    engine = Engine(clock=lambda: now[0], retain=False)
    engine.execute("; ".join(source.definitions))
    for name, rows in source.tables.items():
        if rows.num_rows:
            engine.apply(name, rows)
    engine.subscribe(sql)
    times: list[int] = []
    rows_found: list[bytes] = []
    events = 0
    for whens, rows in _batches(source):
        now[0], first = whens[0], engine.last_seq + 1
        deltas = engine.apply(source.stream.name, _batch(source.stream, rows))
        events += len(rows)
        fired = np.unique(deltas.seq[deltas.seq >= first]) - first
        times += [(whens[i] - _EPOCH) // timedelta(microseconds=1) for i in fired.tolist()]
        rows_found += _first_rows(deltas, limit - len(rows_found))
    begin, end = (source.arrivals[i][0] for i in (0, -1)) if source.arrivals else (None, None)
    return {
        "events": events,
        "matched": len(times),
        "begin": None if begin is None else begin.isoformat(),
        "end": None if end is None else end.isoformat(),
        "histogram": [] if begin is None or end is None else _histogram(times, begin, end),
        "rows": rows_found,
    }


def _batches(source: BacktestSource) -> Iterator[tuple[list[datetime], Rows]]:
    """Events with their times of arrival: many together, or by arrival if the query depends on it."""
    run: list[tuple[datetime, Any, Rows]] = []
    for arrival in source.arrivals:
        is_long = sum(len(seq) for _, seq, _ in run) > MOST
        if run and (source.by_arrival or is_long or layout(run[0][2]) != layout(arrival[2])):
            yield _joined(run)
            run = []
        run.append(arrival)
    if run:
        yield _joined(run)


def _joined(run: list[tuple[datetime, Any, Rows]]) -> tuple[list[datetime], Rows]:
    whens = [when for when, seq, _ in run for _ in range(len(seq))]
    return whens, joined([rows for _, _, rows in run])


def _batch(stream: Stream, rows: Rows) -> ChangeBatch:
    count = len(rows)
    return ChangeBatch(stream, np.zeros(count, np.uint8), None, rows, None, np.arange(count))


def _first_rows(deltas: Deltas, limit: int) -> list[bytes]:
    some: Index = np.arange(min(max(limit, 0), len(deltas)))
    return [row_json(row).encode() for row in deltas.take(some).rows()] if len(some) else []


def _histogram(times: list[int], begin: datetime, end: datetime) -> list[dict[str, Any]]:
    """Counts of matches in stretches of equal length."""
    width = max((end - begin) / BINS, timedelta(microseconds=1))
    start, step = (begin - _EPOCH) // timedelta(microseconds=1), width // timedelta(microseconds=1) or 1
    numbers = np.minimum((np.array(times, np.int64) - start) // step, BINS - 1)
    counts = np.bincount(numbers.astype(np.int64), minlength=BINS).tolist()
    return [{"at": (begin + n * width).isoformat(), "count": count} for n, count in enumerate(counts)]
