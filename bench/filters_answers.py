"""Shared by the parts of `filters_show.py`: batches of events, engines and indexes, expected answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from claims import Run

from tocsin import Engine
from tocsin.engine import Rooms
from tocsin.errors import TocsinError
from tocsin.lab.bench.brute_force import brute_answers
from tocsin.lab.bench.match import (
    STREAM,
    build_filters,
    event_rows,
)
from tocsin.match.base import MatchIndex, pack, unpack
from tocsin.match.index import Auto

MILLION = 1_000_000
SAMPLE = 1000  # subscriptions compared with the reference
FEW = 100  # subscriptions loaded before anything is timed, so that all kernels are compiled


def slices(table: Any, size: int) -> list[Any]:
    return [table.slice(at, size) for at in range(0, table.num_rows, size)]


def rows_of(events: Any, size: int) -> list[Any]:
    """Events in batches, as input of an index."""
    return [event_rows(part) for part in slices(events, size)]


def matching(index: MatchIndex, batches: Sequence[Any]) -> Run:
    def run() -> None:
        for rows in batches:
            index.match(rows)

    return run


def require_equal(what: str, totals: Mapping[str, Any]) -> None:
    if len(set(totals.values())) > 1:
        raise TocsinError(f"{what}: matches and checksums differ: {totals}")


def pairs_of(engine: Engine, stream: str, events: Any) -> Any:
    """The matches that an engine emits for events: (subscription, event), packed."""
    base = engine.last_seq + 1
    deltas = engine.apply(stream, events)
    return pack(deltas.subscription, deltas.seq - base)


def right_by_id(subscriptions: Any, events: Any) -> Any:
    """The matches that brute force finds, by subscription id."""
    row, event = unpack(brute_answers(subscriptions, events))
    return np.sort(pack(subscriptions["id"].to_numpy()[row], event))


def new_engine(definition: str = str(STREAM), index: MatchIndex | None = None) -> Engine:
    engine = Engine(rooms=None if index is None else Rooms(match=lambda: index))
    engine.execute(definition)
    return engine


def built_from(subscriptions: Any, threads: int = 1) -> Auto:
    """An index of Arrow subscriptions that has finished building."""
    index = Auto(threads=threads)
    filters = build_filters(STREAM, subscriptions)
    index.add(np.arange(filters.count), filters)
    index.wait()
    return index
