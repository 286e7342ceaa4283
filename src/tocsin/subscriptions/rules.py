"""Rules of other systems as subscriptions: one batch, its conditions flattened together.

rules ─► RuleLanguage ─► Condition ─► normal form ─► one set of flat filters ─► the match room
                     └─► Refusal, returned to the caller
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from threading import RLock
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.errors import NormalFormError, SubscriptionError
from tocsin.language.algebra import Predicate, Query, Truth
from tocsin.language.deep_stack import with_deep_stack
from tocsin.language.held import fitted
from tocsin.language.predicates import relation_query
from tocsin.language.rewrite import NormalForm, compact_form
from tocsin.language.shape import Shape
from tocsin.model.columns import Index
from tocsin.model.schema import Stream, Table
from tocsin.predicate.compile import flatten
from tocsin.rules.base import Condition, Refusal, Rule, read_rules
from tocsin.store.database import Database
from tocsin.store.plans import FlatPlans, LazyPlans
from tocsin.subscriptions.bulk import Load, collector_paused
from tocsin.subscriptions.registry import Registry
from tocsin.subscriptions.sources import Source

__all__ = ["RuleMethods", "RuleSource", "SubscribedRules", "load_rules", "normal_form"]


class SubscribedRules(NamedTuple):
    """What `subscribe_rules` did: ids and names of the rules that were taken, and those that were refused."""

    ids: Index
    names: tuple[str, ...]
    refused: tuple[Refusal, ...]


class RuleSource(Source):
    """Rules that were taken, over one stream."""

    shape = Shape.FILTER

    def __init__(self, stream: Stream, rules: Sequence[Condition], named: bool) -> None:
        self.tables = (stream.name,)
        self._stream, self._rules, self._named = stream, rules, named

    def query(self, row: int) -> Query:
        return relation_query(self._stream, self._rules[row].where)

    def sql(self, row: int) -> str:
        return str(self.query(row))

    def subscriber(self, row: int) -> str | None:
        return self._rules[row].rule if self._named else None

    def subscribers(self) -> NDArray[np.object_] | None:
        return np.array([rule.rule for rule in self._rules], object) if self._named else None


def load_rules(
    relation: Stream | Table, rules: Sequence[Rule], named: bool
) -> tuple[RuleSource, FlatPlans, list[int], list[Refusal]]:
    """The rules that can be registered, as one source with its plans; their numbers; and the others."""
    if not isinstance(relation, Stream) or not relation.open:
        raise SubscriptionError(
            f"rules are for open streams, and {relation.name} has declared columns",
            hint="CREATE STREAM name, without columns",
        )
    taken: list[Condition] = []
    numbers: list[int] = []
    forms: list[NormalForm] = []
    refused: list[Refusal] = []
    for n, rule in enumerate(rules):
        if isinstance(rule, Refusal):
            refused.append(rule)
            continue
        form = normal_form(rule)
        if isinstance(form, Refusal):
            refused.append(form)
            continue
        forms.append(form)
        taken.append(rule)
        numbers.append(n)
    source = RuleSource(relation, taken, named)
    lazy = LazyPlans(source.plan, np.arange(len(taken), dtype=np.int32))
    query = relation_query(relation, Truth(True))
    return source, FlatPlans(query, Shape.FILTER, (flatten(forms),), (), lazy), numbers, refused


def normal_form(rule: Condition) -> NormalForm | Refusal:
    """The normal form of a rule; where that is too large, parts are shared attributes."""
    try:
        return with_deep_stack(_form, rule.where)
    except NormalFormError as error:
        return Refusal(rule.rule, "", "", error.fact)


def _form(where: Predicate) -> NormalForm:
    try:
        return compact_form(where)
    except NormalFormError:
        return fitted(where)


class RuleMethods(ABC):
    """Part of `Engine`."""

    _lock: RLock
    _database: Database
    _registry: Registry

    @abstractmethod
    def _enter(self, load: Load, backfill: bool) -> Index:
        """Register what is loaded, all or none."""

    @abstractmethod
    def subscribe_texts(self, texts: Sequence[str]) -> Index:
        """Register texts, all or none."""

    def subscribe_rules(
        self,
        /,
        kind: str,
        rules: Any,
        *,
        stream: str,
        ids: Sequence[int] | None = None,
        named: bool = False,
        **options: Any,
    ) -> SubscribedRules:
        """Register rules of another system over an open stream; returns ids, and what was refused.

        `kind` is cesql, eventbridge, percolator or sigma; `rules` are dicts or texts as that system has them,
        and `options` those of its language (`tocsin.rules`). A rule that cannot be taken exactly is refused
        with the place and the construct, and the others are registered. `ids` are given by rule, refused ones
        too; with `named`, the name of a rule is its subscriber.

        >>> from tocsin import Engine
        >>> e = Engine()
        >>> e.execute("CREATE STREAM events")
        >>> patterns = [{"source": ["aws.ec2"]}, {"detail": {"cpu": [{"numeric": [">", "80"]}]}}]
        >>> done = e.subscribe_rules("eventbridge", patterns, stream="events")
        >>> print(done.ids, *done.refused)
        [1] rule 2: detail.cpu[0].numeric: 80: a number is expected here
        >>> [d.subscription for d in e.publish("events", {"source": "aws.ec2"})]
        [1]
        """
        with collector_paused():
            read = list(read_rules(kind, rules, **options))
        if ids is not None and len(ids) != len(read):
            raise SubscriptionError(
                f"there are {len(read)} rules and {len(ids)} ids", hint="give one for each"
            )
        with self._lock, collector_paused():
            source, plans, taken, refused = load_rules(self._database.relation(stream), read, named)
            first = self._registry.last_id + 1
            own = np.array(taken if ids is None else [ids[n] for n in taken], np.int64)
            own = np.arange(first, first + len(taken), dtype=np.int64) if ids is None else own
            if len(np.unique(own)) < len(own) or (own < 0).any():
                raise SubscriptionError(
                    "two rules have the same id, or one is below 0", hint="ids are distinct"
                )
            if len(own):
                self._enter(Load(own, [(own, source, plans)]), False)
        return SubscribedRules(own, tuple(read[n].rule for n in taken), tuple(refused))

    def subscribe_correlations(self, /, rules: Any, *, stream: str, **options: Any) -> SubscribedRules:
        """Register the Sigma correlations among rules over a stream with declared columns.

        `rules` are dicts or YAML texts, those that correlations refer to included; `options` are those of
        Sigma rules. What cannot be taken exactly is refused, as by `subscribe_rules`.
        """
        from tocsin.rules.correlations import Correlation, read_correlations  # pySigma is an extra

        with self._lock:
            relation = self._database.relation(stream)
            if not isinstance(relation, Stream) or relation.open:
                hint = f"CREATE STREAM {relation.name} (name TYPE, ...)"
                raise SubscriptionError("correlations are for streams with declared columns", hint=hint)
            read = list(read_correlations(rules, relation, **options))
            taken = [one for one in read if isinstance(one, Correlation)]
            ids = self.subscribe_texts([one.sql for one in taken]) if taken else np.empty(0, np.int64)
        refused = tuple(one for one in read if isinstance(one, Refusal))
        return SubscribedRules(ids, tuple(one.rule for one in taken), refused)
