"""Aggregates as texts have them: COUNT, SUM, AVG, MIN and MAX, with DISTINCT and FILTER (WHERE ...).

`HavingReader` reads conditions in which an aggregate may stand where a column stands elsewhere; it is then a
`Measure`. A name there is a column of GROUP BY, or else an item of the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from tocsin.language.algebra import Aggregate, Column, Compare, Item, Measure, Predicate, Truth
from tocsin.language.conditions import ConditionReader, unwrap
from tocsin.language.expressions import ExpressionReader, is_computed
from tocsin.language.literals import Constant, ConstantReader
from tocsin.language.scope import NameScope

__all__ = ["AGGREGATES", "ITEM_HINT", "AggregateReader", "HavingReader", "is_aggregate"]

AGGREGATES: dict[type[exp.Expr], str] = {
    exp.Count: "COUNT", exp.Sum: "SUM", exp.Avg: "AVG", exp.Min: "MIN", exp.Max: "MAX",
}  # fmt: skip
ITEM_HINT = "an answer has columns, *, or COUNT, SUM, AVG, MIN, MAX of a column"


def is_aggregate(node: exp.Expr) -> bool:
    """Whether a node is one of our aggregates, perhaps with a filter."""
    inner = unwrap(node.this) if isinstance(node, exp.Filter) else node
    return type(inner) in AGGREGATES


class AggregateReader:
    """Reads the aggregates of one query."""

    def __init__(self, scope: NameScope, literals: ConstantReader) -> None:
        self.scope, self.source = scope, scope.source
        # what a filter compares with is a part of the aggregate, so never a slot
        self._filters = ConditionReader(scope, replace(literals, trace=False))

    def read(self, node: exp.Expr) -> Aggregate:
        """The aggregate of a node for which `is_aggregate` holds."""
        if not isinstance(node, exp.Filter):
            return self._plain(node)
        where = self._filters.predicate(node.args["expression"].this)
        return replace(self._plain(unwrap(node.this)), where=None if where == Truth(True) else where)

    def _plain(self, node: exp.Expr) -> Aggregate:
        function, inner = AGGREGATES[type(node)], node.this
        distinct = isinstance(inner, exp.Distinct)
        if distinct:
            if function not in ("COUNT", "MIN", "MAX"):
                hint = "COUNT(DISTINCT column) is"
                raise self.source.error(f"{function}(DISTINCT ...) is not supported", node, hint)
            if len(inner.expressions) != 1:
                raise self.source.error("COUNT(DISTINCT ...) takes one column", node, "write one for each")
            inner = inner.expressions[0]
        if node.expressions or inner is None:
            raise self.source.error(f"{function} takes one column", node, ITEM_HINT)
        inner = unwrap(inner)
        whole = isinstance(inner, exp.Star) or (function == "COUNT" and isinstance(inner, exp.Literal))
        if whole and not distinct:
            if function != "COUNT":
                raise self.source.error(f"{function} takes a column", node, ITEM_HINT)
            return Aggregate("COUNT")
        if is_computed(inner):
            literals = ConstantReader(self.source)
            column = ExpressionReader(self.scope, literals).derived(inner, ITEM_HINT)
        elif isinstance(inner, exp.Column):
            column = self.scope.column(inner)
        else:
            raise self.source.error(f"{function} takes a column", inner, ITEM_HINT)
        if function in ("SUM", "AVG") and column.type is not None and not column.type.numeric:
            raise self.source.error(
                f"{function} is for numbers, and {column} is a {column.type}",
                node,
                "use COUNT, MIN or MAX",
            )
        return Aggregate(function, column, distinct and function == "COUNT")  # of MIN it changes nothing


class HavingReader(ConditionReader):
    """Reads the condition of HAVING."""

    def __init__(
        self,
        scope: NameScope,
        literals: ConstantReader,
        aggregates: AggregateReader,
        group: Sequence[Column],
        items: Sequence[Item],
    ) -> None:
        super().__init__(scope, literals)
        self._aggregates, self._group, self._items = aggregates, group, items
        self._tables = scope

    def having(self, node: exp.Expr) -> Predicate:
        return self.predicate(node)

    def _column(self, node: exp.Expr) -> Column:
        inner = unwrap(node)
        if is_aggregate(inner):
            return Measure.of(self._aggregates.read(inner))
        if isinstance(inner, exp.Column) and (named := self._named(inner)) is not None:
            return named
        column = super()._column(node)
        if column in self._group:
            return column
        hint = f"add it to GROUP BY, or write an aggregate such as MAX({column})"
        raise self.source.error(f"{column} is not in GROUP BY", inner, hint)

    def _expression(self, node: exp.Expr) -> Column | Constant | None:
        found = super()._expression(node)
        if not isinstance(found, Column) or found in self._group:
            return found
        hint = f"add it to GROUP BY, or write an aggregate such as MAX({found})"
        raise self.source.error(f"{found} is not in GROUP BY", node, hint)

    def _computed(self, node: exp.Expr) -> Predicate:
        found = super()._computed(node)
        if isinstance(found, Truth) or (isinstance(found, Compare) and found.column in self._group):
            return found
        hint = "compare each with a constant"
        raise self.source.error("a condition on groups compares one column or aggregate", node, hint)

    def _named(self, node: exp.Column) -> Column | None:
        """The item of the answer with this name, unless a column of GROUP BY has it."""
        name = node.name.lower()
        if node.args.get("table") or any(column.name.lower() == name for column in self._group):
            return None
        for item in self._items:
            if item.name.lower() == name:
                own = item.expression
                return Measure.of(own) if isinstance(own, Aggregate) else own
        return None
