"""What a query answers: columns, stars and aggregates, each with its name.

A column is called by its alias or its own name. Over several tables a name that would occur twice
becomes `alias.column`; columns merged by USING come once and first. An aggregate without an
alias has Spark's name for it: `count(1)`, `min(per)`.
"""

from __future__ import annotations

from collections import Counter

from sqlglot import exp

from tocsin.language.algebra import Aggregate, Column, Item
from tocsin.language.conditions import unwrap
from tocsin.language.scope import Scope

__all__ = ["read_items"]

_AGGREGATES: dict[type[exp.Expr], str] = {
    exp.Count: "COUNT", exp.Sum: "SUM", exp.Avg: "AVG", exp.Min: "MIN", exp.Max: "MAX",
}  # fmt: skip
_HINT = "an answer has columns, *, or COUNT, SUM, AVG, MIN, MAX of a column"


def read_items(nodes: list[exp.Expr], scope: Scope, star: list[Column]) -> tuple[Item, ...]:
    """The items of SELECT; none at all for every attribute of an open stream."""
    found: list[tuple[Column | Aggregate, str | None, exp.Expr]] = []
    for node in nodes:
        if _is_star(node):
            if scope.entries[0].relation.open:
                if len(nodes) > 1:
                    raise scope.source.error(
                        "* of an open stream stands alone", node, "name the attributes, or take *"
                    )
                return ()
            found += [(column, None, node) for column in _star(node, scope, star)]
        else:
            found.append(_item(node, scope))
    _one_sort(found, scope)
    return _named(found, scope)


def _is_star(node: exp.Expr) -> bool:
    return isinstance(node, exp.Star) or (isinstance(node, exp.Column) and isinstance(node.this, exp.Star))


def _star(node: exp.Expr, scope: Scope, star: list[Column]) -> list[Column]:
    inner = node if isinstance(node, exp.Star) else node.this
    if any(inner.args.values()):
        raise scope.source.error("EXCEPT and REPLACE after * are not supported", node, "name the columns")
    if isinstance(node, exp.Star):
        return star
    entry = scope.table(node.args["table"], node)
    return [scope.make(entry, field) for field in entry.relation.fields]


def _item(node: exp.Expr, scope: Scope) -> tuple[Column | Aggregate, str | None, exp.Expr]:
    alias = None
    inner = node
    if isinstance(node, exp.Alias):
        alias, inner = node.alias, node.this
    inner = unwrap(inner)
    if isinstance(inner, exp.Column) and not isinstance(inner.this, exp.Star):
        return scope.column(inner), alias, node
    if type(inner) in _AGGREGATES:
        return _aggregate(inner, scope), alias, node
    if isinstance(inner, exp.Window):
        raise scope.source.error("window functions are not supported", inner, "leave out OVER")
    if isinstance(inner, exp.Literal) and inner.is_string:
        raise scope.source.error(
            "a constant is not an answer", inner, "names are quoted with backticks, not with quotes"
        )
    what = (
        "functions and arithmetic are" if isinstance(inner, exp.Func | exp.Binary | exp.Unary) else "this is"
    )
    raise scope.source.error(f"{what} not supported in SELECT", inner, _HINT)


def _aggregate(node: exp.Expr, scope: Scope) -> Aggregate:
    function, inner = _AGGREGATES[type(node)], node.this
    if isinstance(inner, exp.Distinct):
        raise scope.source.error(f"{function}(DISTINCT ...) is not supported", node, "use SELECT DISTINCT")
    if node.expressions or inner is None:
        raise scope.source.error(f"{function} takes one column", node, _HINT)
    inner = unwrap(inner)
    if isinstance(inner, exp.Star) or (function == "COUNT" and isinstance(inner, exp.Literal)):
        if function != "COUNT":
            raise scope.source.error(f"{function} takes a column", node, _HINT)
        return Aggregate("COUNT")
    if not isinstance(inner, exp.Column):
        raise scope.source.error(f"{function} takes a column, not an expression", inner, _HINT)
    column = scope.column(inner)
    if function in ("SUM", "AVG") and column.type is not None and not column.type.numeric:
        raise scope.source.error(
            f"{function} is for numbers, and {column} is a {column.type}",
            node,
            "count it, or take MIN or MAX",
        )
    return Aggregate(function, column)


def _one_sort(found: list[tuple[Column | Aggregate, str | None, exp.Expr]], scope: Scope) -> None:
    plain = [node for expression, _, node in found if isinstance(expression, Column)]
    if plain and len(plain) < len(found):
        raise scope.source.error(
            "columns and aggregates cannot stand together",
            plain[0],
            "GROUP BY is not supported: keep one of the two",
        )


def _named(found: list[tuple[Column | Aggregate, str | None, exp.Expr]], scope: Scope) -> tuple[Item, ...]:
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
            inner = "1" if expression.column is None else expression.column.name
            name = f"{expression.function.lower()}({inner})"
        key = name if scope.entries[0].relation.open else name.lower()
        if key in names:
            raise scope.source.error(
                f"two columns of the answer are called {name!r}", node, "give one an alias: AS name"
            )
        names.add(key)
        items.append(Item(expression, name))
    return tuple(items)
