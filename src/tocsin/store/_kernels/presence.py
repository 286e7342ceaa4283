"""The compiled loop of stores of keys: which keys have events in a window, event by event."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.compiled import kernel
from tocsin.store._kernels import pop_time, push_time

__all__ = ["ABSENT", "ALIVE", "NOWHERE", "KeyChanges", "KeyEvents", "KeyTimes", "Spans", "follow_keys"]

ALIVE, ABSENT = np.uint8(1), np.uint8(2)
"""States of a key: it has events in the window; it had some. Neither: it is not known."""

NOWHERE = np.int32(-1)
_NEW = -2  # the first row that a step makes; further ones are below


class KeyTimes(NamedTuple):
    """Of each key: the time of its last event, its row (or NOWHERE), its state."""

    last: NDArray[np.int64]
    row: NDArray[np.int32]
    state: NDArray[np.uint8]


class Spans(NamedTuple):
    """How long a key has events after the last one, and how long after it an absent one is kept (-1: not)."""

    alive: int
    kept: int
    shows_absent: bool  # rows are of absent keys, not of those alive


class KeyEvents(NamedTuple):
    """Events in order: their keys (-1: none, only the clock), times, and the clock then."""

    key: NDArray[np.int64]
    time: NDArray[np.int64]
    clock: NDArray[np.int64]


class KeyChanges(NamedTuple):
    """Changes of keys: at which event, which key; rows before and after; what is needed to undo it."""

    event: NDArray[np.int64]
    key: NDArray[np.int64]
    old: NDArray[np.int32]
    new: NDArray[np.int32]
    last: NDArray[np.int64]
    state: NDArray[np.uint8]


@kernel(inline=True, allocates=False)
def _note(out, n, i, key, keys, new):
    """Note a change of a key, which has the row `new` from now on."""
    out.event[n], out.key[n], out.old[n], out.new[n] = i, key, keys.row[key], new
    out.last[n], out.state[n] = keys.last[key], keys.state[key]
    keys.row[key] = new


@kernel(allocates=False)
def follow_keys(keys, spans, leaving, forgotten, events, out):
    """Follow events and the clock; returns how many changes there are.

    `leaving` has one entry for each key alive, not after its time; `forgotten` one for each absent key, if
    these are kept for some time, and none or one for those alive. An event of a key alive touches no heap.
    """
    n, made = 0, 0
    for i in range(len(events.key)):
        clock = events.clock[i]
        while leaving.used[0] > 0 and leaving.time[0] <= clock:
            key = pop_time(leaving)
            due = keys.last[key] + spans.alive
            if due > clock:
                push_time(leaving, due, key)
            elif spans.shows_absent:
                _note(out, n, i, key, keys, _NEW - made)
                keys.state[key] = ABSENT
                made += 1
                n += 1
                if spans.kept >= 0:
                    push_time(forgotten, keys.last[key] + spans.kept, key)
            else:
                _note(out, n, i, key, keys, NOWHERE)
                keys.state[key] = 0
                n += 1
        while spans.kept >= 0 and forgotten.used[0] > 0 and forgotten.time[0] <= clock:
            time = forgotten.time[0]
            key = pop_time(forgotten)
            if keys.state[key] == ABSENT and keys.last[key] + spans.kept == time:
                _note(out, n, i, key, keys, NOWHERE)
                keys.state[key] = 0
                n += 1
        key = events.key[i]
        if key < 0:
            continue
        if keys.state[key] == ALIVE:
            keys.last[key] = max(keys.last[key], events.time[i])
            continue
        if spans.shows_absent:
            _note(out, n, i, key, keys, NOWHERE)
        else:
            _note(out, n, i, key, keys, _NEW - made)
            made += 1
        n += 1
        keys.last[key], keys.state[key] = events.time[i], ALIVE
        push_time(leaving, events.time[i] + spans.alive, key)
    return n
