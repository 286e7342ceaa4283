"""Event patterns of Amazon EventBridge; `docs/rules-eventbridge.md` says what differs.

A pattern names fields, each with values or matchers of which one must hold for one value of the event there:

    {"source": ["aws.ec2"], "detail": {"state": [{"prefix": "r"}], "cpu": [{"numeric": [">", 80]}]}}

Wherever an event has an array, its elements stand for the field, and fields of one object must be met by one
element (array-consistent matching). So a field is a condition on elements of a list that goes through arrays,
`state[*]`, and an object with several fields one on its elements:

    source[*]    exists(source[*], e1 -> e1 = 'aws.ec2')
    detail[*]    exists(detail[*], e1 -> exists(e1.state[*], e2 -> ...) AND exists(e1.cpu[*], e2 -> e2 > 80))

`$or` is multiplied out. A field that must be absent is looked for among the elements that fields before it,
in order of their names, have chosen: as in AWS's event-ruler.

>>> pattern = {"detail": {"state": [{"anything-but": "off"}], "fault": [{"exists": False}]}}
>>> print(EventBridge().condition(pattern))
NOT exists(detail[*].fault[*], e1 -> typeof(e1) != 'object') = TRUE AND \
exists(detail[*].state[*], e1 -> typeof(e1) != 'object' AND NOT (e1 = 'off') IS TRUE) = TRUE
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from tocsin.language.algebra import Between, Column, Compare, In, Like, Not, Predicate, is_true
from tocsin.model.folding import fold
from tocsin.model.paths import MARK, Path, Step
from tocsin.rules.addresses import address_of, in_network, network_of
from tocsin.rules.atoms import all_of, any_of, element, escaped, exists_in, like
from tocsin.rules.base import RefusedError, RuleLanguage

__all__ = ["EventBridge"]

_DEEPEST = 15  # objects with several fields inside each other: as many lists may nest in a condition
_MOST = 1000  # alternatives that the $or of a pattern are multiplied out to
_RESERVED = frozenset(
    "exactly equals-ignore-case prefix suffix anything-but exists wildcard numeric cidr = < <= > >=".split()
)

Field = tuple[tuple[str, ...], Any]  # names from the event to it, and what it must meet: matchers, or _ABSENT
_ABSENT = object()


class EventBridge(RuleLanguage):
    """Patterns as dicts, or as texts of JSON; that of a whole rule is in its EventPattern."""

    kind = "eventbridge"

    def rules(self, source: Any) -> Iterator[tuple[str, Any]]:
        found = _parsed(source) if isinstance(source, str | bytes) else source
        for one in found if isinstance(found, list) else [found]:
            name = ""
            if isinstance(one, Mapping) and isinstance(one.get("EventPattern"), Mapping | str):
                name, one = str(one.get("Name") or ""), one["EventPattern"]
                one = _parsed(one) if isinstance(one, str) else one
            yield name, one

    def condition(self, rule: Any) -> Predicate:
        if not isinstance(rule, Mapping):
            raise RefusedError("", rule, "a pattern is an object")
        alternatives: list[dict[tuple[str, ...], Any]] = []
        for branch in _branches(rule, ()):
            alternatives += _present_or_absent(branch)
            if len(alternatives) > _MOST:
                raise RefusedError("$or", "", f"it has more than {_MOST} alternatives")
        for fields in alternatives:
            for path in fields:
                if any(len(other) > len(path) and other[: len(path)] == path for other in fields):
                    raise RefusedError(
                        _shown(path), "$or", "the field is asked for values and for fields inside"
                    )
        return any_of([_joint(sorted(fields.items(), key=_by_name), 0) for fields in alternatives])


def _parsed(text: str | bytes) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_object)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise RefusedError(place, "", f"this is not JSON: {error.msg}") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(name for n, (name, _) in enumerate(pairs) if name in dict(pairs[:n]))
        raise RefusedError(twice, twice, "the field occurs twice")
    return found


# -- fields ------------------------------------------------------------------------------------------


def _branches(pattern: Mapping[str, Any], path: tuple[str, ...]) -> list[dict[tuple[str, ...], Any]]:
    """The fields of a pattern with their matchers, for each way to choose among its $or; a later one wins."""
    if not pattern:
        raise RefusedError(_shown(path), "{}", "an object without fields matches nothing")
    found: list[dict[tuple[str, ...], Any]] = [{}]
    for name, value in pattern.items():
        at = (*path, name)
        if name == "$or":
            own = _or_branches(value, path)
        elif isinstance(value, Mapping):
            own = _branches(value, _named(at))
        elif isinstance(value, list | tuple):
            if not value:
                raise RefusedError(_shown(at), "[]", "a list without values matches nothing")
            own = [{_named(at): value}]
        else:
            raise RefusedError(_shown(at), value, "a field of a pattern is an object or a list of values")
        if len(found) * len(own) > _MOST:
            raise RefusedError(_shown(at), "$or", f"it has more than {_MOST} alternatives")
        found = [{**one, **other} for one, other in product(found, own)]
    return found


def _or_branches(value: Any, path: tuple[str, ...]) -> list[dict[tuple[str, ...], Any]]:
    place = _shown((*path, "$or"))
    if not isinstance(value, list | tuple) or len(value) < 2:
        raise RefusedError(place, value, "$or is a list of at least two objects")
    found = []
    for n, one in enumerate(value):
        if not isinstance(one, Mapping):
            raise RefusedError(f"{place}[{n}]", one, "$or is a list of objects")
        reserved = sorted(_RESERVED.intersection(one))
        if reserved:
            raise RefusedError(f"{place}[{n}].{reserved[0]}", reserved[0], "a matcher is no field of $or")
        found += _branches(one, path)
    return found


def _named(path: tuple[str, ...]) -> tuple[str, ...]:
    if "." in path[-1]:
        reason = "a dot in a name is ambiguous: write objects inside each other"
        raise RefusedError(_shown(path), path[-1], reason)
    return path


def _shown(path: Sequence[str]) -> str:
    return ".".join(path)


def _by_name(field: Field) -> str:
    return _shown(field[0])


def _present_or_absent(fields: dict[tuple[str, ...], Any]) -> Iterator[dict[tuple[str, ...], Any]]:
    """The fields, for each way in which those that may be absent are present or absent."""
    choices: list[list[Field]] = []
    for path, matchers in fields.items():
        absent = [one for one in matchers if _is_absence(one)]
        present = [one for one in matchers if not _is_absence(one)]
        place = _shown(path)
        made = [_matcher(one, f"{place}[{n}]") for n, one in enumerate(matchers) if not _is_absence(one)]
        choices.append([*([(path, made)] if present else []), *([(path, _ABSENT)] if absent else [])])
    for chosen in product(*choices):
        yield dict(chosen)


def _is_absence(matcher: Any) -> bool:
    return isinstance(matcher, Mapping) and len(matcher) == 1 and matcher.get("exists") is False


# -- array-consistent conditions ---------------------------------------------------------------------


def _joint(fields: Sequence[Field], level: int) -> Predicate:
    """The fields, in order of their names, of one object: the event, or the element at a level."""
    if level > _DEEPEST:
        raise RefusedError(_shown(fields[0][0]), "", f"more than {_DEEPEST} objects with several fields nest")
    groups: dict[str, list[Field]] = {}
    for path, what in fields:
        groups.setdefault(path[0], []).append((path, what))
    parts: list[Predicate] = []
    for name, own in groups.items():
        first = next((n for n, (_, what) in enumerate(own) if what is not _ABSENT), len(own))
        parts += [_alone(path, _ABSENT, level) for path, _ in own[:first]]  # before an element is chosen
        rest = own[first:]
        if len(rest) == 1:
            parts.append(_alone(*rest[0], level))
        elif rest:
            inner = _joint([(path[1:], what) for path, what in rest], level + 1)
            parts.append(exists_in(element(level, (name, ...)), inner, level))
    return all_of(parts)


def _alone(path: tuple[str, ...], what: Any, level: int) -> Predicate:
    """One field, whose elements are chosen by themselves."""
    steps: list[Step] = []
    for name in path:
        steps += [name, ...]
    value = element(level + 1)
    if what is _ABSENT:
        return Not(exists_in(element(level, steps), _is_value(value), level))
    where = any_of([matcher(value) for matcher in what])
    return exists_in(element(level, steps), where, level)


def _is_value(value: Sequence[Step]) -> Predicate:
    """The element is no object; elements of `[*]` are no lists."""
    return Compare(Column(f"{MARK}typeof({Path(tuple(value))})"), "!=", "object")


# -- matchers ------------------------------------------------------------------------------------------


Matcher = Callable[[Sequence[Step]], Predicate]  # the condition on the element at a path


def _matcher(value: Any, place: str) -> Matcher:
    if not isinstance(value, Mapping):
        return _equals(value, place)
    if len(value) != 1:
        raise RefusedError(place, dict(value), "a matcher has one name")
    ((name, operand),) = value.items()
    if name not in _MATCHERS:
        raise RefusedError(place, name, "there is no such matcher")
    return _MATCHERS[name](operand, f"{place}.{name}")


def _equals(value: Any, place: str) -> Matcher:
    if value is None:
        return lambda at: Compare(Column(f"{MARK}typeof({Path(tuple(at))})"), "=", "null")
    if isinstance(value, str) and (address := address_of(value)) is not None:
        return lambda at: in_network(_column(at), address)
    if isinstance(value, str | int | float):
        return lambda at: Compare(_column(at), "=", value)
    raise RefusedError(place, value, "a value is text, a number, true, false or null")


def _column(at: Sequence[Step]) -> Column:
    return Column(Path(tuple(at)).name)


def _text(value: Any, place: str) -> str:
    if not isinstance(value, str):
        raise RefusedError(place, value, "this matcher takes text")
    return value


def _exactly(value: Any, place: str) -> Matcher:
    text = _text(value, place)
    return lambda at: Compare(_column(at), "=", text)


def _end(form: str) -> Callable[[Any, str], Matcher]:
    """A matcher of the beginning or the end, perhaps without case."""

    def make(value: Any, place: str) -> Matcher:
        folded = isinstance(value, Mapping)
        if folded:
            if set(value) != {"equals-ignore-case"}:
                raise RefusedError(place, dict(value), "it takes text or equals-ignore-case")
            value = _cased(_text(value["equals-ignore-case"], place), place)
        pattern = form.format(escaped(_text(value, place)))
        return lambda at: like(_column(at), pattern, folded=folded)

    return make


def _ignoring_case(value: Any, place: str) -> Matcher:
    pattern = escaped(_cased(_text(value, place), place))
    return lambda at: like(_column(at), pattern, folded=True)


def _cased(text: str, place: str) -> str:
    """A text whose letters have at most a lower and an upper form, which are alike exactly for each other."""
    for letter in text:
        forms = {letter.lower(), letter.upper()}
        if not letter.isascii() and (any(len(f) > 1 or fold(f) != fold(letter) for f in forms)):
            raise RefusedError(place, letter, "the letter has other forms than a lower and an upper one")
    return text


def _wildcard(value: Any, place: str) -> Matcher:
    out, text, at = [], _text(value, place), 0
    while at < len(text):
        letter = text[at]
        if letter == "\\":
            at += 1
            if text[at : at + 1] not in ("*", "\\"):
                raise RefusedError(place, text, "a backslash stands before * or another backslash")
            out.append(escaped(text[at]))
        elif letter == "*":
            if out and out[-1] == "%":
                raise RefusedError(place, text, "two * may not follow each other")
            out.append("%")
        else:
            out.append(escaped(letter))
        at += 1
    pattern = "".join(out)
    return lambda at: Like(_column(at), pattern)


def _numeric(value: Any, place: str) -> Matcher:
    terms = list(value) if isinstance(value, list | tuple) else []
    if not terms or len(terms) not in (2, 4):
        raise RefusedError(place, value, "numeric takes an operator and a number, or two of each")
    operators, numbers = terms[::2], terms[1::2]
    for number in numbers:
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise RefusedError(place, number, "a number is expected here")
    if any(op not in ("=", "<", "<=", ">", ">=") for op in operators):
        raise RefusedError(place, value, "operators are = < <= > >=")
    if len(operators) == 2:
        if operators[0] not in (">", ">=") or operators[1] not in ("<", "<="):
            raise RefusedError(place, value, "a range is > or >=, then < or <=")
        if numbers[0] >= numbers[1]:
            raise RefusedError(place, value, "the range is empty")
    if operators == [">=", "<="]:
        return lambda at: Between(_column(at), numbers[0], numbers[1])
    pairs = list(zip(operators, numbers, strict=True))
    return lambda at: all_of([Compare(_column(at), op, number) for op, number in pairs])


def _cidr(value: Any, place: str) -> Matcher:
    network = network_of(_text(value, place))
    if network is None or network.prefixlen == network.max_prefixlen:
        raise RefusedError(
            place, value, "an address and fewer bits than it has are expected, as in 10.0.0.0/8"
        )
    return lambda at: in_network(_column(at), network)


def _exists(value: Any, place: str) -> Matcher:
    if value is not True:
        raise RefusedError(place, value, "exists is true or false")
    return _is_value


def _anything_but(value: Any, place: str) -> Matcher:
    if isinstance(value, Mapping):
        if len(value) != 1:
            raise RefusedError(place, dict(value), "a matcher has one name")
        ((name, operand),) = value.items()
        if name not in ("prefix", "suffix", "wildcard", "equals-ignore-case"):
            raise RefusedError(place, name, "anything-but does not take this matcher")
        given = operand if isinstance(operand, list | tuple) else [operand]
        if not given or (name in ("prefix", "suffix") and "" in given):
            raise RefusedError(f"{place}.{name}", operand, "it needs text that is not empty")
        made = [_MATCHERS[name](_text(one, f"{place}.{name}"), f"{place}.{name}") for one in given]
        return lambda at: _but(at, any_of([one(at) for one in made]))
    given = list(value) if isinstance(value, list | tuple) else [value]
    texts = all(isinstance(one, str) for one in given)
    numbers = all(isinstance(one, int | float) and not isinstance(one, bool) for one in given)
    if not given or not (texts or numbers):
        raise RefusedError(place, value, "anything-but takes texts or numbers")
    if len(given) == 1:
        return lambda at: _but(at, Compare(_column(at), "=", given[0]))
    return lambda at: _but(at, In(_column(at), tuple(given)))


def _but(at: Sequence[Step], where: Predicate) -> Predicate:
    return all_of([_is_value(at), Not(is_true(where))])


_MATCHERS: dict[str, Callable[[Any, str], Matcher]] = {
    "anything-but": _anything_but,
    "cidr": _cidr,
    "equals-ignore-case": _ignoring_case,
    "exactly": _exactly,
    "exists": _exists,
    "numeric": _numeric,
    "prefix": _end("{}%"),
    "suffix": _end("%{}"),
    "wildcard": _wildcard,
}
