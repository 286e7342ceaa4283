"""Why a row counts, or does not, towards a row of an answer over groups.

Of its group each condition of HAVING is shown with what it has so far: `COUNT(*) > 5: 3 so far`. A joined row
may be in several groups; the first few are shown. Of ranked rows it is the place in their order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from tocsin.group.needs import Needs
from tocsin.group.plain import GroupedRows, group_numbers, in_order
from tocsin.group.source import rows_of_table
from tocsin.join.scan import content_of as joined_content
from tocsin.join.scan import explain_row as explain_joined
from tocsin.language.algebra import And, Column, Compare, Measure, Predicate, Query, Truth, atoms, literal
from tocsin.language.shape import Plan
from tocsin.model.columns import Index, Rows, Vector
from tocsin.model.schema import Type
from tocsin.store.step import Step

__all__ = ["explain_row"]

_SHOWN = 3  # groups of a joined row


def explain_row(plan: Plan, place: int, slot: int, step: Step) -> tuple[bool, tuple[str, ...]]:
    """Whether the selected row in `slot` of the table at `place` counts for a row of the answer, and why."""
    query = plan.query
    schemas = {name: store.schema for name, store in step.tables.items()}
    needs = _with_key(Needs.of(query, schemas), query, place, step)
    notes: tuple[str, ...] = ()
    if len(query.tables) > 1:
        joins, notes = explain_joined(needs.inner(plan), place, slot, step)
        if not joins:
            return False, notes
        rows = joined_content(needs.inner(plan), step)
    else:
        rows = rows_of_table(plan, needs.name, step)
    own = _own_rows(needs, query, place, slot, step, rows)
    explained = _explain_ranked if needs.order else _explain_groups
    held, more = explained(query, needs, rows, own)
    return held, (*notes, *more)


def _key_columns(query: Query, place: int, step: Step) -> list[Column]:
    ref = query.tables[place]
    schema, alias = step.tables[ref.name].schema, ref.alias if len(query.tables) > 1 else ""
    fields = [field for field in schema.fields if field.name in schema.key]
    return [Column(field.name, field.type, alias) for field in fields]


def _with_key(needs: Needs, query: Query, place: int, step: Step) -> Needs:
    """The same, that reads the primary key of one table too."""
    names = dict(needs.name)
    for column in _key_columns(query, place, step):
        names.setdefault(column, f"c{len(names)}")
    return replace(needs, name=names)


def _own_rows(needs: Needs, query: Query, place: int, slot: int, step: Step, rows: Rows) -> Index:
    """Which of the rows read are of the row in `slot`."""
    found = np.ones(len(rows), np.bool_)
    store = step.tables[query.tables[place].name]
    for column in _key_columns(query, place, step):
        wanted = store.rows.vectors(column.name)[0].take(np.array([slot]))
        both = Vector.concat([rows.vectors(needs.name[column])[0], wanted]).codes()
        found &= both[:-1] == both[-1]
    return np.flatnonzero(found)


# -- groups ----------------------------------------------------------------------------------------


def _explain_groups(query: Query, needs: Needs, rows: Rows, own: Index) -> tuple[bool, tuple[str, ...]]:
    number, held, notes = group_numbers(needs, rows), False, []
    groups = dict.fromkeys(number[own].tolist())
    for group in list(groups)[:_SHOWN]:
        mine = GroupedRows(query, needs, rows.take(np.flatnonzero(number == group)))
        passes = bool(mine.passes()[0])
        held |= passes
        named = _named(query, needs, mine.rows)
        notes.append(f"it counts in {named}" if named else "it counts towards the answer")
        notes += [f"  {note}" for note in _conditions(query, mine)]
    if len(groups) > _SHOWN:
        notes.append(f"and in {len(groups) - _SHOWN} more groups")
    return held, tuple(notes)


def _named(query: Query, needs: Needs, rows: Rows) -> str:
    """The group of some rows, as text: `page = '/pay', country = 'at'`."""
    first = rows.take(np.array([0]))
    (found,) = first.to_dicts()
    return ", ".join(f"{key} = {literal(found[needs.name[key]])}" for key in needs.keys)


def _conditions(query: Query, group: GroupedRows) -> Iterator[str]:
    """Each part of HAVING with what the group has: yes or no, and how far it is."""
    parts = query.having.args if isinstance(query.having, And) else (query.having,)
    for part in parts:
        if part != Truth(True):
            single = GroupedRows(replace(query, having=part), group.needs, group.rows)
            held = bool(single.passes()[0])
            yield f"{'yes' if held else 'no':<4} {part}: {_so_far(part, group)}"


def _so_far(part: Predicate, group: GroupedRows) -> str:
    """What the measures of a condition are: `3 of 5 so far` where a number must be reached."""
    values: Mapping[Column, object] = {
        atom.column: group.values(
            atom.column.aggregate if isinstance(atom.column, Measure) else atom.column
        ).to_list()[0]
        for atom in atoms(part)
    }
    if isinstance(part, Compare) and part.op in (">", ">=") and len(values) == 1:
        (value,) = values.values()
        wanted = part.value
        if isinstance(wanted, int) and part.column.type is Type.BIGINT and not isinstance(wanted, bool):
            wanted += part.op == ">"
        return f"{literal(value)} of {literal(wanted)} so far"  # type: ignore[arg-type]
    if len(values) == 1:
        return f"it is {literal(next(iter(values.values())))}"  # type: ignore[arg-type]
    return ", ".join(f"{column} is {literal(value)}" for column, value in values.items())  # type: ignore[arg-type]


# -- ranked rows -----------------------------------------------------------------------------------


def _explain_ranked(query: Query, needs: Needs, rows: Rows, own: Index) -> tuple[bool, tuple[str, ...]]:
    assert query.limit is not None
    number = group_numbers(needs, rows)
    notes, held = [], False
    last = query.offset + query.limit
    for row in own[:_SHOWN].tolist():
        mine = np.flatnonzero(number == number[row])
        order = mine[in_order(rows.take(mine), [(key, needs.name[key.column]) for key in needs.order])]
        rank = int(np.flatnonzero(order == row)[0]) + 1
        held |= query.offset < rank <= last
        of = _named(query, needs, rows.take(np.array([row])))
        what = f"rows of {of}" if of else "selected rows"
        first = f"rows {query.offset + 1} to {last}" if query.offset else f"the first {last}"
        notes.append(f"rank {rank} of {len(order)} {what}; the answer holds {first}")
    return held, tuple(notes)
