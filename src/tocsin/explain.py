"""Why a row is, or is not, in an answer.

Each predicate is evaluated by itself, alternatives on lines of their own. Then the subscription's room says
what else decides: how many partners a join finds and how many of them pass their own conditions; the rank
of a row in a top-k; the extreme that is in the answer instead. The row may be in the table or hypothetical:
it is staged for the explanation and rolled back. Columns not given are those of the row with the same
key, if there is one.

>>> from tocsin import Engine
>>> e = Engine()
>>> e.execute("CREATE TABLE stocks (symbol STRING, per DOUBLE, PRIMARY KEY (symbol))")
>>> s = e.subscribe("SELECT * FROM stocks WHERE per > 5 AND symbol LIKE 'A%'")
>>> print(e.explain(s, {"symbol": "ABC", "per": 3}))
subscription 1 (filter): the row is not in the answer
  no   per > 5
  yes  symbol LIKE 'A%'
>>> s = e.subscribe("SELECT * FROM stocks WHERE symbol = 'X' OR (per > 2 AND NOT per BETWEEN 3 AND 4)")
>>> print(e.explain(s, {"symbol": "ABC", "per": 3}))
subscription 2 (filter): the row is not in the answer
  no   any of
  no     symbol = 'X'
  no     all of
  yes      per > 2
  no       NOT per BETWEEN 3 AND 4
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from tocsin.errors import TocsinError
from tocsin.language.algebra import And, Not, Or, Predicate, Truth, atoms
from tocsin.language.scope import nearest
from tocsin.language.shape import Plan, relations_of
from tocsin.language.shape import plan as plan_of
from tocsin.language.windows import WindowSpec, over_windows, windows_of
from tocsin.model.change import ChangeBatch
from tocsin.model.columns import Rows, SparseRows, Vector
from tocsin.model.schema import Stream, Table, read
from tocsin.predicate.evaluate import Facts
from tocsin.room import Room
from tocsin.store.database import Database
from tocsin.store.presence import KeyWindow
from tocsin.store.step import Step
from tocsin.store.window_notes import notes_on_window

__all__ = ["Check", "Explanation", "explain"]


@dataclass(frozen=True)
class Check:
    """One predicate and whether it held; None is unknown (a NULL, a missing attribute).

    The operands of "any of", "all of" and "NOT" follow, one level deeper.
    """

    text: str
    held: bool | None
    level: int = 0
    why: str = ""  # why it is unknown

    def __str__(self) -> str:
        word = {True: "yes", False: "no", None: "?"}[self.held]
        why = "" if self.held is not None else f"  (unknown: {self.why})" if self.why else "  (unknown)"
        return f"  {word:<4} {'  ' * self.level}{self.text}{why}"


@dataclass(frozen=True)
class Explanation:
    """Whether the row is in the answer (None: unknown), each predicate, and notes on what else decides.

    `subscription` is 0 for a query that is not registered.
    """

    subscription: int
    shape: str
    held: bool | None
    checks: tuple[Check, ...]
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        place = {True: "is in", False: "is not in", None: "may be in"}[self.held]
        name = f"subscription {self.subscription}" if self.subscription else "the query"
        head = f"{name} ({self.shape}): the row {place} the answer"
        return "\n".join([head, *map(str, self.checks), *(f"  {note}" for note in self.notes)])

    def but_not(self, why: str) -> Explanation:
        """The same, with another reason why the row is not in the answer."""
        return replace(self, held=False, notes=(*self.notes, why))

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def explain(
    id: int,
    plan: Plan,
    room: Room,
    database: Database,
    row: Mapping[str, Any],
    table: str | None = None,
    now: int = 0,
) -> Explanation:
    """Why `row` is or is not in the answer of a plan that `room` answers; `now`: as in a step.

    If the row fits several places of the query (a table joined with itself), each is tried; a place
    where the row is in the answer is preferred.
    """
    if not isinstance(row, Mapping):
        raise TocsinError(f"a row is a dict, not {type(row).__name__}")
    places = _places(plan, database, row, table)
    tried = [_explain_at(place, id, plan, room, database, row, now) for place in places]
    return next((found for found in tried if found.held), tried[0])


def _explain_at(
    place: int, id: int, plan: Plan, room: Room, database: Database, row: Mapping[str, Any], now: int
) -> Explanation:
    relation = database.relation(plan.query.tables[place].name)
    alias = plan.query.tables[place].alias if len(plan.query.tables) > 1 else ""
    whole = _whole(relation, database, row)
    facts = Facts(_one_row(relation, whole))
    checks, shared = [], []
    for part, text, level in _parts(plan.query.where):
        by_itself = _by_itself(facts, part, alias)
        if by_itself is not None or _concerns(part, alias):
            why = _why_unknown(part, whole) if by_itself is None else ""
            checks.append(Check(text, by_itself, level, why))
        elif alias in _relations(part):
            shared.append(f"depends on the rows it joins: {part}")
    held: bool | None = bool(facts.matches(plan.filters[place])[0])
    notes: tuple[str, ...] = ()
    window = windows_of(plan.query, database.catalog)[place]
    if window is not None and window.table in database.tables:
        notes = notes_on_window(database.tables[window.table], _one_row(relation, whole))
        if window.absent is not None:
            store, event = database.tables[window.table], _one_row(relation, whole)
            assert isinstance(store, KeyWindow)
            held = store.last_seen(event) is not None and not store.is_alive(event)
            form = plan_of(_over_windows(plan, database).query).filters[0]
            held = held and bool(facts.matches(form)[0])
        elif held:
            held, more = _as_new_event(plan, place, window, room, database, whole)
            notes += more
    elif held and isinstance(relation, Stream) and not room.row_decides:
        step = Step(database.tables, now=now)
        held, notes = room.explain_event(plan, place, _one_row(relation, whole), step)
    elif held and not room.row_decides:
        assert isinstance(relation, Table)
        if all(whole.get(name) is not None for name in relation.key):
            with _staged(database, relation.name, whole) as (step, slot):
                held, notes = room.explain(_over_windows(plan, database), place, slot, step)
        else:
            held, notes = None, (f"give the key ({', '.join(relation.key)}) to learn more",)
    return Explanation(id, str(plan.shape), held, tuple(checks), (*shared, *notes))


def _as_new_event(
    plan: Plan, place: int, window: WindowSpec, room: Room, database: Database, event: Mapping[str, Any]
) -> tuple[bool | None, tuple[str, ...]]:
    """Whether an event that came now would be in the answer, and notes why; its conditions hold."""
    batch, bad = ChangeBatch.from_dicts(database.relation(window.stream), [event])
    step = database.stage({window.stream: batch.or_raise(bad)})
    try:
        changed = step.changed.get(window.table)
        came = np.empty(0, np.int64) if changed is None else changed.new[changed.new >= 0]
        if not len(came):
            return False, ()
        if room.row_decides:
            return True, ()
        return room.explain(_over_windows(plan, database), place, int(came[-1]), step)
    finally:
        database.rollback()


def _over_windows(plan: Plan, database: Database) -> Plan:
    """The plan over the tables of its windows' events, as rooms have it."""
    return replace(plan, query=over_windows(plan.query, windows_of(plan.query, database.catalog)))


def _places(plan: Plan, database: Database, row: Mapping[str, Any], table: str | None) -> list[int]:
    """The places in FROM that fit the row: by alias, by table, or by its columns."""
    tables = plan.query.tables
    if table is not None:
        wanted = str(table).lower()
        found = [p for p, t in enumerate(tables) if t.alias.lower() == wanted]
        found = found or [p for p, t in enumerate(tables) if t.name.lower() == wanted]
    else:
        relations = [database.relation(t.name) for t in tables]
        found = [p for p, r in enumerate(relations) if r.open or all(r.find(str(n)) for n in row)]
        if len(tables) == 1 and all(isinstance(name, str) for name in row):
            found = [0]  # unknown columns are reported below
    if not found:
        names = ", ".join(dict.fromkeys(t.name for t in tables))
        hint = f"it reads {names}; name one with table="
        raise TocsinError("the row is of no table of the query", hint=hint)
    return found


def _whole(relation: Table | Stream, database: Database, row: Mapping[str, Any]) -> dict[str, Any]:
    """The row by declared names and types, completed from the row with its key if the table has one."""
    if relation.open:
        return dict(row)
    given: dict[str, Any] = {}
    for name, value in row.items():
        field = relation.find(name)
        if field is None:
            known = f"it has {', '.join(relation.names)}"
            raise TocsinError(
                f"{relation.name} has no column {name!r}", hint=nearest(name, relation.names) or known
            )
        try:
            given[field.name] = read(field.type, value)
        except ValueError as error:
            raise TocsinError(f"column {field.name}: {error}") from None
    store = database.tables.get(relation.name)
    if store is None or any(given.get(name) is None for name in store.schema.key):
        return given
    slot = store.find(store.keys(_one_row(relation, given))[0])
    return given if slot is None else store.rows.to_dicts(np.array([slot]))[0] | given


def _one_row(relation: Table | Stream, row: Mapping[str, Any]) -> Rows:
    if relation.open:
        try:
            return SparseRows.from_dicts([row])
        except ValueError as error:
            raise TocsinError(str(error)) from None
    return Rows([(f.name, Vector.of(f.type, [row.get(f.name)])) for f in relation.fields], 1)


def _parts(where: Predicate, level: int = 0) -> Iterator[tuple[Predicate, str, int]]:
    """The predicates of a condition, their text and nesting level; an OR across tables is one predicate."""
    if isinstance(where, And) and not level:
        for arg in where.args:
            yield from _parts(arg)
    elif isinstance(where, And | Or) and len(_relations(where)) < 2:
        yield where, "any of" if isinstance(where, Or) else "all of", level
        for arg in where.args:
            yield from _parts(arg, level + 1)
    elif isinstance(where, Not) and isinstance(where.arg, And | Or) and len(_relations(where)) < 2:
        yield where, "NOT", level
        yield from _parts(where.arg, level + 1)
    elif where != Truth(True):
        yield where, str(where), level


def _relations(part: Predicate) -> set[str]:
    return relations_of(part)


def _concerns(part: Predicate, alias: str) -> bool:
    return _relations(part) <= {alias}


def _by_itself(facts: Facts, part: Predicate, alias: str) -> bool | None:
    """The truth of a predicate for the row alone; None: unknown, or other tables decide."""
    if _concerns(part, alias):
        return _truth(facts, part)
    if not isinstance(part, And | Or):
        return None
    decides = isinstance(part, Or)
    found = [_by_itself(facts, arg, alias) for arg in part.args]
    return decides if decides in found else None if None in found else not decides


def _why_unknown(part: Predicate, row: Mapping[str, Any]) -> str:
    """A NULL of the row or of the condition; or, in an open stream, a value of another type."""
    if isinstance(part, And | Or) or (isinstance(part, Not) and isinstance(part.arg, And | Or)):
        return ""  # its operands say why
    there = [name for atom in atoms(part) if row.get(name := atom.column.name) is not None]
    if not there:
        return "NULL or missing"
    if any(None in (getattr(atom, "value", ""), *getattr(atom, "values", ())) for atom in atoms(part)):
        return "compared with NULL"
    return f"{there[0]} is {row[there[0]]!r}"


def _truth(facts: Facts, part: Predicate) -> bool | None:
    true, false = facts.outcome(part)
    return True if true[0] else False if false[0] else None


@contextmanager
def _staged(database: Database, table: str, row: Mapping[str, Any]) -> Iterator[tuple[Step, int]]:
    """The database as it would be with the row in it, and the row's slot; rolled back afterwards."""
    batch, bad = ChangeBatch.from_dicts(database.relation(table), [row], "upsert")
    step = database.stage({table: batch.or_raise(bad)})
    try:
        yield step, int(step.changed[table].new[0])
    finally:
        database.rollback()
