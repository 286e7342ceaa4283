"""The protocol of rule languages: rules in, and per rule a condition or a refusal.

A `RuleLanguage` takes a rule as a dict or as text and gives its condition: a predicate of our algebra over
the attributes of an open stream, true for exactly those events that the rule matches. What it cannot say
exactly it refuses, with the place in the rule and the construct there; it never gives a condition that is
only near.

>>> found = list(read_rules("eventbridge", [{"state": ["running"]}, {"state": "running"}]))
>>> print(found[0].where)
exists(state[*], e1 -> e1 = 'running') = TRUE
>>> print(found[1])
rule 2: state: running: a field of a pattern is an object or a list of values
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from tocsin.errors import UsageError
from tocsin.language.algebra import Predicate

__all__ = ["KINDS", "Condition", "Refusal", "RefusedError", "Rule", "RuleLanguage", "language", "read_rules"]

KINDS: dict[str, str] = {
    "cesql": "tocsin.rules.cesql:Cesql",
    "eventbridge": "tocsin.rules.eventbridge:EventBridge",
    "percolator": "tocsin.rules.percolator:Percolator",
    "sigma": "tocsin.rules.sigma:Sigma",
}


@dataclass(frozen=True, slots=True)
class Condition:
    """A rule that was read: its name, and the condition that matches the same events."""

    rule: str
    where: Predicate


@dataclass(frozen=True, slots=True)
class Refusal:
    """A rule that cannot be taken exactly: where in the rule, what stands there, and why."""

    rule: str
    place: str
    construct: str
    reason: str

    def __str__(self) -> str:
        where = ": ".join(part for part in (self.place, self.construct) if part)
        return f"{self.rule}: {where}: {self.reason}" if where else f"{self.rule}: {self.reason}"


Rule = Condition | Refusal


class RefusedError(Exception):
    """Raised inside a rule language where a construct cannot be taken."""

    def __init__(self, place: str, construct: object, reason: str) -> None:
        super().__init__(place, construct, reason)
        self.place, self.construct, self.reason = place, _short(construct), reason


_LONGEST = 120


def _short(construct: object) -> str:
    text = construct if isinstance(construct, str) else repr(construct)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 4] + " ..."


class RuleLanguage(ABC):
    """Reads the rules of one system."""

    kind: str

    @abstractmethod
    def condition(self, rule: Any) -> Predicate:
        """The condition of one rule; RefusedError if it cannot be taken."""

    def rules(self, source: Any) -> Iterator[tuple[str, Any]]:
        """The rules in one piece of input, each with its name; "" for one without."""
        yield "", source

    def in_file(self, text: str) -> Iterator[Any]:
        """The rules in the text of a file, as `condition` takes them."""
        yield text

    def read(self, sources: Iterable[Any]) -> Iterator[Rule]:
        """Each rule of the input, in order."""
        number = 0
        for source in sources:
            try:
                several = list(self.rules(source))
            except RefusedError as error:
                number += 1
                yield Refusal(f"rule {number}", error.place, error.construct, error.reason)
                continue
            for name, rule in several:
                number += 1
                name = name or f"rule {number}"
                try:
                    yield Condition(name, self.condition(rule))
                except RefusedError as error:
                    yield Refusal(name, error.place, error.construct, error.reason)
                except RecursionError:
                    yield Refusal(name, "", "", "it nests too deeply")


def language(kind: str, **options: Any) -> RuleLanguage:
    """The rule language of a kind, with its options."""
    if kind not in KINDS:
        raise UsageError(f"there is no kind of rules called {kind!r}", hint=f"kinds are {', '.join(KINDS)}")
    module, name = KINDS[kind].split(":")
    try:
        made: RuleLanguage = getattr(import_module(module), name)(**options)
    except ImportError as error:
        hint = f"pip install 'tocsin[{kind}]'"
        raise UsageError(f"rules of the kind {kind} need the package {error.name}", hint=hint) from None
    except TypeError as error:
        raise UsageError(f"rules of the kind {kind} do not take these options: {error}") from None
    return made


def read_rules(kind: str, rules: Any, **options: Any) -> Iterator[Rule]:
    """Each rule of a list (or the only one) as a condition, or refused."""
    single = isinstance(rules, str | Mapping)
    return language(kind, **options).read([rules] if single else rules)
