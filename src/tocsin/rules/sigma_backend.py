"""From pySigma's tree of a rule to our condition.

    detection item            condition
    Image|endswith: '\\x.exe'  Image ILIKE '%\\\\x.exe'
    Hashes|contains|all       AND of ILIKE '%..%'
    CommandLine|re: 'a.*b'    CommandLine RLIKE 'a.*b'
    DestinationIp|cidr        ip_key(DestinationIp) BETWEEN ..
    EventID: 4688             EventID = 4688 OR EventID = '4688'
    Field: null               Field IS NULL
    Field|fieldref: Other     alike(Field, Other, 'equal')
    a keyword                 event_text() ILIKE '%..%'

An item is true or false, never unknown: `not filter` holds for events without the filter's fields.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from sigma import types
from sigma.collection import SigmaCollection
from sigma.conditions import (
    ConditionAND,
    ConditionFieldEqualsValueExpression,
    ConditionNOT,
    ConditionOR,
    ConditionValueExpression,
)
from sigma.exceptions import SigmaError
from sigma.pipelines import common
from sigma.processing.pipeline import ProcessingItem, ProcessingPipeline
from sigma.processing.transformations import FieldMappingTransformation
from sigma.rule import SigmaRule
from sigma.types import SpecialChars

from tocsin.language.algebra import (
    Column,
    Compare,
    Exists,
    Ilike,
    IsNull,
    Like,
    Not,
    Predicate,
    Rlike,
    is_true,
)
from tocsin.language.conditions import check_rlike
from tocsin.model.derived import BETWEEN_VALUES
from tocsin.model.paths import ALL_VALUES, MARK, shown_name
from tocsin.rules.addresses import in_network
from tocsin.rules.atoms import all_of, any_of, column, contains, escaped
from tocsin.rules.base import RefusedError

__all__ = ["PIPELINES", "SigmaBackend", "backend_of"]


def _windows() -> ProcessingPipeline:
    items = [*common.generate_windows_logsource_items("Channel", "{source}")]
    return ProcessingPipeline(items=items, name="Windows event channels")


PIPELINES: dict[str, Callable[[], ProcessingPipeline]] = {"windows": _windows}
"""Pipelines by name: `windows` adds the channel of a rule's log source as a condition on `Channel`."""

_NO_EVENT = {  # documents that are no detection rules
    "correlation": "it is about several events: over a stream with declared columns it is a query",
    "filter": "only detection rules are events by themselves",
}
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,14})")
_COMPARE = {"LT": "<", "LTE": "<=", "GT": ">", "GTE": ">=", "NEQ": "!="}
_FLAGS = {"IGNORECASE": "i", "MULTILINE": "m", "DOTALL": "s"}


def backend_of(
    pipelines: Iterable[Any] | Any, fields: Mapping[str, str | list[str]], paths: bool
) -> SigmaBackend:
    """The backend of these options."""
    given = [pipelines] if isinstance(pipelines, str | ProcessingPipeline) else list(pipelines)
    whole = ProcessingPipeline()
    for one in given:
        if isinstance(one, ProcessingPipeline):
            whole += one
        elif one in PIPELINES:
            whole += PIPELINES[one]()
        else:
            try:
                whole += ProcessingPipeline.from_yaml(one)
            except (SigmaError, AttributeError, TypeError) as error:
                raise TypeError(f"the pipeline cannot be read: {error}") from None
    if fields:
        mapping: dict[str | None, str | list[str]] = {}
        mapping.update(fields.items())
        item = ProcessingItem(FieldMappingTransformation(mapping), identifier="fields")
        whole += ProcessingPipeline(items=[item], name="fields")
    return SigmaBackend(whole, paths)


class SigmaBackend:
    """Conditions of rules, after a processing pipeline."""

    def __init__(self, pipeline: ProcessingPipeline, paths: bool = True) -> None:
        self._pipeline, self._paths = pipeline, paths
        self._columns: dict[str, Column] = {}

    def merged(self, documents: Sequence[Any]) -> Iterator[tuple[str, Any]]:
        """The rules of a file by title; `action: global` and its like are merged into the others."""
        if any(isinstance(one, Mapping) and "action" in one for one in documents):
            try:
                documents = [rule.to_dict() for rule in SigmaCollection.from_dicts([*documents]).rules]
            except SigmaError as error:
                raise RefusedError("action", "", str(error)) from None
        for one in documents:
            title = one.get("title") or one.get("id") if isinstance(one, Mapping) else None
            yield str(title or ""), one

    def condition(self, document: Mapping[str, Any]) -> Predicate:
        """The condition of one rule; of several, one of them holds."""
        for word in _NO_EVENT:
            if word in document and "detection" not in document:
                raise RefusedError(word, document[word], _NO_EVENT[word])
        try:
            rule = SigmaRule.from_dict(dict(document))
            if self._pipeline.items:
                self._pipeline.apply(rule)
            parsed = [one.parsed for one in rule.detection.parsed_condition]
        except SigmaError as error:
            raise RefusedError(*_named_in(str(error), document.get("detection")), str(error)) from None
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise RefusedError("", "", f"pySigma cannot read the rule: {error!r}") from None
        try:
            return any_of([self._tree(one) for one in parsed])
        except RefusedError as error:
            raise RefusedError(_place(rule, error.place), error.construct, error.reason) from None

    def _tree(self, node: Any) -> Predicate:
        if isinstance(node, ConditionAND):
            return all_of([self._tree(arg) for arg in node.args])
        if isinstance(node, ConditionOR):
            return any_of([self._tree(arg) for arg in node.args])
        if isinstance(node, ConditionNOT):
            return Not(is_true(self._tree(node.args[0])))
        if isinstance(node, ConditionFieldEqualsValueExpression):
            return self._item(node.field, node.value)
        if isinstance(node, ConditionValueExpression):
            return self._keyword(node.value)
        raise RefusedError("condition", str(node), "this part of a condition is not supported")

    # -- items -------------------------------------------------------------------------------------

    def _column(self, field: str) -> Column:
        found = self._columns.get(field)
        if found is None:
            steps = field.split(".") if self._paths else [field]
            found = self._columns[field] = column(steps if all(steps) else [field])
        return found

    def _item(self, field: str, value: Any) -> Predicate:
        if isinstance(value, types.SigmaExpansion):
            return any_of([self._item(field, one) for one in value.values])
        if isinstance(value, types.SigmaExists):
            there = Not(IsNull(self._column(field)))
            return there if value else there.arg
        if isinstance(value, types.SigmaFieldReference):
            return self._two_fields(field, value)
        try:
            return _compared(self._column(field), value)
        except RefusedError as error:
            raise RefusedError(field, error.construct, error.reason) from None

    def _two_fields(self, field: str, value: types.SigmaFieldReference) -> Predicate:
        forms = {(False, False): "equal", (True, False): "prefix", (False, True): "suffix"}
        form = forms.get((value.starts_with, value.ends_with), "contains")
        paths = (shown_name(self._column(one).name) for one in (field, value.field))
        return Compare(Column(f"{MARK}alike({', '.join(paths)}, '{form}')"), "=", True)

    def _keyword(self, value: Any) -> Predicate:
        """A value without a field: some value of the event contains it."""
        if isinstance(value, types.SigmaNumber):
            return contains(_EVENT_TEXT, str(value.number), folded=True)
        if isinstance(value, types.SigmaRegularExpression):
            where = Rlike(Column("e1"), _regex(value))
            return Compare(Exists(ALL_VALUES, where, "e1").column, "=", True)
        if not isinstance(value, types.SigmaString):
            raise RefusedError(
                "", str(value), f"a keyword of the kind {type(value).__name__} is not supported"
            )
        parts = _without_ends(value.s)
        folded = not isinstance(value, types.SigmaCasedString)
        if all(isinstance(part, str) and BETWEEN_VALUES not in part for part in parts):
            return contains(_EVENT_TEXT, "".join(parts), folded=folded)
        if any(not isinstance(part, str | SpecialChars) for part in parts):
            _text(_EVENT_TEXT, value)  # raises: a placeholder
        words = [re.sub(r"([^\w ])", r"\\\1", part, flags=re.ASCII) if isinstance(part, str) else
                 _IN_VALUE[part] for part in parts]  # fmt: skip
        return Rlike(_EVENT_TEXT, _checked(("(?is)" if folded else "(?s)") + "".join(words)))


_EVENT_TEXT = Column(f"{MARK}event_text()")
_IN_VALUE = {
    SpecialChars.WILDCARD_MULTI: f"[^{BETWEEN_VALUES}]*",
    SpecialChars.WILDCARD_SINGLE: f"[^{BETWEEN_VALUES}]",
}


def _without_ends(parts: Sequence[Any]) -> list[Any]:
    """The parts of a text that something may precede and follow."""
    found = list(parts)
    while found and found[0] is SpecialChars.WILDCARD_MULTI:
        del found[0]
    while found and found[-1] is SpecialChars.WILDCARD_MULTI:
        del found[-1]
    return found


def _named_in(message: str, detection: Any, path: str = "detection") -> tuple[str, str]:
    """The place and the construct of a rule that an error of pySigma is about, as far as it names them."""
    entries = detection.items() if isinstance(detection, Mapping) else ()
    for name, value in entries:
        here = f"{path}.{name}"
        if isinstance(value, Mapping):
            if (found := _named_in(message, value, here))[1]:
                return found
            continue
        for word in (*str(name).split("|")[1:], *(value if isinstance(value, list) else [value])):
            if (
                isinstance(word, str)
                and len(word) > 1
                and re.search(rf"(?<!\w){re.escape(word)}(?!\w)", message)
            ):
                return here, word
    return path, ""


def _place(rule: SigmaRule, field: str) -> str:
    """Where in a rule a field is compared."""
    for name, detection in rule.detection.detections.items():
        for item in _items(detection):
            if item.field == field:
                modifiers = "".join(f"|{m.__name__}" for m in item.modifiers)
                modifiers = re.sub(r"\|Sigma(\w+?)Modifier", lambda m: "|" + m[1].lower(), modifiers)
                return f"detection.{name}.{field}{modifiers}"
    return f"detection.{field}" if field != "condition" else field


def _items(detection: Any) -> Iterator[Any]:
    for item in getattr(detection, "detection_items", ()):
        if hasattr(item, "detection_items"):
            yield from _items(item)
        else:
            yield item


# -- values ------------------------------------------------------------------------------------------


def _compared(where: Column, value: Any) -> Predicate:
    """The condition that an attribute has a value of Sigma."""
    if isinstance(value, types.SigmaString):
        return _text(where, value)
    if isinstance(value, types.SigmaTimestampPart):
        raise RefusedError("", value.timestamp_part.name, "parts of timestamps are not supported")
    if isinstance(value, types.SigmaNumber):
        return any_of([Compare(where, "=", value.number), Compare(where, "=", str(value.number))])
    if isinstance(value, types.SigmaBool):
        return any_of([Compare(where, "=", value.boolean), Ilike(where, str(value.boolean))])
    if isinstance(value, types.SigmaRegularExpression):
        return Rlike(where, _regex(value))
    if isinstance(value, types.SigmaCIDRExpression):
        return in_network(where, value.network)
    if isinstance(value, types.SigmaCompareExpression):
        return Compare(where, _COMPARE[value.op.name], value.number.number)
    if isinstance(value, types.SigmaNull):
        return IsNull(where)
    raise RefusedError("", str(value), f"a value of the kind {type(value).__name__} is not supported")


def _text(where: Column, value: types.SigmaString) -> Predicate:
    parts: list[str] = []
    for part in value.s:
        if isinstance(part, str):
            parts.append(escaped(part))
        elif part is SpecialChars.WILDCARD_MULTI:
            if not parts or parts[-1] != "%":
                parts.append("%")
        elif part is SpecialChars.WILDCARD_SINGLE:
            parts.append("_")
        else:
            name = getattr(part, "name", part)
            raise RefusedError("", f"%{name}%", "a placeholder needs a pipeline that replaces it")
    pattern = "".join(parts)
    if pattern == "%":
        return Not(IsNull(where))
    if isinstance(value, types.SigmaCasedString):
        return Like(where, pattern)
    if _NUMBER.fullmatch(pattern):
        return any_of([Ilike(where, pattern), Compare(where, "=", int(pattern))])
    return Ilike(where, pattern)


@lru_cache(maxsize=1 << 12)
def _checked(pattern: str) -> str:
    try:
        return check_rlike(pattern)
    except ValueError as error:
        raise RefusedError("", pattern, f"RE2 does not take the regex: {error}") from None


def _regex(value: types.SigmaRegularExpression) -> str:
    flags = "".join(_FLAGS[flag.name] for flag in sorted(value.flags, key=lambda flag: flag.name))
    pattern = str(value.regexp)
    return _checked(f"(?{flags}){pattern}" if flags else pattern)
