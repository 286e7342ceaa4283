"""Expressions as Python functions of a row: what a single event is computed by, in about a microsecond.

>>> from tocsin.model.expressions.tree import CallNode, ConstantNode, Ref
>>> from tocsin.model.expressions.typed import resolve
>>> from tocsin.model.schema import Type
>>> double = closure(resolve(CallNode("*", (Ref("price"), ConstantNode(2))), {"price": Type.DOUBLE}))
>>> double((2.5,)), double((None,))
(5.0, None)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

from tocsin.model.expressions.typed import Typed

__all__ = ["RowFunction", "closure"]

RowFunction = Callable[[Sequence[Any]], Any]


def closure(node: Typed) -> RowFunction:
    """The function of the values of the columns, in their order."""
    if node.run is None:
        if node.place >= 0:
            return itemgetter(node.place)
        value = node.value
        return lambda row: value
    args = [closure(arg) for arg in node.args]
    if node.name == "case":
        return _case(args)
    if node.lazy:
        run = node.run
        return lambda row: run(*[partial(arg, row) for arg in args])
    return _strict(node, args)


def _case(args: Sequence[RowFunction]) -> RowFunction:
    choices = [(args[n], args[n + 1]) for n in range(0, len(args) - 1, 2)]
    other = args[-1]

    def call(row: Sequence[Any]) -> Any:
        for when, then in choices:
            if when(row) is True:
                return then(row)
        return other(row)

    return call


def _strict(node: Typed, args: Sequence[RowFunction]) -> RowFunction:
    """A call that is NULL if an argument is."""
    run = node.run
    assert run is not None
    if len(args) == 1:
        (only,) = args

        def one(row: Sequence[Any]) -> Any:
            value = only(row)
            return None if value is None else run(value)

        return one
    if len(args) == 2:
        return _of_two(run, *args)

    def many(row: Sequence[Any]) -> Any:
        values = [arg(row) for arg in args]
        return None if None in values else run(*values)

    return many


def _of_two(run: Callable[..., Any], first: RowFunction, second: RowFunction) -> RowFunction:
    def two(row: Sequence[Any]) -> Any:
        a = first(row)
        if a is None:
            return None
        b = second(row)
        return None if b is None else run(a, b)

    return two
