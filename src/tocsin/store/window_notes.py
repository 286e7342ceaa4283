"""What is to be said about an event and a window: whether it is in it, when it leaves, when it left."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np

from tocsin.language.algebra import literal
from tocsin.language.options import FOREVER, print_span
from tocsin.model.columns import Mask, Rows
from tocsin.model.schema import Type
from tocsin.store.presence import KeyWindow
from tocsin.store.tables import TableStore
from tocsin.store.windows import WindowStore

__all__ = ["notes_on_window"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def notes_on_window(store: TableStore, event: Rows) -> tuple[str, ...]:
    """Notes on one event, which may be in the window or may come.

    >>> from tocsin.language.windows import WindowSpec
    >>> from tocsin.model.columns import Vector
    >>> from tocsin.model.schema import Field, Stream
    >>> hits = Stream("hits", (Field("at", Type.TIMESTAMP),))
    >>> store = WindowStore(WindowSpec("hits", 60_000_000, "at"), hits)
    >>> def at(second):
    ...     return Rows.of(at=Vector(Type.TIMESTAMP, np.array([second * 1_000_000]), np.array([True])))
    >>> _ = store.stage_events(at(90), np.array([1]), 0), store.place(np.array([0])), store.commit()
    >>> notes_on_window(store, at(10))[0]
    'at = 1970-01-01 00:00:10 is outside the window, which holds later events than 1970-01-01 00:00:30'
    >>> notes_on_window(store, at(80))
    ('in the window until an event of 1970-01-01 00:02:20 or later comes',)
    """
    assert isinstance(store, WindowStore)
    if isinstance(store, KeyWindow):
        return _on_key(store, event)
    if store.spec.time is None:
        return _by_arrival(store, event)
    found = event.vectors(store.spec.time)
    if not found or not found[0].valid[0]:
        return (f"{store.spec.time} is NULL: an event without event time is in no window",)
    time, bound = int(found[0].values[0]), store.bound
    if bound is not None and time <= bound:
        what = f"{store.spec.time} = {_text(time)} is outside the window"
        left = _text(time + store.spec.span + store.spec.late)
        return (
            f"{what}, which holds later events than {_text(bound)}",
            f"it left when an event of {left} or later came, or was too late",
        )
    until = _text(time + store.spec.span + store.spec.late)
    return (f"in the window until an event of {until} or later comes",)


def _on_key(store: KeyWindow, event: Rows) -> tuple[str, ...]:
    """Notes on the key of an event: when it was seen last, and how long that counts."""
    values = [(f.name, event.vectors(f.name)[0].to_list()[0]) for f in store.schema.fields]
    key = ", ".join(f"{name} = {literal(value)}" for name, value in values)
    seen = store.last_seen(event)
    if seen is None:
        since = "" if store.spec.absent is None else ", so it cannot be absent"
        return (f"no event with {key} is in the window{since}",)
    clock = "" if store.spec.time is None else f" of {store.spec.time}"
    gone = _text(seen + store.spec.span + store.spec.late)
    notes = [f"the last event with {key} was at {_text(seen)}{clock}"]
    if store.is_alive(event):
        notes.append(f"without another one it is absent from {gone}{clock} on")
        return tuple(notes)
    kept = store.spec.absent
    until = "" if kept in (None, FOREVER) else f", and is shown until {_text(seen + kept + store.spec.late)}"
    return (*notes, f"it is absent since {gone}{clock}{until}")


def _by_arrival(store: WindowStore, event: Rows) -> tuple[str, ...]:
    slots = store.alive()
    same: Mask = np.ones(len(slots), np.bool_)
    for name, vector in event.columns:
        if vector.valid[0]:
            column = store.column(name).take(slots)
            value = vector.values[0]
            equal = np.asarray(column.values == value, np.bool_)
            if vector.type is Type.DOUBLE and value != value:
                equal = np.isnan(column.values)
            same &= column.valid & equal
    span = print_span(store.spec.span)
    if not same.any():
        return (f"no such event is in the window now; one that comes stays for {span}",)
    leaves = int(store.times[slots[same]].max()) + store.spec.span
    count = int(same.sum())
    which = "such an event is" if count == 1 else f"{count} such events are"
    last = "it leaves" if count == 1 else "the last one leaves"
    return (f"{which} in the window; {last} at {_text(leaves)}",)


def _text(microseconds: int) -> str:
    """A time in UTC."""
    try:
        return str((_EPOCH + timedelta(microseconds=microseconds)).replace(tzinfo=None))
    except OverflowError:
        return "the end of the calendar"
