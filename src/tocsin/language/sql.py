"""Subscriptions: from the text of a SELECT to a `Query` with every name and type resolved.

    text ─ sqlglot ─► tree ─┬─ FROM, JOIN ──► tables, join conditions      joins.py
                            │  FOLLOWED BY ─► within                       sequences.py
                            ├─ WHERE ───────► conditions                   conditions.py, literals.py
                            │                 EXISTS, IN (SELECT ...)      subqueries.py
                            ├─ UNION ALL ───► branches                     unions.py
                            ├─ SELECT ──────► items                        here
                            ├─ GROUP, HAVING► group, having, partition     grouping.py, aggregates.py
                            ├─ ORDER, LIMIT ► order, limit                 here
                            └─ WITH ────────► options                      with_options.py

This file also decides which clauses are supported, `combinations.py` which may be combined. Both reject
anything else with an error at its position and a hint.

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

from collections import Counter
from collections.abc import Mapping

from sqlglot import exp

from tocsin.language.aggregates import ITEM_HINT, AggregateReader, is_aggregate
from tocsin.language.algebra import (
    Aggregate,
    Column,
    Item,
    OrderKey,
    OuterJoin,
    Predicate,
    Query,
    TableRef,
    Truth,
    Value,
)
from tocsin.language.combinations import reject_combinations
from tocsin.language.conditions import ConditionReader, operands, unwrap
from tocsin.language.ddl import Definition, Drop, parse_definitions
from tocsin.language.deep_stack import with_deep_stack
from tocsin.language.dialect import SourceText, read, too_deep
from tocsin.language.expressions import ExpressionReader, is_computed
from tocsin.language.grouping import GroupReader, unnested
from tocsin.language.hints import window_hint
from tocsin.language.joins import MAX_TABLES, JoinReader
from tocsin.language.literals import ConstantReader
from tocsin.language.nested import is_nested_node
from tocsin.language.scope import NameScope, ScopeEntry, relation_of
from tocsin.language.sequences import FOLLOWED, within_of
from tocsin.language.subqueries import (
    SubqueryReader,
    conjunction,
    is_subquery_condition,
    reject_mixed,
    subqueries_of,
)
from tocsin.language.unions import read_union
from tocsin.language.with_options import OptionReader
from tocsin.model.expressions.tree import is_expression, text_of
from tocsin.model.paths import shown_name
from tocsin.model.schema import Catalog, Stream, Table, quote

__all__ = ["Definition", "Drop", "parse_definitions", "parse_query", "trace_query"]


def parse_query(text: str, catalog: Catalog, params: Mapping[str, Value] | None = None) -> Query:
    """Parse a SELECT; `params` are the values of its `:name` parameters."""
    return _read_query(text, catalog, params, trace=False)


def trace_query(text: str, catalog: Catalog, params: Mapping[str, Value] | None = None) -> Query:
    """The same with a `Slot` in place of each replaceable constant (`template.py`)."""
    return _read_query(text, catalog, params, trace=True)


def _read_query(text: str, catalog: Catalog, params: Mapping[str, Value] | None, trace: bool) -> Query:
    tree, source = _select(text)
    constants = ConstantReader(source, params, trace)

    def one(select: exp.Select, options: OptionReader | None = None) -> Query:
        return _SelectReader(source, catalog, constants).query(select, options)

    try:
        if isinstance(tree, exp.Union):
            return with_deep_stack(read_union, tree, source, catalog, one)
        return with_deep_stack(one, tree)
    except RecursionError:
        raise too_deep(text) from None


def _select(text: str) -> tuple[exp.Select | exp.Union, SourceText]:
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
    if isinstance(tree, exp.Union) and not tree.args.get("distinct"):
        return tree, source
    if isinstance(tree, exp.SetOperation):
        words = ("UNION", "INTERSECT", "EXCEPT", "MINUS")
        raise source.error(
            f"{tree.key.upper()} is not supported",
            source.token(*words),
            "write UNION ALL, and drop rows that occur twice when you read them"
            if isinstance(tree, exp.Union)
            else "subscribe to each part",
        )
    if not isinstance(tree, exp.Select):
        first = source.tokens[0]
        changes = isinstance(tree, exp.Insert | exp.Update | exp.Delete)
        hint = "change rows with engine.insert, update and delete" if changes else "write SELECT ... FROM ..."
        raise source.error("a subscription is a SELECT", source.token(first.text.upper()), hint)
    return tree, source


class _SelectReader:
    """Reads one SELECT."""

    def __init__(self, source: SourceText, catalog: Catalog, literals: ConstantReader) -> None:
        self.source, self.catalog = source, catalog
        self.scope = NameScope(source)
        self.literals = literals
        self.conditions = ConditionReader(self.scope, literals)
        self.joins = JoinReader(self.conditions, self.scope)
        self.aggregates = AggregateReader(self.scope, literals)
        self.groups = GroupReader(self.scope, literals, self.aggregates)
        self.star: list[Column] = []
        self.outer: OuterJoin | None = None

    def query(self, select: exp.Select, options: OptionReader | None = None) -> Query:
        """The query; `options` are those of the whole text, where the SELECT is a part of it."""
        select = unnested(select)
        inner = subqueries_of(select)
        self._reject_clauses(select, inner)
        options = options or OptionReader(self.source, select)
        pool = self._from(select, qualified=bool(inner))
        where = self._where(pool)
        subqueries = SubqueryReader(self.scope, self.catalog, self.literals)
        for node in inner:
            subqueries.read(node)
        items = _read_items(select.expressions, self.scope, self.star, self.aggregates)
        group = self.groups.group(select, items)
        having = self.groups.having(select, group, items)
        partition, order, limit, offset = self._first_rows(select, items)
        tables = (*(entry.ref for entry in self.scope.entries), *subqueries.tables)
        joins = tuple(self.joins.found)
        distinct = bool(select.args.get("distinct"))
        query = Query(
            *(items, tables, joins, where, distinct, order, limit, options.options),
            *(group, having, offset, partition, self.outer, tuple(subqueries.found)),
            within=within_of(select, self.source),
        )
        self._check_groups(query, select)
        entries = [*self.scope.entries, *subqueries.entries]
        reject_combinations(query, select, entries, options)
        return query

    def _check_groups(self, query: Query, select: exp.Select) -> None:
        """Columns and aggregates of the answer fit GROUP BY and HAVING."""
        if query.group:
            self.groups.check_items(query.group, query.items, select.expressions)
        elif not query.aggregates and query.having != Truth(True):
            hint = "write GROUP BY, or an aggregate in SELECT"
            raise self.source.error("HAVING needs groups", self.source.token("HAVING"), hint)
        else:
            self._reject_mixed_items(query.items, select)

    # -- clauses -----------------------------------------------------------------------------------

    def _reject_clauses(self, select: exp.Select, nested: list[exp.Expr]) -> None:
        for clause, words, hint in _CLAUSES:
            if select.args.get(clause):
                raise self.source.error(f"{words[0]} is not supported", self.source.token(*words), hint)
        for name, value in select.args.items():
            if value and name not in _KNOWN:
                raise self.source.error(
                    f"{name.strip('_').upper()} is not supported", _first(value), "leave it out"
                )
        own = {id(node) for one in nested for node in one.walk()}
        inner = (n for n in select.walk() if isinstance(n, exp.Select | exp.Subquery | exp.Values))
        if strange := next((node for node in inner if node is not select and id(node) not in own), None):
            start = self.source.at(strange).start
            second = self.source.token("SELECT", "VALUES", after=self.source.at(select.expressions[0]).end)
            if nested and isinstance(strange, exp.Select | exp.Subquery):
                second = self.source.at(strange)
            fact = "a subquery cannot stand here" if start else "subqueries are not supported"
            raise self.source.error(fact, second, self._subquery_hint(select))
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

    def _subquery_hint(self, select: exp.Select) -> str:
        if select.find(exp.RowNumber):
            return "write QUALIFY ROW_NUMBER() OVER (...) <= 3; or name the columns, without the number"
        if isinstance(select.args["from_"].this if select.args.get("from_") else None, exp.Subquery):
            return "read its table directly, and write its conditions in WHERE"
        return "[NOT] EXISTS (SELECT ...) and x [NOT] IN (SELECT y ...) stand in WHERE, alone or beside AND"

    def _from(self, select: exp.Select, qualified: bool) -> list[exp.Expr]:
        """Enter the tables into the scope; return the conditions of ON and WHERE, in order."""
        joins: list[exp.Join] = select.args.get("joins") or []
        self.scope.qualified = bool(joins) or qualified
        if len(joins) >= MAX_TABLES:
            raise self.source.error(
                f"a query joins at most {MAX_TABLES} tables", joins[MAX_TABLES - 1], "join fewer"
            )
        pool: list[exp.Expr] = []
        self._enter(select.args["from_"].this)
        for join in joins:
            self._reject_join(join, len(joins))
            self._enter(join.this)
            if join.args.get("using"):
                self._using(join.args["using"], str(join.args.get("side") or ""))
            elif (on := join.args.get("on")) is not None:
                synthetic = isinstance(on, exp.Boolean) and "start" not in on.meta
                pool += [] if synthetic else operands(on, exp.And)
        tables = not qualified and all(isinstance(entry.relation, Table) for entry in self.scope.entries)
        self.conditions.joint = bool(joins) and tables and not joins[0].args.get("side")
        if joins and joins[0].args.get("side"):
            self._outer(str(joins[0].args["side"]).upper(), pool)
            pool = []
        if select.args.get("where") is not None:
            pool += [n for n in operands(select.args["where"].this, exp.And) if not is_subquery_condition(n)]
        return pool

    def _outer(self, side: str, pool: list[exp.Expr]) -> None:
        """The conditions of ON of an outer join."""
        rest = [part for node in pool for part in self.joins.collect(node)]
        read = [(node, self.conditions.predicate(node)) for node in rest]
        self.outer = OuterJoin(side, conjunction(reject_mixed(read, self.source)))
        self.joins.check_tree()

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
        if self.scope.qualified and relation.open:
            hint = f"declare its columns: CREATE STREAM {quote(relation.name)} (name TYPE, ...)"
            raise self.source.error(f"{relation.name} is an open stream and cannot be joined", node, hint)
        joined = self.scope.qualified and isinstance(relation, Stream)
        entry = ScopeEntry(TableRef(relation.name, name, joined), relation, node)
        self.scope.entries.append(entry)
        self.star += [self.scope.column_of(entry, field) for field in relation.fields]

    def _reject_join(self, join: exp.Join, count: int) -> None:
        words = " ".join(str(join.args[k]) for k in ("method", "side", "kind") if join.args.get(k)).upper()
        outer = words.removesuffix(" OUTER") in ("LEFT", "RIGHT", "FULL")
        if words not in ("", "INNER", "CROSS", FOLLOWED) and not outer:
            where = self.source.token(*words.split())
            hints = {"LEFT SEMI": "WHERE EXISTS (SELECT ...)", "LEFT ANTI": "WHERE NOT EXISTS (SELECT ...)"}
            hint = f"write {hints.get(words, 'JOIN, LEFT, RIGHT or FULL JOIN ... ON or USING')}"
            raise self.source.error(f"{words} JOIN is not supported", where, hint)
        if outer and count > 1:
            where = self.source.token(*words.split())
            raise self.source.error("an outer join joins two tables", where, "join no other table with them")
        if words.startswith("FULL") and join.args.get("using"):
            hint = "write ON a.x = b.x, and select both columns"
            raise self.source.error("USING is not for FULL JOIN", self.source.token("USING"), hint)
        extras = {k for k, v in join.args.items() if v} - {"this", "on", "using", "kind", "side"}
        if extras:
            raise self.source.error("this kind of join is not supported", join, "write JOIN ... ON or USING")

    def _using(self, names: list[exp.Expr], side: str) -> None:
        """Join the last table by columns of the same name; each appears once, at the front, in `*`.

        It is that of the first table; of the second for RIGHT, whose rows all stay.
        """
        *before, entry = self.scope.entries
        merged: list[Column] = []
        for name in names:
            identifier = name.this if isinstance(name, exp.Column) else name
            self.scope.entries = before
            left = self.scope.column(exp.Column(this=identifier))
            self.scope.entries = [entry]
            right = self.scope.column(exp.Column(this=identifier))
            self.scope.entries = [*before, entry]
            shown = right if side.upper() == "RIGHT" else left
            if shown in merged:
                raise self.source.error(f"column {left.name!r} occurs twice in USING", name, "name it once")
            self.joins.using(left, right, name)
            self.scope.merged[left.name.lower()] = shown
            merged.append(shown)
            self.star.remove(right)
            self.star.remove(left)
        self.star[:0] = merged

    def _where(self, pool: list[exp.Expr]) -> Predicate:
        known = len(self.joins.found)
        rest = [part for node in pool for part in self.joins.collect(node)] if self.scope.qualified else pool
        if self.outer is not None and len(self.joins.found) > known:
            hint = "write it in ON; or, if rows without partner are not wanted, an inner JOIN"
            node = self.joins.nodes[known]
            raise self.source.error("WHERE compares the two tables of an outer join", node, hint)
        if self.joins.rest:
            self.joins.check_tree()
        found = tuple(self.conditions.predicate(node) for node in rest)
        if self.scope.qualified and self.outer is None:
            self.joins.check_tree()
        return conjunction(found)

    def _reject_mixed_items(self, items: tuple[Item, ...], select: exp.Select) -> None:
        plain = [item for item in items if isinstance(item.expression, Column)]
        if plain and len(plain) < len(items):
            node = next((n for n in select.expressions if not is_aggregate(n.unalias())), None)
            fact = f"{plain[0].expression} stands beside an aggregate, without GROUP BY"
            raise self.source.error(fact, node, f"write GROUP BY {plain[0].expression}, or leave it out")

    def _first_rows(
        self, select: exp.Select, items: tuple[Item, ...]
    ) -> tuple[tuple[Column, ...], tuple[OrderKey, ...], int | None, int]:
        """Partition, order, limit and offset."""
        found = self.groups.qualify(select, lambda order: self._order(order, items))
        if found is not None:
            return (*found, 0)
        order = self._order(select.args.get("order"), items)
        return (), order, self._limit(select), self.groups.offset(select)

    def _order(self, order: exp.Expr | None, items: tuple[Item, ...]) -> tuple[OrderKey, ...]:
        keys = []
        for node in order.expressions if order is not None else ():
            inner = unwrap(node.this)
            if is_computed(inner):
                column = ExpressionReader(self.scope, self.literals).derived(inner, "order by a column")
            elif isinstance(inner, exp.Column):
                column = self._order_column(inner, items)
            else:
                raise self.source.error("ORDER BY takes columns", inner, "name a column of the table")
            keys.append(OrderKey(column, bool(node.args.get("desc")), bool(node.args.get("nulls_first"))))
        return tuple(keys)

    def _order_column(self, node: exp.Column, items: tuple[Item, ...]) -> Column:
        """A name in ORDER BY refers to an item of the answer, or else to a column of the table."""
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


def _as_limit(value: Value) -> Value:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError("LIMIT takes a whole number")
    if value <= 0:
        raise ValueError("LIMIT must be above 0")
    return value


def _first(value: object) -> exp.Expr | None:
    node = value[0] if isinstance(value, list) else value
    return node if isinstance(node, exp.Expr) else None


_KNOWN = {
    *("expressions", "from_", "joins", "where", "group", "having", "qualify", "distinct", "order", "limit"),
    *("offset", "limits"),
}
_CLAUSES: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("hint", ("A HINT", "SELECT"), "leave out the comment /*+ ... */"),
    ("with_", ("WITH",), "name the tables in FROM"),
    ("windows", ("WINDOW",), "window functions are not supported"),
    ("laterals", ("LATERAL",), "name plain tables in FROM"),
    ("sort", ("SORT BY", "SORT"), "write ORDER BY ... LIMIT n"),
    ("cluster", ("CLUSTER BY", "CLUSTER"), "leave it out"),
    ("distribute", ("DISTRIBUTE BY", "DISTRIBUTE"), "leave it out"),
)


# -- SELECT items ----------------------------------------------------------------------------------


def _read_items(
    nodes: list[exp.Expr], scope: NameScope, star: list[Column], aggregates: AggregateReader
) -> tuple[Item, ...]:
    """The items of SELECT; none at all for every attribute of an open stream."""
    found: list[tuple[Column | Aggregate, str | None, exp.Expr]] = []
    for node in nodes:
        if _is_star(node):
            if scope.entries[0].relation.open:
                if len(nodes) > 1:
                    raise scope.source.error(
                        "* of an open stream must be the only item", node, "name the attributes, or write *"
                    )
                return ()
            found += [(column, None, node) for column in _star(node, scope, star)]
        else:
            found.append(_item(node, scope, aggregates))
    return _name_items(found, scope)


def _is_star(node: exp.Expr) -> bool:
    return isinstance(node, exp.Star) or (isinstance(node, exp.Column) and isinstance(node.this, exp.Star))


def _star(node: exp.Expr, scope: NameScope, star: list[Column]) -> list[Column]:
    inner = node if isinstance(node, exp.Star) else node.this
    if any(inner.args.values()):
        raise scope.source.error("EXCEPT and REPLACE after * are not supported", node, "name the columns")
    if isinstance(node, exp.Star):
        return star
    entry = scope.table(node.args["table"], node)
    return [scope.column_of(entry, field) for field in entry.relation.fields]


def _item(
    node: exp.Expr, scope: NameScope, aggregates: AggregateReader
) -> tuple[Column | Aggregate, str | None, exp.Expr]:
    alias = None
    inner = node
    if isinstance(node, exp.Alias):
        alias, inner = node.alias, node.this
    inner = unwrap(inner)
    if is_nested_node(inner) and (nested := scope.nested(inner, ConstantReader(scope.source))) is not None:
        return nested, alias or inner.alias_or_name or shown_name(nested.name), node
    if isinstance(inner, exp.Column) and not isinstance(inner.this, exp.Star):
        return scope.column(inner), alias, node
    if is_aggregate(inner):
        return aggregates.read(inner), alias, node
    if isinstance(inner, exp.Window):
        raise scope.source.error("window functions are not supported", inner, window_hint(inner))
    if (is_computed(inner) and not isinstance(inner, exp.Cast)) or _is_cast_column(inner):
        column = ExpressionReader(scope, ConstantReader(scope.source)).derived(inner, _NO_CONSTANT)
        return column, alias or text_of(column.name)[1:-1], node
    if isinstance(inner, exp.Literal | exp.Boolean | exp.Null | exp.Cast):
        raise scope.source.error("a constant is not an answer", inner, _constant_hint(inner, scope))
    raise scope.source.error("this is not supported in SELECT", inner, ITEM_HINT)


def _is_cast_column(node: exp.Expr) -> bool:
    return isinstance(node, exp.Cast) and node.find(exp.Column) is not None


_NO_CONSTANT = "leave it out: a delta names its subscription, and a subscription may have a subscriber"


def _constant_hint(node: exp.Expr, scope: NameScope) -> str:
    names = [name for entry in scope.entries for name in entry.relation.names]
    if isinstance(node, exp.Literal) and node.is_string and node.name.lower() in map(str.lower, names):
        return f"names are quoted with backticks, not with quotes: `{node.name}`"
    return _NO_CONSTANT


def _bare(column: Column) -> str:
    """A column's name in the name of an aggregate."""
    return text_of(column.name)[1:-1] if is_expression(column.name) else column.name


def _name_items(
    found: list[tuple[Column | Aggregate, str | None, exp.Expr]], scope: NameScope
) -> tuple[Item, ...]:
    own = Counter(e.name.lower() for e, alias, _ in found if alias is None and isinstance(e, Column))
    items: list[Item] = []
    names: set[str] = set()
    for expression, alias, node in found:
        name = alias
        if name is None and isinstance(expression, Column):
            twice = own[expression.name.lower()] > 1 and expression.relation
            name = f"{expression.relation}.{expression.name}" if twice else expression.name
        elif name is None:
            assert isinstance(expression, Aggregate)
            inner = "1" if expression.column is None else _bare(expression.column)
            name = f"{expression.function.lower()}({'DISTINCT ' if expression.distinct else ''}{inner})"
        key = name if scope.entries[0].relation.open else name.lower()
        if key in names:
            raise scope.source.error(
                f"two columns of the answer are called {name!r}", node, "give one an alias: AS name"
            )
        names.add(key)
        items.append(Item(expression, name))
    return tuple(items)
