"""Subqueries of one level: EXISTS, NOT EXISTS, IN and NOT IN as conjuncts of WHERE.

A subquery reads one table. Its conditions compare that table with a table outside (*correlation*), or concern
one of both alone. A name in it refers to its own table first, then to a table outside.

>>> from tocsin.language.sql import parse_query
>>> from tocsin.model.schema import Field, Table, Type
>>> tables = {n: Table(n, (Field("k", Type.BIGINT), Field(n, Type.STRING)), ("k",)) for n in "ab"}
>>> text = "SELECT a FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.k = a.k AND b = 'x')"
>>> print(parse_query(text, tables))
SELECT a.a FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.k = a.k AND b.b = 'x')
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from tocsin.language.algebra import And, Column, Existence, Predicate, TableRef, Truth, atoms
from tocsin.language.conditions import ConditionReader, operands, unwrap
from tocsin.language.dialect import SourceText
from tocsin.language.joins import JoinReader
from tocsin.language.literals import ConstantReader
from tocsin.language.scope import NameScope, ScopeEntry, relation_of
from tocsin.model.schema import Catalog, Stream, quote

__all__ = ["SubqueryReader", "conjunction", "is_subquery_condition", "reject_mixed", "subqueries_of"]

_FORMS = "write EXISTS (SELECT 1 FROM t WHERE t.k = a.k) or x IN (SELECT y FROM t), alone or beside AND"
_PLAIN = {"expressions", "from_", "where", "distinct"}


def is_subquery_condition(node: exp.Expr) -> bool:
    """Whether a conjunct is EXISTS or IN with a subquery, or NOT of one."""
    inner = unwrap(node)
    while isinstance(inner, exp.Not):
        inner = unwrap(inner.this)
    if isinstance(inner, exp.In):
        return inner.args.get("query") is not None
    return isinstance(inner, exp.Exists) and isinstance(inner.this, exp.Select | exp.Subquery)


def subqueries_of(select: exp.Select) -> list[exp.Expr]:
    """The conjuncts of WHERE that have a subquery."""
    where = select.args.get("where")
    return [] if where is None else [n for n in operands(where.this, exp.And) if is_subquery_condition(n)]


def conjunction(parts: tuple[Predicate, ...]) -> Predicate:
    """All of these."""
    return Truth(True) if not parts else parts[0] if len(parts) == 1 else And(parts)


def reject_mixed(found: list[tuple[exp.Expr, Predicate]], source: SourceText) -> tuple[Predicate, ...]:
    """The conditions; raises at the first that concerns several tables and is no join condition."""
    for node, predicate in found:
        if len({atom.column.relation for atom in atoms(predicate)}) > 1:
            hint = "write conditions of each table for themselves, combined by AND"
            raise source.error("this condition mixes two tables", node, hint)
    return tuple(predicate for _, predicate in found)


@dataclass(slots=True)
class _InnerScope(NameScope):
    """The table of a subquery, and outside it those of the query."""

    outside: NameScope | None = None

    def column(self, node: exp.Column) -> Column:
        assert self.outside is not None
        table, name = node.args.get("table"), node.this
        if not isinstance(name, exp.Identifier) or node.args.get("db"):
            return NameScope.column(self, node)
        if table:
            scope: NameScope = self if self.entry(table) is not None else self.outside
            return NameScope.column(scope, node)
        mine = self.entries[0].relation.find(name.name, exact=bool(name.quoted)) is not None
        near = [n for e in self.outside.entries for n in e.relation.names if n.lower() == name.name.lower()]
        return NameScope.column(self if mine or not near else self.outside, node)


class SubqueryReader:
    """Reads the subqueries of one SELECT."""

    def __init__(self, outside: NameScope, catalog: Catalog, literals: ConstantReader) -> None:
        self.outside, self.catalog, self.literals = outside, catalog, literals
        self.source = outside.source
        self.entries: list[ScopeEntry] = []  # of subqueries
        self.found: list[Existence] = []

    @property
    def tables(self) -> tuple[TableRef, ...]:
        return tuple(entry.ref for entry in self.entries)

    def read(self, node: exp.Expr) -> None:
        """One conjunct with a subquery."""
        inner, negated = unwrap(node), False
        while isinstance(inner, exp.Not):
            inner, negated = unwrap(inner.this), not negated
        given = inner.args["query"] if isinstance(inner, exp.In) else inner.this
        select = given.this if isinstance(given, exp.Subquery) else given
        if not isinstance(select, exp.Select):
            raise self.source.error("a subquery is one SELECT", given, "write one condition for each")
        self._reject_clauses(select)
        scope = self._enter(select)
        conditions = ConditionReader(scope, self.literals)
        joins = JoinReader(conditions, scope)
        where = select.args.get("where")
        pool = [] if where is None else operands(where.this, exp.And)
        rest = [part for one in pool for part in joins.collect(one)]
        read = [(part, conditions.predicate(part)) for part in rest]
        member = self._member(inner, select, scope) if isinstance(inner, exp.In) else None
        self.found.append(
            Existence(
                self.entries[-1].ref.alias,
                tuple(joins.found),
                conjunction(reject_mixed(read, self.source)),
                negated != bool(inner.args.get("negate")),
                member,
            )
        )

    def _reject_clauses(self, select: exp.Select) -> None:
        extras = [name for name, value in select.args.items() if value and name not in _PLAIN]
        start = self.source.at(select).start
        if "limits" in extras:
            fact = "WITH (...) ends the whole query"
            raise self.source.error(fact, select.args["limits"], "write it after the last parenthesis")
        if extras or select.args.get("from_") is None:
            words = {
                "joins": "JOIN",
                "group": "GROUP",
                "having": "HAVING",
                "order": "ORDER",
                "limit": "LIMIT",
            }
            where = self.source.token(*(words.get(name, "SELECT") for name in extras), after=start)
            hint = "it selects FROM one table, with conditions in WHERE"
            raise self.source.error("a subquery has no more than FROM and WHERE", where, hint)
        for node in select.find_all(exp.AggFunc):
            raise self.source.error("a subquery selects no aggregates", node, _FORMS)
        inner = [n for n in select.walk() if isinstance(n, exp.Select | exp.Values) and n is not select]
        if inner:
            second = self.source.token("SELECT", "VALUES", after=start + 1)
            raise self.source.error("a subquery in a subquery is not supported", second, "nest one level")

    def _enter(self, select: exp.Select) -> _InnerScope:
        node = select.args["from_"].this
        if not isinstance(node, exp.Table) or not isinstance(node.this, exp.Identifier):
            raise self.source.error("FROM takes plain tables", node, "write FROM table [AS alias]")
        relation = relation_of(node.this, self.catalog, self.source)
        if relation.open:
            hint = f"declare its columns: CREATE STREAM {quote(relation.name)} (name TYPE, ...)"
            fact = f"{relation.name} is an open stream and cannot be in a subquery"
            raise self.source.error(fact, node, hint)
        alias = node.args.get("alias")
        written = alias.name if alias is not None else relation.name
        taken = {e.ref.alias.lower() for e in (*self.outside.entries, *self.entries)}
        unique = next(
            n for n in (written, *(f"{written}_{i}" for i in range(2, 99))) if n.lower() not in taken
        )
        entry = ScopeEntry(
            TableRef(relation.name, unique, isinstance(relation, Stream)), relation, node, written
        )
        self.entries.append(entry)
        return _InnerScope(self.source, [entry], {}, True, self.outside)

    def _member(self, inner: exp.In, select: exp.Select, scope: _InnerScope) -> tuple[Column, Column]:
        """The columns of `x IN (SELECT y ...)`."""
        operand, shown = unwrap(inner.this), [unwrap(item.unalias()) for item in select.expressions]
        if not isinstance(operand, exp.Column) or isinstance(operand.this, exp.Star):
            raise self.source.error(
                "IN looks one column up", operand, "write column IN (SELECT column FROM t)"
            )
        if len(shown) != 1 or not isinstance(shown[0], exp.Column) or isinstance(shown[0].this, exp.Star):
            raise self.source.error("the subquery of IN selects one column", select, _FORMS)
        outer, own = self.outside.column(operand), scope.column(shown[0])
        if own.relation != scope.entries[0].ref.alias:
            raise self.source.error("the subquery of IN selects a column of its table", shown[0], _FORMS)
        if outer.type is None or own.type is None or outer.type.kind != own.type.kind:
            raise self.source.error(
                f"{outer} is a {outer.type} and {own} a {own.type}: they cannot be equal",
                inner,
                "compare columns of one kind",
            )
        return outer, own
