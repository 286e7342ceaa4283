"""Why an event would, or would not, be emitted with the events that a join of streams has kept."""

from __future__ import annotations

import numpy as np

from tocsin.enrich.virtual import virtual_plan
from tocsin.language.shape import Plan
from tocsin.limits.dropped import NEVER
from tocsin.limits.join_keys import is_exact, key_hashes
from tocsin.limits.stream_family import StreamFamily
from tocsin.model.columns import Rows
from tocsin.model.schema import Type
from tocsin.predicate.evaluate import Facts

__all__ = ["explain_join"]

_DAY = 86_400_000_000


def explain_join(
    family: StreamFamily, plan: Plan, place: int, event: Rows, now: int
) -> tuple[bool, tuple[str, ...]]:
    """Whether pairs of an event that comes now, on the side of `place`, satisfy the plan's conditions."""
    other, alias = family.rows.buffers[1 - place], plan.query.tables[1 - place].alias
    key, timing = family.spec.keys[place], family.spec.timing
    if other is None or not other.count:
        return False, (f"{alias}: no event is kept",)
    hashes, valid = key_hashes(key, tuple(event.vectors(name)[0] for name in key.columns))
    if not valid[0]:
        return False, ("its join key is NULL",)
    time = now
    if timing.clock == "event":
        column = timing.columns[place] if timing.columns is not None else family.time_columns[place]
        vector = event.vectors(column)[0] if column else None
        if vector is None or not vector.valid[0]:
            return False, ("its event time is NULL",)
        time = int(vector.values[0]) * (_DAY if vector.type is Type.DATE else 1)
    code = family.rows.keys.find(hashes)
    kept = np.empty(0, np.int64)
    if code[0] >= 0:
        times = np.array([time], np.int64)
        _, kept, _ = family.rows.look_up(place, code, times, NEVER)
    columns_of = {}
    for name, (side, own) in family.columns.items():
        if side == place:
            columns_of[name] = event.vectors(own)[0].take(np.zeros(len(kept), np.int64))
        else:
            columns_of[name] = other.take(own, kept)
    passing = int(
        Facts(Rows(list(columns_of.items()), len(kept))).matches(virtual_plan(plan).filters[0]).sum()
    )
    hashed = "" if is_exact(key) else " (by a hash of the key)"
    notes = [
        f"{alias}: {_count(len(kept), 'event')} kept that it joins{hashed}, {passing} of these pairs satisfy "
        "the conditions"
    ]
    missed = 0 if code[0] < 0 else int(family.rows.keys.arrays.gone[1 - place, code[0]])
    if missed:
        about = "" if family.rows.dropped.weight == 1 else "about "
        notes.append(
            f"{alias}: {about}{_count(missed * family.rows.dropped.weight, 'event')} with its key dropped"
        )
    return passing > 0, tuple(notes)


def _count(number: int, what: str) -> str:
    return f"1 {what}" if number == 1 else f"{number} {what}s"
