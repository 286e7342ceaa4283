"""Event patterns by brute force: events are flattened to values with places in arrays, all choices are tried.

It shares nothing with `tocsin.rules.eventbridge`, which never flattens an event.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from itertools import count
from typing import Any

Places = dict[int, int]  # by array: the element
Flat = dict[str, list[tuple[Any, Places]]]


def matches(pattern: dict[str, Any], event: dict[str, Any]) -> bool:
    """Whether an event matches a pattern."""
    flat: Flat = {}
    _flatten(event, (), {}, flat, count())
    return any(_search(sorted(rule.items()), flat, {}) for rule in _rules(pattern, "", [{}]))


def _flatten(value: Any, path: tuple[str, ...], places: Places, flat: Flat, numbers: Iterator[int]) -> None:
    if isinstance(value, dict):
        for name, inner in value.items():
            _flatten(inner, (*path, name), places, flat, numbers)
    elif isinstance(value, list):
        array = next(numbers)
        for n, inner in enumerate(value):
            nested = isinstance(inner, dict | list)
            _flatten(inner, path, {**places, array: n} if nested else places, flat, numbers)
    else:
        flat.setdefault(".".join(path), []).append((value, places))


def _rules(
    pattern: dict[str, Any], path: str, rules: list[dict[str, list[Any]]]
) -> list[dict[str, list[Any]]]:
    """Sub-rules without $or, each from full names to matchers."""
    for name, value in pattern.items():
        if name == "$or":
            rules = [rule for one in value for rule in _rules(one, path, [dict(rule) for rule in rules])]
        elif isinstance(value, dict):
            rules = _rules(value, f"{path}{name}.", rules)
        else:
            for rule in rules:
                rule[f"{path}{name}"] = value
    return rules


def _search(fields: list[tuple[str, list[Any]]], flat: Flat, chosen: Places) -> bool:
    if not fields:
        return True
    (name, matchers), *rest = fields
    values = [(value, places) for value, places in flat.get(name, ()) if _consistent(chosen, places)]
    if {"exists": False} in matchers and not values and _search(rest, flat, chosen):
        return True
    return any(
        any(_holds(matcher, value) for matcher in matchers) and _search(rest, flat, {**chosen, **places})
        for value, places in values
    )


def _consistent(chosen: Places, places: Places) -> bool:
    return all(chosen.get(array, n) == n for array, n in places.items())


def _holds(matcher: Any, value: Any) -> bool:
    if not isinstance(matcher, dict):
        return _same(matcher, value)
    ((name, operand),) = matcher.items()
    if name == "anything-but":
        return not any(_holds(one, value) for one in _alternatives(operand))
    if name == "exists":
        return operand is True
    if name == "numeric":
        compare = {
            "=": lambda a, b: a == b, "<": lambda a, b: a < b, "<=": lambda a, b: a <= b,
            ">": lambda a, b: a > b, ">=": lambda a, b: a >= b,
        }  # fmt: skip
        pairs = zip(operand[::2], operand[1::2], strict=True)
        return _is_number(value) and all(compare[op](value, number) for op, number in pairs)
    if not isinstance(value, str):
        return False
    if name == "cidr":
        try:
            return ipaddress.ip_address(value) in ipaddress.ip_network(operand, strict=False)
        except ValueError:
            return False
    if isinstance(operand, dict):
        value, operand = value.lower(), operand["equals-ignore-case"].lower()
    if name == "equals-ignore-case":
        return value.lower() == operand.lower()
    if name == "wildcard":
        parts = re.findall(r"\\.|\*|[^*\\]", operand, re.DOTALL)
        regex = "".join(".*" if part == "*" else re.escape(part[-1]) for part in parts)
        return re.fullmatch(regex, value, re.DOTALL) is not None
    return {"prefix": value.startswith, "suffix": value.endswith, "exactly": value.__eq__}[name](operand)


def _alternatives(operand: Any) -> list[Any]:
    """What anything-but excludes; a text is no address here."""
    if isinstance(operand, dict):
        ((name, inner),) = operand.items()
        return [{name: one} for one in (inner if isinstance(inner, list) else [inner])]
    several = operand if isinstance(operand, list) else [operand]
    return [{"exactly": one} if isinstance(one, str) else one for one in several]


def _same(wanted: Any, value: Any) -> bool:
    if _is_number(wanted):
        return _is_number(value) and wanted == value
    if isinstance(wanted, str) and isinstance(value, str):
        try:
            return ipaddress.ip_address(wanted) == ipaddress.ip_address(value)
        except ValueError:
            return wanted == value
    return type(wanted) is type(value) and wanted == value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
