"""Outer joins, subqueries and UNION ALL: texts, and what they are meant to say."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.strategies.bands import may_differ, written_band
from tests.strategies.pick import Pick
from tests.strategies.predicates import condition, write, write_name
from tests.strategies.values import Values
from tests.strategies.written import WrittenQuery
from tocsin.language.algebra import (
    And,
    Band,
    Column,
    Equal,
    Existence,
    Item,
    OuterJoin,
    Predicate,
    Query,
    TableRef,
    Truth,
)
from tocsin.model.schema import Table

__all__ = ["COMPOSED"]

_WORDS = {"LEFT": ("LEFT JOIN", "left outer join"), "RIGHT": ("RIGHT JOIN",), "FULL": ("FULL JOIN",)}


def _columns(table: Table, alias: str) -> tuple[Column, ...]:
    return tuple(Column(field.name, field.type, alias) for field in table.fields)


def _named(pick: Pick) -> Callable[[Column], str]:
    def name(column: Column) -> str:
        bare = write_name(pick, column.name)
        return f"{column.relation}.{bare}" if column.relation else bare

    return name


def _from(pick: Pick, table: Table, alias: str) -> str:
    return f"{write_name(pick, table.name)} {pick.one(('AS ', ''))}{alias}"


def _items(pick: Pick, columns: Sequence[Column]) -> tuple[str, tuple[Item, ...]]:
    names, chosen = _named(pick), pick.some(columns, 1, 3)
    items = tuple(Item(column, f"c{n}") for n, column in enumerate(chosen))
    return ", ".join(f"{names(i.expression)} AS {i.name}" for i in items), items  # type: ignore[arg-type]


def _all(parts: Sequence[Predicate]) -> Predicate:
    """A conjunction as the parser reads it: flat."""
    flat: list[Predicate] = []
    for part in parts:
        flat += part.args if isinstance(part, And) else [part]
    flat = [part for part in flat if part != Truth(True)]
    return Truth(True) if not flat else flat[0] if len(flat) == 1 else And(tuple(flat))


def _joins(
    pick: Pick, left: Sequence[Column], right: Sequence[Column], fewest: int = 1
) -> tuple[list[Equal | Band], list[str]]:
    """Equalities and bands between two tables."""
    names = _named(pick)
    pairs = [(a, b) for a in left for b in right if a.type and b.type and a.type.kind == b.type.kind]
    joins: list[Equal | Band] = []
    texts: list[str] = []
    for a, b in pick.some(pairs, fewest, 2) if pairs and pick.between(0, 1) + fewest else []:
        if may_differ(a) and may_differ(b) and pick.chance(20):
            band, text = written_band(pick, names, a, b)
            if not any(isinstance(j, Band) and {j.left, j.right} == {a, b} for j in joins):
                joins.append(band)
                texts.append(text)
        elif not {Equal(a, b), Equal(b, a)} & set(joins):
            joins.append(Equal(a, b))
            texts.append(f"{names(a)} = {names(b)}")
    return joins, texts


def _where(pick: Pick, predicate: Predicate, texts: Sequence[str] = ()) -> str:
    parts = list(texts)
    if predicate != Truth(True):
        parts.append(f"({write(pick, predicate, _named(pick))})")
    return " AND ".join(parts)


def outer_join(pick: Pick, tables: Sequence[Table], values: Values) -> WrittenQuery:
    """LEFT, RIGHT or FULL JOIN, with conditions of either table in ON and of both in WHERE."""
    first, second = pick.one(tables), pick.one(tables)
    left, right = _columns(first, "l"), _columns(second, "r")
    joins, texts = _joins(pick, left, right)
    side = pick.one(tuple(_WORDS))
    on = [condition(pick, values, some) for some in (left, right) if pick.chance(35)]
    texts += [f"({write(pick, part, _named(pick))})" for part in on if part != Truth(True)]
    where = Truth(True) if pick.chance(40) else condition(pick, values, (*left, *right))
    select, items = _items(pick, (*left, *right))
    sql = f"SELECT {select} FROM {_from(pick, first, 'l')} {pick.one(_WORDS[side])} "
    sql += f"{_from(pick, second, 'r')} ON {' AND '.join(texts)}"
    sql += f" WHERE {_where(pick, where)}" if where != Truth(True) else ""
    refs = TableRef(first.name, "l"), TableRef(second.name, "r")
    outer = OuterJoin(side, _all(on))
    return WrittenQuery(sql, Query(items, refs, tuple(joins), where, outer=outer))


def semi_join(pick: Pick, tables: Sequence[Table], values: Values) -> WrittenQuery:
    """Rows of a table with EXISTS, NOT EXISTS, IN and NOT IN."""
    first = pick.one(tables)
    own = _columns(first, "o")
    found, refs, texts = [], [TableRef(first.name, "o")], []
    for n in range(pick.between(1, 2)):
        second = pick.one(tables)
        inner, alias = _columns(second, f"i{n}"), f"i{n}"
        joins, parts = _joins(pick, own, inner, fewest=0)
        wanted = [condition(pick, values, some) for some in (inner, own) if pick.chance(35)]
        member = _member(pick, own, inner) if pick.chance(50) else None
        parts += [f"({write(pick, part, _named(pick))})" for part in wanted if part != Truth(True)]
        negated = pick.chance(60)
        name, no = _named(pick), "NOT " if negated else ""
        body = f"FROM {_from(pick, second, alias)}" + (f" WHERE {' AND '.join(parts)}" if parts else "")
        if member is None:
            texts.append(f"{no}EXISTS (SELECT {pick.one(('1', '*', name(inner[0])))} {body})")
        else:
            in_text = f"{name(member[0])} {no}IN (SELECT {name(member[1])} {body})"
            texts.append(in_text)
        found.append(Existence(alias, tuple(joins), _all(wanted), negated, member))
        refs.append(TableRef(second.name, alias))
    where = Truth(True) if pick.chance(40) else condition(pick, values, own)
    select, items = _items(pick, own)
    sql = f"SELECT {select} FROM {_from(pick, first, 'o')} WHERE {_where(pick, where, texts)}"
    return WrittenQuery(sql, Query(items, tuple(refs), where=where, exists=tuple(found)))


def _member(pick: Pick, own: Sequence[Column], inner: Sequence[Column]) -> tuple[Column, Column] | None:
    pairs = [(a, b) for a in own for b in inner if a.type and b.type and a.type.kind == b.type.kind]
    return pick.one(pairs) if pairs else None


def union_all(pick: Pick, tables: Sequence[Table], values: Values) -> WrittenQuery:
    """Two or three branches: filters, subqueries, outer joins."""
    makers = (_branch, _branch, outer_join, semi_join)
    first = pick.one(makers)(pick, tables, values)
    branches, texts = [first.query], [first.sql]
    wanted = [item.expression.type for item in first.query.items]  # type: ignore[union-attr]
    for _ in range(pick.between(1, 2)):
        for _ in range(4):
            other = pick.one(makers)(pick, tables, values)
            if [item.expression.type for item in other.query.items] == wanted:  # type: ignore[union-attr]
                break
        else:
            other = first
        branches.append(other.query)
        texts.append(other.sql)
    items = tuple(Item(Column(i.name, t), i.name) for i, t in zip(first.query.items, wanted, strict=True))
    refs = tuple(ref for branch in branches for ref in branch.tables)
    return WrittenQuery(" UNION ALL ".join(texts), Query(items, refs, branches=tuple(branches)))


def _branch(pick: Pick, tables: Sequence[Table], values: Values) -> WrittenQuery:
    table = pick.one(tables)
    columns = tuple(Column(field.name, field.type) for field in table.fields)
    where = condition(pick, values, columns)
    select, items = _items(pick, columns)
    sql = f"SELECT {select} FROM {write_name(pick, table.name)}"
    sql += f" WHERE {_where(pick, where)}" if where != Truth(True) else ""
    return WrittenQuery(sql, Query(items, (TableRef(table.name, table.name),), where=where))


COMPOSED: dict[str, Callable[[Pick, Sequence[Table], Values], WrittenQuery]] = {
    "outer": outer_join,
    "semijoin": semi_join,
    "union": union_all,
}
