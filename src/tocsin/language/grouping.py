"""GROUP BY, HAVING, OFFSET and QUALIFY: from the tree to the parts of a `Query`.

    GROUP BY page, HAVING COUNT(*) > 5                                group, having
    ORDER BY ms LIMIT 10 OFFSET 20                                    order, limit, offset
    QUALIFY ROW_NUMBER() OVER (PARTITION BY page ORDER BY ms) <= 3    partition, order, limit
    SELECT ... FROM (SELECT *, ROW_NUMBER() OVER (...) AS n FROM t) WHERE n <= 3      the same

`unnested` makes the third form of the last one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlglot import exp

from tocsin.errors import Position
from tocsin.language.aggregates import AggregateReader, HavingReader
from tocsin.language.algebra import Aggregate, Column, Item, OrderKey, Predicate, Truth
from tocsin.language.conditions import FLIPPED, OPERATORS, operands, unwrap
from tocsin.language.expressions import ExpressionReader, is_computed
from tocsin.language.literals import Constant, ConstantReader
from tocsin.language.scope import NameScope

__all__ = ["GroupReader", "unnested"]

_UNNESTED = {"expressions", "from_", "where", "limits"}
_RANKS = "write QUALIFY ROW_NUMBER() OVER (PARTITION BY column ORDER BY column) <= 3"


class GroupReader:
    """Reads what concerns groups in one SELECT."""

    def __init__(self, scope: NameScope, literals: ConstantReader, aggregates: AggregateReader) -> None:
        self.scope, self.source, self.literals = scope, scope.source, literals
        self._aggregates = aggregates

    # -- groups ------------------------------------------------------------------------------------

    def group(self, select: exp.Select, items: Sequence[Item]) -> tuple[Column, ...]:
        """The columns of GROUP BY, each once."""
        group = select.args.get("group")
        if group is None:
            return ()
        kind = next((name for name, value in group.args.items() if value and name != "expressions"), None)
        if kind is not None or not group.expressions:
            hint = "name the columns: GROUP BY a, b"
            raise self.source.error("this form of GROUP BY is not supported", self._word("GROUP"), hint)
        found = [self._key(unwrap(node), items) for node in group.expressions]
        return tuple(dict.fromkeys(found))

    def _key(self, node: exp.Expr, items: Sequence[Item]) -> Column:
        """A column; its number in SELECT; or the name that it has there."""
        if isinstance(node, exp.Literal) and not node.is_string and node.name.isdigit():
            place = int(node.name) if len(node.name) < 4 else 0
            if not 1 <= place <= len(items):
                fact = f"SELECT has no item {node.name}"
                raise self.source.error(fact, node, f"it has {len(items)}; or name a column")
            return self._of_item(items[place - 1], node)
        if is_computed(node):
            return self._derived(node)
        if not isinstance(node, exp.Column):
            hint = "name a column of the table"
            raise self.source.error("GROUP BY takes columns", node, hint)
        if not node.args.get("table"):
            names = [name.lower() for entry in self.scope.entries for name in entry.relation.names]
            for item in items:
                if item.name.lower() == node.name.lower() and node.name.lower() not in names:
                    return self._of_item(item, node)
        return self.scope.column(node)

    def _derived(self, node: exp.Expr) -> Column:
        return ExpressionReader(self.scope, ConstantReader(self.source)).derived(node, "name a column")

    def _of_item(self, item: Item, node: exp.Expr) -> Column:
        if isinstance(item.expression, Aggregate):
            fact = f"{item.name} is an aggregate, which has a value for each group"
            raise self.source.error(fact, node, "compare it in HAVING")
        return item.expression

    def check_items(self, group: Sequence[Column], items: Sequence[Item], nodes: Sequence[exp.Expr]) -> None:
        """Raise for a column of the answer that is not in GROUP BY."""
        for item in items:
            own = item.expression
            if isinstance(own, Column) and own not in group:
                node = next((n for n in nodes if n.alias_or_name.lower() == item.name.lower()), nodes[0])
                hint = f"add it to GROUP BY, or write an aggregate such as MAX({own})"
                raise self.source.error(f"{own} is not in GROUP BY", self.source.at(node), hint)

    def having(self, select: exp.Select, group: Sequence[Column], items: Sequence[Item]) -> Predicate:
        """The condition on groups."""
        having = select.args.get("having")
        if having is None:
            return Truth(True)
        reader = HavingReader(self.scope, self.literals, self._aggregates, group, items)
        return reader.having(having.this)

    # -- rows of each group ------------------------------------------------------------------------

    def qualify(
        self, select: exp.Select, read_order: Callable[[exp.Order], tuple[OrderKey, ...]]
    ) -> tuple[tuple[Column, ...], tuple[OrderKey, ...], int] | None:
        """Partition, order and number of rows of QUALIFY; None without it."""
        qualify = select.args.get("qualify")
        if qualify is None:
            return None
        window, op, bound = self._row_number(unwrap(qualify.this))
        limit = self._bound(op, bound)
        if window.args.get("spec") or window.args.get("alias"):
            raise self.source.error("a frame is not supported here", window, _RANKS)
        partition = []
        for node in window.args.get("partition_by") or ():
            inner = unwrap(node)
            if is_computed(inner):
                partition.append(self._derived(inner))
            elif isinstance(inner, exp.Column):
                partition.append(self.scope.column(inner))
            else:
                raise self.source.error("PARTITION BY takes columns", node, "name a column of the table")
        order = window.args.get("order")
        if order is None:
            hint = "say which rows come first: ROW_NUMBER() OVER (PARTITION BY a ORDER BY b)"
            raise self.source.error("ROW_NUMBER needs an ORDER BY", self.source.at(window), hint)
        if select.args.get("order") is not None or select.args.get("limit") is not None:
            fact = "QUALIFY and ORDER BY cannot be combined"
            raise self.source.error(fact, self._word("QUALIFY"), "choose one of them")
        return tuple(dict.fromkeys(partition)), read_order(order), limit

    def _row_number(self, node: exp.Expr) -> tuple[exp.Window, str, Constant]:
        """The window, the operator and the number of `ROW_NUMBER() OVER (...) <= 3`."""
        if type(node) in (exp.LT, exp.LTE, exp.EQ, exp.GT, exp.GTE):
            left, right = unwrap(node.this), unwrap(node.args["expression"])
            op = OPERATORS[type(node)]
            if isinstance(right, exp.Window):
                left, right, op = right, left, FLIPPED[op]
            constant = self.literals.read(right)
            if constant is not None and isinstance(left, exp.Window) and isinstance(left.this, exp.RowNumber):
                return left, op, constant
        fact = "QUALIFY takes ROW_NUMBER() compared with a number"
        raise self.source.error(fact, self._word("QUALIFY"), _RANKS)

    def _bound(self, op: str, bound: Constant) -> int:
        value = bound.value
        whole = isinstance(value, int) and not isinstance(value, bool)
        least = {"<=": 1, "<": 2, "=": 1}.get(op)
        if not whole or least is None or value < least or (op == "=" and value != 1):  # type: ignore[operator]
            fact = "ROW_NUMBER is compared with a whole number: <= n, < n or = 1"
            raise self.source.error(fact, bound.node, _RANKS)
        return value - (op == "<")  # type: ignore[return-value, operator]

    def offset(self, select: exp.Select) -> int:
        """The rows that ORDER BY ... LIMIT n OFFSET m leaves out."""
        offset = select.args.get("offset")
        if offset is None:
            return 0
        word = self.source.token("OFFSET", "LIMIT")
        constant = self.literals.read(unwrap(offset.args["expression"]))
        value = None if constant is None else constant.value
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise self.source.error("OFFSET takes a whole number", word, "write LIMIT 10 OFFSET 20")
        return value

    def _word(self, word: str) -> Position:
        return self.source.token(word, f"{word} BY")


# -- ROW_NUMBER in a subquery ----------------------------------------------------------------------


def unnested(select: exp.Select) -> exp.Select:
    """`SELECT a FROM (SELECT *, ROW_NUMBER() OVER (...) AS n FROM t WHERE ...) WHERE n <= 3`, as QUALIFY.

    Any other SELECT is returned as it is.
    """
    source = select.args["from_"].this if select.args.get("from_") else None
    inner = source.this if isinstance(source, exp.Subquery) else None
    where = select.args.get("where")
    others = {name for name, value in select.args.items() if value} - {
        "expressions",
        "from_",
        "where",
        "limits",
    }
    if not isinstance(inner, exp.Select) or where is None or others:
        return select
    inner = inner.copy()
    numbered = [e for e in inner.expressions if isinstance(e, exp.Alias) and isinstance(e.this, exp.Window)]
    rest = [e for e in inner.expressions if e not in numbered]
    if len(numbered) != 1 or inner.args.get("qualify") or not all(map(_is_plain, rest)):
        return select
    name = numbered[0].alias.lower()
    parts = operands(where.this, exp.And)
    tests = [part for part in parts if any(c.name.lower() == name for c in part.find_all(exp.Column))]
    shown = [c for e in select.expressions for c in e.find_all(exp.Column) if c.name.lower() == name]
    named = all(_is_plain(e) and not e.find(exp.Star) for e in select.expressions)  # * has the number too
    if len(tests) != 1 or len(parts) != 1 or shown or not named or not isinstance(tests[0], exp.Binary):
        return select
    test = tests[0].copy()
    for column in list(test.find_all(exp.Column)):
        column.replace(numbered[0].this.copy())
    inner.set("expressions", _chosen(select.expressions, rest))
    inner.set("qualify", exp.Qualify(this=test))
    if select.args.get("limits"):
        inner.set("limits", select.args["limits"])
    return inner


def _is_plain(node: exp.Expr) -> bool:
    inner = node.this if isinstance(node, exp.Alias) else node
    return isinstance(inner, exp.Column | exp.Star)


def _chosen(wanted: Sequence[exp.Expr], inner: Sequence[exp.Expr]) -> list[exp.Expr]:
    """The items of the outer SELECT in terms of the inner table."""
    named = {e.alias.lower(): e.this for e in inner if isinstance(e, exp.Alias)}
    found = []
    for node in wanted:
        copied = node.copy()
        own = copied.this if isinstance(copied, exp.Alias) else copied
        if isinstance(own, exp.Column):
            own.set("table", None)
            if own.name.lower() in named:
                copied = exp.alias_(named[own.name.lower()].copy(), copied.alias_or_name)
        found.append(copied)
    return found
