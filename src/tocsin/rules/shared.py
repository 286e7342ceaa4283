r"""Conditions over the cap of normal forms: their parts become shared attributes.

    (a1 AND b1 OR a2 AND b2 OR ...) AND (...) AND (...)
    held('a1 = 1 AND b1 = 2 OR ...') = TRUE AND held(...) = TRUE AND held(...) = TRUE

`held('condition')` is true where the condition holds; it is computed once per event, by the reference, for
each distinct part, however many rules have it.

>>> from tocsin.model.derived import derived
>>> derived("\x1fheld('a = 1 OR b = \\'x\\'')")({"b": "x"})
True
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tocsin.errors import NormalFormError, TocsinError
from tocsin.language.algebra import And, Column, Compare, Or, Predicate, literal
from tocsin.language.rewrite import normalise, push_not
from tocsin.language.sql import parse_query
from tocsin.model.derived import MISSING, Computed, unquoted
from tocsin.model.paths import MARK
from tocsin.model.schema import Stream
from tocsin.reference import holds

__all__ = ["of_condition", "within_cap"]


def within_cap(predicate: Predicate) -> Predicate:
    """The same condition with parts as shared attributes, as far as its normal form is too large.

    >>> parts = [Or(tuple(And((Compare(Column(f"{a}{n}"), "=", 1), Compare(Column(f"b{n}"), "=", 2)))
    ...     for n in range(20))) for a in "xyz"]
    >>> str(within_cap(And(tuple(parts)))).count("held(")
    3
    """
    return predicate if _fits(predicate) else _split(push_not(predicate))


def _fits(predicate: Predicate) -> bool:
    try:
        normalise(predicate)
    except NormalFormError:
        return False
    return True


def _split(predicate: Predicate) -> Predicate:
    if not isinstance(predicate, And | Or) or _fits(predicate):
        return predicate
    parts = tuple(map(_split, predicate.args))
    fewer = type(predicate)(parts)
    if _fits(fewer):
        return fewer
    return type(predicate)(tuple(_held(part) if isinstance(part, And | Or) else part for part in parts))


def _held(predicate: Predicate) -> Predicate:
    return Compare(Column(f"{MARK}held({literal(str(predicate))})"), "=", True)


def of_condition(arguments: str) -> Computed:
    """`held('condition')` as an attribute (`model/derived.py`)."""
    where = parse_query(f"SELECT * FROM s WHERE {unquoted(arguments)}", {"s": Stream("s")}).where
    if where is None:
        raise TocsinError("held takes a condition as text")
    condition = where

    def compute(event: Mapping[str, Any]) -> Any:
        return True if holds(condition, event) is True else MISSING

    return compute
