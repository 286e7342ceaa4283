"""Names: resolve the tables and columns that a query names.

Unquoted names ignore case, quoted names match exactly; results carry the declared spelling. An attribute of
an open stream keeps the spelling of the query; its type is unknown. A column merged by USING
belongs to the first table that has it and needs no qualifier.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sqlglot import exp

from tocsin.language.algebra import Column, TableRef
from tocsin.language.dialect import SourceText
from tocsin.language.hints import nearest
from tocsin.language.literals import ConstantReader
from tocsin.language.nested import NestedReader
from tocsin.model.schema import Catalog, Field, Stream, Table, quote

__all__ = ["NameScope", "ScopeEntry", "nearest", "relation_of"]


@dataclass(frozen=True, slots=True)
class ScopeEntry:
    """One table of FROM."""

    ref: TableRef
    relation: Table | Stream
    node: exp.Expr
    written: str = ""  # the alias in a subquery, where another one is used for it

    @property
    def name(self) -> str:
        """The name that the text uses."""
        return self.written or self.ref.alias


@dataclass(slots=True)
class NameScope:
    """The tables of one query, and the columns that USING has merged (name in lower case -> column)."""

    source: SourceText
    entries: list[ScopeEntry] = field(default_factory=list)
    merged: dict[str, Column] = field(default_factory=dict)
    qualified: bool = False  # more than one table: columns carry the alias

    def column(self, node: exp.Column) -> Column:
        """The column that a node names."""
        name = node.this
        if not isinstance(name, exp.Identifier) or node.args.get("db"):
            raise self.source.error(
                "a column is named by its name, or table.name", node, "use at most two parts"
            )
        if node.args.get("table"):
            return self._in_table(self.table(node.args["table"], node), name)
        return self._in_any_table(name)

    def nested(self, node: exp.Expr, literals: ConstantReader) -> Column | None:
        """The attribute of a node about something inside an attribute; None if there can be nothing inside.

        The name of the stream before a path is not a part of it.
        """
        if len(self.entries) != 1 or not self.entries[0].relation.open:
            return None
        alias = self.entries[0].ref.alias
        if isinstance(node, exp.Column) and not node.args.get("db") and node.args["table"].name == alias:
            return None
        return NestedReader(self.source, literals).column(node)

    def table(self, name: exp.Identifier, node: exp.Expr) -> ScopeEntry:
        """The table with this alias in the query."""
        if (found := self.entry(name)) is not None:
            return found
        aliases = [entry.name for entry in self.entries]
        hint = nearest(name.name, aliases) or f"the query reads {', '.join(aliases)}"
        if any(entry.relation.open for entry in self.entries):
            hint = "put an attribute with a dot in its name in backticks"
        raise self.source.error(f"there is no table {name.name!r} in the query", name, hint)

    def entry(self, name: exp.Identifier) -> ScopeEntry | None:
        """The table with this alias; None if there is none."""
        for entry in self.entries:
            if entry.name == name.name:
                return entry
        alike = (entry for entry in self.entries if entry.name.lower() == name.name.lower())
        return None if name.quoted else next(alike, None)

    def _in_table(self, entry: ScopeEntry, name: exp.Identifier) -> Column:
        found = self._field(entry, name)
        if found is None:
            hint = (
                nearest(name.name, entry.relation.names)
                or f"its columns are {', '.join(entry.relation.names)}"
            )
            raise self.source.error(f"there is no column {name.name!r} in {entry.ref.alias}", name, hint)
        return found

    def _in_any_table(self, name: exp.Identifier) -> Column:
        found = [column for entry in self.entries if (column := self._field(entry, name)) is not None]
        if len(found) > 1:
            if (merged := self.merged.get(found[0].name.lower())) is not None and merged in found:
                return merged
            choices = " or ".join(map(str, found))
            raise self.source.error(
                f"column {name.name!r} is in more than one table", name, f"write {choices}"
            )
        if found:
            return found[0]
        names = [n for entry in self.entries for n in entry.relation.names]
        where = self.entries[0].ref.name if len(self.entries) == 1 else "any table of the query"
        hint = nearest(name.name, names) or f"the columns are {', '.join(names)}"
        raise self.source.error(f"there is no column {name.name!r} in {where}", name, hint)

    def _field(self, entry: ScopeEntry, name: exp.Identifier) -> Column | None:
        if entry.relation.open:
            return Column(name.name, None, "")
        found = entry.relation.find(name.name, exact=bool(name.quoted))
        return None if found is None else self.column_of(entry, found)

    def column_of(self, entry: ScopeEntry, found: Field) -> Column:
        return Column(found.name, found.type, entry.ref.alias if self.qualified else "")


def relation_of(name: exp.Identifier, catalog: Catalog, source: SourceText) -> Table | Stream:
    """The stream or table with this name."""
    if (exact := catalog.get(name.name)) is not None:
        return exact
    alike = [] if name.quoted else [r for key, r in catalog.items() if key.lower() == name.name.lower()]
    if len(alike) == 1:
        return alike[0]
    if alike:
        choices = " or ".join(quote(r.name) for r in alike)
        raise source.error(
            f"{name.name!r} matches more than one table", name, f"write {choices} in backticks"
        )
    hint = nearest(name.name, list(catalog)) or ("define it first: CREATE TABLE ... or CREATE STREAM ...")
    raise source.error(f"there is no table or stream {name.name!r}", name, hint)
