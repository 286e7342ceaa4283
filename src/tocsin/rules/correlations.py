"""Sigma correlations as subscriptions to a stream with declared columns, exactly or not at all.

    event_count       GROUP BY the fields, HAVING COUNT(*) >= n, in a window of the timespan
    value_count       the same with COUNT(DISTINCT field)
    temporal          HAVING COUNT(*) FILTER (WHERE rule) >= 1 for each rule
    temporal_ordered  rule 1 FOLLOWED BY rule 2 ... WITHIN the timespan

The rules that a correlation refers to are read as those of `sigma.py`; their conditions compare declared
columns, so a comparison that no value of the column's type satisfies is unknown. Events in which a field of
`group-by` is NULL are of no group.

>>> from tocsin.model.schema import Field
>>> fields = Field("user", Type.STRING), Field("ip", Type.STRING), Field("ok", Type.BOOLEAN)
>>> logins = Stream("logins", fields)
>>> rules = '''
... title: Failed login
... name: failed
... logsource: {category: authentication}
... detection: {selection: {ok: false}, condition: selection}
... ---
... title: From many places
... correlation:
...     {type: value_count, rules: [failed], group-by: [user], timespan: 10m, condition: {gte: 3, field: ip}}
... '''
>>> (found,) = read_correlations(rules, logins)
>>> print(found.sql)
SELECT `user`, COUNT(DISTINCT ip) AS n FROM logins WHERE (ok = FALSE) AND NOT `user` IS NULL GROUP BY `user` \
HAVING COUNT(DISTINCT ip) >= 3 WITH (window = '10 minutes')
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from sigma.correlations import SigmaCorrelationCondition, SigmaCorrelationRule
from sigma.exceptions import SigmaError

from tocsin.language.algebra import (
    And,
    Atom,
    Between,
    Column,
    Compare,
    Ilike,
    In,
    IsNull,
    IsTrue,
    Like,
    Not,
    Or,
    Predicate,
    Rlike,
    Truth,
    with_column,
)
from tocsin.language.options import print_span
from tocsin.language.sequences import MAX_STEPS
from tocsin.model.paths import is_inside, shown_name
from tocsin.model.schema import Field, Stream, Type, quote
from tocsin.rules.base import Refusal, RefusedError
from tocsin.rules.sigma import Sigma

__all__ = ["Correlation", "read_correlations"]

_OPS = {"GTE": ">=", "GT": ">", "EQ": "="}


@dataclass(frozen=True, slots=True)
class Correlation:
    """A correlation that was read: its name, and the query that reports it."""

    rule: str
    sql: str


def read_correlations(
    rules: Any, stream: Stream, *, others: Any = (), detections: bool = False, **options: Any
) -> Iterator[Correlation | Refusal]:
    """Each correlation among rules, as a query over a stream; `options` are those of `Sigma`.

    Detection rules, also those among `others`, are read as far as correlations refer to them; with
    `detections` those among `rules` are queries too.
    """
    reader = Sigma(**options)
    documents: list[tuple[str, Any]] = []
    for source in _several(rules):
        try:
            documents += reader.rules(source)
        except RefusedError as error:
            yield Refusal(f"rule {len(documents) + 1}", error.place, error.construct, error.reason)
    made = _CorrelationReader(reader, stream, _by_name([*_documents(reader, others), *documents]))
    for number, (title, document) in enumerate(documents, 1):
        whole = isinstance(document, Mapping) and "correlation" in document and "detection" not in document
        if not whole and not detections:
            continue
        name = title or (str(document.get("name") or "") if isinstance(document, Mapping) else "")
        name = name or f"rule {number}"
        try:
            yield Correlation(name, made.sql(document) if whole else made.events(document))
        except RefusedError as error:
            yield Refusal(name, error.place, error.construct, error.reason)


def _several(rules: Any) -> list[Any]:
    return [rules] if isinstance(rules, str | Mapping) else list(rules)


def _documents(reader: Sigma, sources: Any) -> Iterator[tuple[str, Any]]:
    """The rules of sources that can be read."""
    for source in _several(sources):
        with suppress(RefusedError):
            yield from reader.rules(source)


def _by_name(documents: Sequence[tuple[str, Any]]) -> dict[str, Mapping[str, Any]]:
    names: dict[str, Mapping[str, Any]] = {}
    for _, document in documents:
        if isinstance(document, Mapping):
            names |= {str(document[k]): document for k in ("name", "id") if k in document}
    return names


class _CorrelationReader:
    """Reads one correlation."""

    def __init__(self, rules: Sigma, stream: Stream, names: Mapping[str, Mapping[str, Any]]) -> None:
        self.rules, self.stream, self.names = rules, stream, names

    def events(self, document: Any) -> str:
        """The query of a detection rule."""
        where = _positive(self._typed(self.rules.condition(document)))
        return f"SELECT * FROM {quote(self.stream.name)} WHERE {where}"

    def sql(self, document: Mapping[str, Any]) -> str:
        """The query of a correlation."""
        try:
            rule = SigmaCorrelationRule.from_dict(dict(document))
        except (SigmaError, AttributeError, TypeError, ValueError) as error:
            raise RefusedError("correlation", "", str(error)) from None
        kind = rule.type.name.lower()
        read = {
            "event_count": self._count,
            "value_count": self._count,
            "temporal": self._temporal,
            "temporal_ordered": self._ordered,
        }
        if kind not in read:
            raise RefusedError("correlation.type", kind, f"types are {', '.join(read)}")
        if rule.timespan.unit in "My":
            reason = "months and years have no fixed length; write days"
            raise RefusedError("correlation.timespan", rule.timespan.spec, reason)
        references = [one.reference for one in rule.rules or ()]
        if not references:
            raise RefusedError("correlation.rules", "", "it names no rules")
        conditions = [self._condition(name) for name in references]
        return read[kind](rule, references, conditions)

    # -- kinds -------------------------------------------------------------------------------------

    def _count(
        self, rule: SigmaCorrelationRule, references: Sequence[str], conditions: Sequence[Predicate]
    ) -> str:
        given = rule.condition
        assert isinstance(given, SigmaCorrelationCondition)
        if given.op.name not in _OPS:
            reason = "a group without events reports nothing, so only gt, gte and eq are exact"
            raise RefusedError("correlation.condition", given.op.name.lower(), reason)
        if not isinstance(given.count, int) or (given.op.name != "GT" and given.count < 1) or given.count < 0:
            raise RefusedError("correlation.condition", str(given.count), "a count is a whole number above 0")
        counted = "COUNT(*)"
        if rule.type.name == "VALUE_COUNT":
            if not isinstance(given.fieldref, str):
                raise RefusedError("correlation.condition.field", str(given.fieldref), "one field is counted")
            counted = f"COUNT(DISTINCT {self._column(given.fieldref, 'correlation.condition.field')})"
        having = f"{counted} {_OPS[given.op.name]} {given.count}"
        return self._grouped(rule, references, conditions, f"{counted} AS n", having)

    def _temporal(
        self, rule: SigmaCorrelationRule, references: Sequence[str], conditions: Sequence[Predicate]
    ) -> str:
        self._reject_condition(rule, references)
        each = [f"COUNT(*) FILTER (WHERE {condition})" for condition in conditions]
        shown = ", ".join(f"{counted} AS n{number}" for number, counted in enumerate(each, 1))
        having = " AND ".join(f"{counted} >= 1" for counted in each)
        return self._grouped(rule, references, conditions, shown, having)

    def _ordered(
        self, rule: SigmaCorrelationRule, references: Sequence[str], conditions: Sequence[Predicate]
    ) -> str:
        self._reject_condition(rule, references)
        count = len(references)
        if not 2 <= count <= MAX_STEPS:
            reason = f"a sequence has two to {MAX_STEPS} steps"
            raise RefusedError("correlation.rules", ", ".join(references), reason)
        if not rule.group_by:
            raise RefusedError("correlation.group-by", "", "a sequence needs a field that all rules share")
        name = quote(self.stream.name)
        steps = " FOLLOWED BY ".join(f"{name} AS e{n}" for n in range(1, count + 1))
        keys = [[self._key(rule, field, one) for one in references] for field in rule.group_by]
        parts = [f"e{n}.{own[n - 1]} = e{n + 1}.{own[n]}" for own in keys for n in range(1, count)]
        own = [_of_step(condition, f"e{n}") for n, condition in enumerate(conditions, 1)]
        parts += [f"({condition})" for condition in own if condition != Truth(True)]
        shown = ", ".join(
            f"e{count}.{columns[-1]} AS {quote(f)}" for f, columns in zip(rule.group_by, keys, strict=True)
        )
        within = print_span(rule.timespan.seconds * 1_000_000)
        return f"SELECT {shown} FROM {steps} WITHIN '{within}' WHERE {' AND '.join(parts)}"

    def _grouped(
        self,
        rule: SigmaCorrelationRule,
        references: Sequence[str],
        conditions: Sequence[Predicate],
        shown: str,
        having: str,
    ) -> str:
        keys: list[str] = []
        for field in rule.group_by or ():
            own = {self._key(rule, field, one) for one in references}
            if len(own) > 1:
                reason = "rules that name a field differently are grouped in temporal_ordered alone"
                raise RefusedError("correlation.aliases", field, reason)
            keys += own
        where = " OR ".join(f"({condition})" for condition in dict.fromkeys(conditions))
        parts = [f"({where})" if len(set(conditions)) > 1 else where, *(f"NOT {key} IS NULL" for key in keys)]
        text = (
            f"SELECT {', '.join([*keys, shown])} FROM {quote(self.stream.name)} WHERE {' AND '.join(parts)}"
        )
        group = f" GROUP BY {', '.join(keys)}" if keys else ""
        span = print_span(rule.timespan.seconds * 1_000_000)
        return f"{text}{group} HAVING {having} WITH (window = '{span}')"

    @staticmethod
    def _reject_condition(rule: SigmaCorrelationRule, references: Sequence[str]) -> None:
        """The condition of a temporal correlation says that all rules match, as it does without one."""
        given = rule.condition
        if not isinstance(given, SigmaCorrelationCondition):
            raise RefusedError("correlation.condition", given.expression, "only all rules together are exact")
        whole = given.op.name == "GTE" and given.count in (1, len(references))
        if not whole or given.fieldref is not None:
            place = "correlation.condition"
            raise RefusedError(place, str(given.to_dict()), "only all rules together are exact")

    # -- rules and fields --------------------------------------------------------------------------

    def _condition(self, name: str) -> Predicate:
        document = self.names.get(name)
        if document is None:
            reason = "there is no rule of this name or id among them"
            raise RefusedError("correlation.rules", name, reason)
        if "correlation" in document:
            raise RefusedError("correlation.rules", name, "a correlation of correlations is not supported")
        try:
            return _positive(self._typed(self.rules.condition(document)))
        except RefusedError as error:
            raise RefusedError(f"{name}.{error.place}", error.construct, error.reason) from None

    def _key(self, rule: SigmaCorrelationRule, field: str, reference: str) -> str:
        """The column of a field of group-by in the events of one rule."""
        for alias in rule.aliases:
            if alias.alias == field:
                found = {one.reference: name for one, name in alias.mapping.items()}
                if reference not in found:
                    raise RefusedError("correlation.aliases", field, f"it has no field for {reference}")
                return self._column(found[reference], "correlation.aliases")
        return self._column(field, "correlation.group-by")

    def _column(self, name: str, place: str) -> str:
        return str(Column(self._field(name, place).name))

    def _field(self, name: str, place: str) -> Field:
        found = self.stream.find(name)
        if found is None:
            reason = f"{self.stream.name} has no such column: it has {', '.join(self.stream.names)}"
            raise RefusedError(place, name, reason)
        return found

    def _typed(self, predicate: Predicate) -> Predicate:
        """A condition on attributes as one on the stream's columns."""
        if isinstance(predicate, And | Or):
            return type(predicate)(tuple(map(self._typed, predicate.args)))
        if isinstance(predicate, Not):
            return Not(self._typed(predicate.arg))
        if isinstance(predicate, Truth):
            return predicate
        if isinstance(predicate, IsTrue):
            inner = self._typed(predicate.arg)
            return Truth(inner.value is True) if isinstance(inner, Truth) else _is_true(inner)
        name = predicate.column.name
        if is_inside(name):
            reason = "it looks inside events, which only open streams have"
            raise RefusedError("detection", shown_name(name), reason)
        field = self._field(name, "detection")
        if not _fits(predicate, field.type):
            return Truth(None)
        return with_column(predicate, Column(field.name, field.type))


def _is_true(inner: Predicate) -> Predicate:
    known: Any = inner
    if isinstance(inner, Not) and isinstance(inner.arg, Truth):
        return Truth(inner.arg.value is False)
    return IsTrue(known)


def _positive(predicate: Predicate) -> Predicate:
    """The same where it is true: what is never true is left out of OR."""
    if isinstance(predicate, And):
        return And(tuple(map(_positive, predicate.args)))
    if not isinstance(predicate, Or):
        return predicate
    args = tuple(arg for arg in map(_positive, predicate.args) if arg not in (Truth(None), Truth(False)))
    return args[0] if len(args) == 1 else Or(args) if args else Truth(False)


def _fits(atom: Atom, type: Type) -> bool:
    """Whether a value of the type can be compared so; otherwise the comparison is unknown."""
    if isinstance(atom, IsNull):
        return True
    if isinstance(atom, Like | Ilike | Rlike):
        return type is Type.STRING
    if isinstance(atom, In):
        return all(_is_of(value, type) for value in atom.values)
    ends = (
        (atom.low, atom.high)
        if isinstance(atom, Between)
        else (atom.value,)
        if isinstance(atom, Compare)
        else ()
    )
    return all(_is_of(value, type) for value in ends)


def _is_of(value: Any, type: Type) -> bool:
    if isinstance(value, bool):
        return type is Type.BOOLEAN
    if isinstance(value, int | float):
        return type in (Type.BIGINT, Type.DOUBLE)
    return isinstance(value, str) and type is Type.STRING


def _of_step(predicate: Predicate, alias: str) -> Predicate:
    """The condition on the columns of a step."""
    if isinstance(predicate, And | Or):
        return replace(predicate, args=tuple(_of_step(arg, alias) for arg in predicate.args))
    if isinstance(predicate, Not):
        return Not(_of_step(predicate.arg, alias))
    if isinstance(predicate, Truth):
        return predicate
    return with_column(predicate, replace(predicate.column, relation=alias))
