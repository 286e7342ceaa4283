"""Subscriptions: from the text of a SELECT to a `Query` with every name and type known.

    text ─ sqlglot ─► tree ─┬─ FROM, JOIN ──► tables, join conditions
                            ├─ WHERE ───────► conditions
                            ├─ SELECT ──────► items
                            └─ ORDER, LIMIT ► order, limit

Each clause is read by its own file; this one says which clauses there may be, and which may stand
together. Whatever is not taken is refused where it stands, with a hint.

>>> from tocsin.model.schema import Field, Table, Type
>>> stocks = Table("stocks", (Field("symbol", Type.STRING), Field("per", Type.DOUBLE)), ("symbol",))
>>> print(parse_query("select SYMBOL from Stocks where 50 >= per", {"stocks": stocks}))
SELECT symbol FROM stocks WHERE per <= 50
>>> parse_query("SELECT * FROM stocks WHERE pre <= 50", {"stocks": stocks})
Traceback (most recent call last):
...
tocsin.errors.SqlError: there is no column 'pre' in stocks
  line 1, column 28: SELECT * FROM stocks WHERE pre <= 50
                                                ^^^
hint: did you mean 'per'?
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from tocsin.errors import Position, SqlError
from tocsin.language.algebra import And, Column, Item, OrderKey, Predicate, Query, TableRef, Truth, Value
from tocsin.language.conditions import Conditions, operands, unwrap
from tocsin.language.ddl import Definition, Drop, parse_definitions
from tocsin.language.deep import deeply
from tocsin.language.dialect import Source, read, too_deep
from tocsin.language.items import read_items
from tocsin.language.joins import MAX_TABLES, Joins
from tocsin.language.literals import Literals
from tocsin.language.scope import Entry, Scope, relation_of
from tocsin.model.schema import Catalog, Stream

__all__ = ["Definition", "Drop", "parse_definitions", "parse_query", "trace_query"]


def parse_query(text: str, catalog: Catalog, params: Mapping[str, Value] | None = None) -> Query:
    """The subscription a text says; `params` are the values of its `:name` parameters."""
    return _guarded(text, catalog, params, trace=False)


def trace_query(text: str, catalog: Catalog, params: Mapping[str, Value] | None = None) -> Query:
    """The same with a `Slot` in place of every constant that may be exchanged (`lift.py`)."""
    return _guarded(text, catalog, params, trace=True)


def _guarded(text: str, catalog: Catalog, params: Mapping[str, Value] | None, trace: bool) -> Query:
    select, source = _select(text)
    try:
        return deeply(lambda: _Reader(source, catalog, Literals(source, params, trace)).query(select))
    except RecursionError:
        raise too_deep(text) from None


def _select(text: str) -> tuple[exp.Select, Source]:
    trees, source = read(text)
    if not trees:
        raise source.error("the text is empty", None, "write SELECT ... FROM ...")
    if len(trees) > 1:
        second = next((t.end + 1 for t in source.tokens if t.text == ";"), 0)
        following = next((t.text.upper() for t in source.tokens if t.start >= second), "")
        raise source.error(
            "one subscription is one statement", source.token(following, after=second), "subscribe to each"
        )
    tree = trees[0]
    if isinstance(tree, exp.SetOperation):
        words = ("UNION", "INTERSECT", "EXCEPT", "MINUS")
        raise source.error(
            f"{tree.key.upper()} is not supported", source.token(*words), "subscribe to each part"
        )
    if not isinstance(tree, exp.Select):
        first = source.tokens[0]
        raise source.error(
            "a subscription is a SELECT", source.token(first.text.upper()), "write SELECT ... FROM ..."
        )
    return tree, source


class _Reader:
    """Reads one SELECT."""

    def __init__(self, source: Source, catalog: Catalog, literals: Literals) -> None:
        self.source, self.catalog = source, catalog
        self.scope = Scope(source)
        self.literals = literals
        self.conditions = Conditions(self.scope, literals)
        self.joins = Joins(self.conditions)
        self.star: list[Column] = []

    def query(self, select: exp.Select) -> Query:
        self._refuse_clauses(select)
        pool = self._from(select)
        where = self._where(pool)
        items = read_items(select.expressions, self.scope, self.star)
        order = self._order(select, items)
        limit = self._limit(select)
        tables = tuple(entry.ref for entry in self.scope.entries)
        joins = tuple(self.joins.found)
        query = Query(items, tables, joins, where, bool(select.args.get("distinct")), order, limit)
        self._refuse_mixtures(query, select)
        return query

    # -- clauses -----------------------------------------------------------------------------------

    def _refuse_clauses(self, select: exp.Select) -> None:
        for clause, words, hint in _CLAUSES:
            if select.args.get(clause):
                raise self.source.error(f"{words[0]} is not supported", self.source.token(*words), hint)
        for name, value in select.args.items():
            if value and name not in _KNOWN:
                raise self.source.error(
                    f"{name.strip('_').upper()} is not supported", _first(value), "leave it out"
                )
        inner = (
            n for n in select.walk() if isinstance(n, exp.Select | exp.Subquery | exp.Exists | exp.Values)
        )
        if any(node is not select for node in inner):
            second = self.source.token("SELECT", "VALUES", after=self.source.token("SELECT").end)
            raise self.source.error("subqueries are not supported", second, "join the tables instead")
        distinct = select.args.get("distinct")
        if distinct is not None and distinct.args.get("on"):
            raise self.source.error("DISTINCT ON is not supported", self.source.token("ON"), "use DISTINCT")
        if not select.expressions:
            raise self.source.error(
                "SELECT names nothing", self.source.token("SELECT"), "write SELECT * for all"
            )
        if select.args.get("from_") is None:
            raise self.source.error(
                "a subscription reads FROM a table or stream", None, "write SELECT ... FROM ..."
            )

    def _from(self, select: exp.Select) -> list[exp.Expr]:
        """Enters the tables; returns the conditions of ON and WHERE, in order."""
        joins: list[exp.Join] = select.args.get("joins") or []
        self.scope.qualified = bool(joins)
        if len(joins) >= MAX_TABLES:
            raise self.source.error(
                f"a query joins at most {MAX_TABLES} tables", joins[MAX_TABLES - 1], "join fewer"
            )
        pool: list[exp.Expr] = []
        self._enter(select.args["from_"].this)
        for join in joins:
            self._refuse_join(join)
            self._enter(join.this)
            if join.args.get("using"):
                self._using(join.args["using"])
            elif (on := join.args.get("on")) is not None:
                synthetic = isinstance(on, exp.Boolean) and "start" not in on.meta
                pool += [] if synthetic else operands(on, exp.And)
        if select.args.get("where") is not None:
            pool += operands(select.args["where"].this, exp.And)
        return pool

    def _enter(self, node: exp.Expr) -> None:
        """One table of FROM: its relation, its alias, and its columns in `SELECT *`."""
        extras = {k for k, v in node.args.items() if v and k not in ("this", "alias")}
        if not isinstance(node, exp.Table) or not isinstance(node.this, exp.Identifier) or extras:
            raise self.source.error("FROM takes plain tables", node, "write FROM table [AS alias]")
        alias = node.args.get("alias")
        if alias is not None and (alias.args.get("columns") or not alias.name):
            raise self.source.error("a table's alias is one name", node, "rename columns in SELECT")
        relation = relation_of(node.this, self.catalog, self.source)
        name = alias.name if alias is not None else relation.name
        if any(entry.ref.alias.lower() == name.lower() for entry in self.scope.entries):
            raise self.source.error(
                f"two tables are called {name!r}", node, f"give one an alias: {name} AS other"
            )
        if self.scope.qualified and isinstance(relation, Stream):
            raise self._stream(relation, "joined", node)
        entry = Entry(TableRef(relation.name, name), relation, node)
        self.scope.entries.append(entry)
        self.star += [self.scope.make(entry, field) for field in relation.fields]

    def _refuse_join(self, join: exp.Join) -> None:
        words = " ".join(str(join.args[k]) for k in ("method", "side", "kind") if join.args.get(k)).upper()
        if words not in ("", "INNER", "CROSS"):
            where = self.source.token(*words.split())
            raise self.source.error(
                f"{words} JOIN is not supported", where, "only inner joins are: JOIN ... ON or USING"
            )

        extras = {k for k, v in join.args.items() if v} - {"this", "on", "using", "kind"}
        if extras:
            raise self.source.error("this kind of join is not supported", join, "write JOIN ... ON or USING")

    def _using(self, names: list[exp.Expr]) -> None:
        """Joins the newest table by columns of the same name; each appears once, first, in `*`."""
        *before, entry = self.scope.entries
        merged: list[Column] = []
        for name in names:
            identifier = name.this if isinstance(name, exp.Column) else name
            self.scope.entries = before
            left = self.scope.column(exp.Column(this=identifier))
            self.scope.entries = [entry]
            right = self.scope.column(exp.Column(this=identifier))
            self.scope.entries = [*before, entry]
            if left in merged:
                raise self.source.error(f"column {left.name!r} is twice in USING", name, "name it once")
            self.joins.using(left, right, name)
            self.scope.merged[left.name.lower()] = left
            merged.append(left)
            self.star.remove(right)
            self.star.remove(left)
        self.star[:0] = merged

    def _where(self, pool: list[exp.Expr]) -> Predicate:
        rest = [part for node in pool for part in self.joins.take(node)] if self.scope.qualified else pool
        found = tuple(self.conditions.predicate(node) for node in rest)
        if self.scope.qualified:
            self.joins.check_tree()
        return Truth(True) if not found else found[0] if len(found) == 1 else And(found)

    def _order(self, select: exp.Select, items: tuple[Item, ...]) -> tuple[OrderKey, ...]:
        order = select.args.get("order")
        keys = []
        for node in order.expressions if order is not None else ():
            inner = unwrap(node.this)
            if not isinstance(inner, exp.Column):
                raise self.source.error("ORDER BY takes columns", inner, "name a column of the table")
            column = self._order_column(inner, items)
            keys.append(OrderKey(column, bool(node.args.get("desc")), bool(node.args.get("nulls_first"))))
        return tuple(keys)

    def _order_column(self, node: exp.Column, items: tuple[Item, ...]) -> Column:
        """A name in ORDER BY is one of the answer's, or else a column of the table."""
        if not node.args.get("table") and isinstance(node.this, exp.Identifier):
            for item in items:
                same = item.name == node.name or (
                    not node.this.quoted and item.name.lower() == node.name.lower()
                )
                if same and isinstance(item.expression, Column):
                    return item.expression
        return self.scope.column(node)

    def _limit(self, select: exp.Select) -> int | None:
        limit = select.args.get("limit")
        if limit is None:
            return None
        if not isinstance(limit, exp.Limit):
            raise self.source.error("FETCH is not supported", self.source.token("FETCH"), "write LIMIT n")
        node = limit.args["expression"]
        constant = self.literals.read(node)
        if constant is None or any(value for name, value in limit.args.items() if name != "expression"):
            raise self.source.error(
                "LIMIT takes a number alone", self.source.token("LIMIT"), "write LIMIT 10"
            )
        try:
            kept: int = self.literals.keep(constant.then(_as_limit))
        except ValueError as error:
            raise self.source.error(str(error), node, "write LIMIT 10") from None
        return kept

    # -- what may stand together -------------------------------------------------------------------

    def _refuse_mixtures(self, query: Query, select: exp.Select) -> None:
        token, relation = self.source.token, self.scope.entries[0].relation
        if query.order and query.limit is None:
            raise self.source.error(
                "ORDER BY needs a LIMIT", token("ORDER", "ORDER BY"), "add LIMIT n for the first n rows"
            )
        if query.limit is not None and not query.order:
            raise self.source.error(
                "LIMIT needs an ORDER BY", token("LIMIT"), "say which rows come first: ORDER BY column"
            )
        parts = [
            (bool(query.aggregates), "an aggregate", "aggregated", self.source.at(select.expressions[0])),
            (query.distinct, "DISTINCT", "made distinct", token("DISTINCT")),
            (bool(query.order), "ORDER BY", "ordered", token("ORDER", "ORDER BY")),
        ]
        used = [part for part in parts if part[0]]
        if len(used) > 1:
            raise self.source.error(
                f"{used[0][1]} and {used[1][1]} cannot stand together", used[1][3], "choose one of them"
            )
        for _, what, done, where in used:
            if query.joins:
                raise self.source.error(f"{what} over a join is not supported", where, "over one table it is")
            if isinstance(relation, Stream):
                raise self._stream(relation, done, where)

    def _stream(self, relation: Stream, done: str, where: exp.Expr | Position) -> SqlError:
        fact = f"{relation.name} is a stream and cannot be {done}"
        return self.source.error(fact, where, "make it a table, or wait for windows")


def _as_limit(value: Value) -> Value:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError("LIMIT takes a whole number")
    if value <= 0:
        raise ValueError("LIMIT must be above 0")
    return value


def _first(value: object) -> exp.Expr | None:
    node = value[0] if isinstance(value, list) else value
    return node if isinstance(node, exp.Expr) else None


_KNOWN = {"expressions", "from_", "joins", "where", "distinct", "order", "limit"}
_CLAUSES: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("hint", ("A HINT", "SELECT"), "leave out the comment /*+ ... */"),
    ("with_", ("WITH",), "name the tables in FROM"),
    ("group", ("GROUP BY", "GROUP"), "one aggregate per subscription: put the group in WHERE"),
    ("having", ("HAVING",), "conditions stand in WHERE"),
    ("offset", ("OFFSET", "LIMIT"), "ask for the first n rows: LIMIT n"),
    ("qualify", ("QUALIFY",), "window functions are not supported"),
    ("windows", ("WINDOW",), "window functions are not supported"),
    ("laterals", ("LATERAL",), "name plain tables in FROM"),
    ("sort", ("SORT BY", "SORT"), "write ORDER BY ... LIMIT n"),
    ("cluster", ("CLUSTER BY", "CLUSTER"), "leave it out"),
    ("distribute", ("DISTRIBUTE BY", "DISTRIBUTE"), "leave it out"),
)
