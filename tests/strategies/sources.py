"""FROM: one table, tables joined by equality as a tree, or two tables joined by a band."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tests.strategies.bands import may_differ, written_band
from tests.strategies.pick import Pick
from tests.strategies.predicates import write_name
from tocsin.language.algebra import Band, Column, Equal, Item, TableRef
from tocsin.model.schema import Relation, Stream, Table

__all__ = ["Source", "band_source", "joined_source", "single_source"]

_ALIASES = ("l", "r", "m", "n")
_ODD_ALIASES = ("left one", "R", "größer", "n.n")


@dataclass(frozen=True)
class Source:
    """The tables of a query: their columns, and the text after FROM; `where` goes into WHERE."""

    text: str
    tables: tuple[TableRef, ...]
    columns: tuple[Column, ...]
    joins: tuple[Equal | Band, ...] = ()
    where: tuple[str, ...] = ()
    merged: tuple[str, ...] = ()  # columns joined by USING, the last one first
    dropped: tuple[Column, ...] = ()  # what they were joined with

    def name(self, pick: Pick, column: Column) -> str:
        """A column as text: bare where that is clear, else with its table."""
        several = len(self.tables) > 1
        alike = [c for c in self.columns if c.name.lower() == column.name.lower()]
        clear = len(alike) == 1 or (column.name in self.merged and column == alike[0])
        alias = column.relation or self.tables[0].alias
        is_open = column.type is None
        bare = write_name(pick, column.name, exact=is_open)
        if clear and not pick.chance(40 if several else 15):
            return bare
        return f"{write_name(pick, alias)}.{bare}"

    def star(self) -> tuple[Item, ...]:
        """What `*` stands for: columns of USING first, names that occur twice with their table."""
        first = [next(c for c in self.columns if c.name == name) for name in self.merged]
        columns = [*first, *(c for c in self.columns if c not in first and c not in self.dropped)]
        names = [c.name for c in columns]
        twice = {name for name in names if names.count(name) > 1}
        return tuple(Item(c, f"{c.relation}.{c.name}" if c.name in twice else c.name) for c in columns)


def single_source(pick: Pick, relation: Table | Stream, columns: Sequence[Column] = ()) -> Source:
    text = write_name(pick, relation.name)
    alias = relation.name
    if pick.chance(25):
        alias = pick.one(_ALIASES)
        text += f" {pick.one(('AS ', ''))}{alias}"
    own = tuple(columns) or tuple(Column(f.name, f.type) for f in relation.fields)
    return Source(text, (TableRef(relation.name, alias),), own)


def joined_source(pick: Pick, tables: Sequence[Table | Stream]) -> Source:
    """Tables joined by equality: each after the first with one before it, by one column or two."""
    parts = _aliased(pick, tables)
    everything = Source("", tuple(part[0] for part in parts), tuple(c for part in parts for c in part[2]))
    columns: list[Column] = []
    joins: list[Equal | Band] = []
    where: list[str] = []
    merged: list[str] = []
    dropped: list[Column] = []
    text = ""
    for i, (_, written, own) in enumerate(parts):
        if i == 0:
            text = written
            columns += own
            continue
        using = _using(pick, columns, own, merged)
        if using is not None:
            left, right = using
            joins.append(Equal(left, right))
            text += f" JOIN {written} USING ({write_name(pick, right.name)})"
            merged = [right.name, *(name for name in merged if name != right.name)]
            dropped.append(right)
            columns += own
            continue
        partner = pick.one(parts[:i])[2]
        pairs = _pairs(pick, partner, own)
        chosen = pick.some(pairs, 1, 2) if pick.chance(30) else [pick.one(pairs)]
        columns += own
        joins += [Equal(left, right) for left, right in chosen]
        conditions = [_equality(pick, everything, left, right) for left, right in chosen]
        style = pick.between(0, 3)
        if style < 2:
            text += f" {pick.one(('JOIN', 'INNER JOIN'))} {written} ON {' AND '.join(conditions)}"
        else:
            text += f" CROSS JOIN {written}" if style == 2 else f" JOIN {written} ON TRUE"
            where += _equalities(pick, chosen)
    return Source(
        text, everything.tables, everything.columns, tuple(joins), tuple(where), tuple(merged), tuple(dropped)
    )


def band_source(pick: Pick, tables: Sequence[Table]) -> Source:
    """Two tables whose columns differ by so much; numbers, or times; sometimes equal in others too."""
    (left_ref, left_text, left), (right_ref, right_text, right) = _aliased(pick, tables)
    all_pairs = _pairs(pick, left, right)
    pairs = [(a, b) for a, b in all_pairs if may_differ(a) and may_differ(b)]
    if not pairs:  # nothing to subtract: join by equality
        return joined_source(pick, tables)
    source = Source("", (left_ref, right_ref), (*left, *right))
    joins: list[Equal | Band] = []
    conditions = []
    for a, b in pick.some(pairs, 1, 2) if pick.chance(15) else [pick.one(pairs)]:
        band, text = written_band(
            pick, lambda c: source.name(pick, c), *((b, a) if pick.chance(50) else (a, b))
        )
        joins.append(band)
        conditions.append(text)
    if pick.chance(20):
        a, b = pick.one(all_pairs)
        joins.append(Equal(a, b))
        conditions.append(_equality(pick, source, a, b))
    text = " AND ".join(conditions)
    if pick.chance(70):
        return replace(source, text=f"{left_text} JOIN {right_text} ON {text}", joins=tuple(joins))
    return replace(source, text=f"{left_text} CROSS JOIN {right_text}", joins=tuple(joins), where=(text,))


# -- parts -----------------------------------------------------------------------------------------

Part = tuple[TableRef, str, tuple[Column, ...]]


def _aliased(pick: Pick, tables: Sequence[Table | Stream]) -> list[Part]:
    """Each table under an alias of its own; a name used once may stand for itself."""
    names = [table.name for table in tables]
    parts: list[Part] = []
    for i, table in enumerate(tables):
        text, alias = write_name(pick, table.name), table.name
        if names.count(table.name) > 1 or pick.chance(50):
            alias = _ODD_ALIASES[i] if pick.chance(10) else _ALIASES[i]
            text += f" {pick.one(('AS ', ''))}{write_name(pick, alias, exact=True)}"
        parts.append((TableRef(table.name, alias), text, _own(table, alias)))
    return parts


def _own(relation: Relation, alias: str) -> tuple[Column, ...]:
    return tuple(Column(f.name, f.type, alias) for f in relation.fields)


def _pairs(pick: Pick, left: Sequence[Column], right: Sequence[Column]) -> list[tuple[Column, Column]]:
    """Columns that can be compared; often only those of two types, such as BIGINT and DOUBLE."""
    alike = [(a, b) for a in left for b in right if a.type and b.type and a.type.kind == b.type.kind]
    mixed = [(a, b) for a, b in alike if a.type is not b.type]
    return mixed if mixed and pick.chance(40) else alike


def _using(
    pick: Pick, before: Sequence[Column], own: Sequence[Column], merged: Sequence[str]
) -> tuple[Column, Column] | None:
    """A column that one table before (or all, merged) and the new one have under the same name."""
    if not pick.chance(30):
        return None
    found = []
    for column in own:
        alike = [c for c in before if c.name == column.name]
        fits = alike and alike[0].type and column.type and alike[0].type.kind == column.type.kind
        if fits and (len(alike) == 1 or column.name in merged):
            found.append((alike[0], column))
    return pick.one(found) if found else None


def _equality(pick: Pick, source: Source, left: Column, right: Column) -> str:
    if pick.chance(50):
        left, right = right, left
    return f"{source.name(pick, left)} = {source.name(pick, right)}"


def _equalities(pick: Pick, chosen: Sequence[tuple[Column, Column]]) -> list[str]:
    """Conditions for WHERE, where all tables are in sight: every column with its table."""

    def qualified(column: Column) -> str:
        return f"{write_name(pick, column.relation)}.{write_name(pick, column.name)}"

    return [f"{qualified(left)} = {qualified(right)}" for left, right in chosen]
