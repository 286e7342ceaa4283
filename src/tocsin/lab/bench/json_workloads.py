"""Rules over events as JSON text, as users of rule engines write them: three workloads.

    equality   three equalities over 20 attributes of text
    prefix     two to four equalities and prefixes over the same
    contains   a word in a text of 100 characters, and one equality; a tenth of the rules

>>> rules, events = json_workload("contains", 10, 5, 0)
>>> len(rules), sorted(events[0]), holds_rule(rules[0], {"text": rules[0][0][2], "kind": rules[0][1][2]})
(1, ['host', 'kind', 'ms', 'text'], True)
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from string import ascii_lowercase
from typing import Any

import pyarrow as pa

__all__ = ["JSON_WORKLOADS", "holds_rule", "json_workload", "rules_table"]

JSON_WORKLOADS = ("equality", "prefix", "contains")
Rule = list[tuple[str, str, str]]  # attribute, operator, text

_ATTRIBUTES = [f"attribute{n}" for n in range(20)]
_VALUES = 200  # of each attribute
_WORDS = 5000  # that rules look for
_LENGTH = 100  # characters of a text


def json_workload(kind: str, count: int, events: int, seed: int) -> tuple[list[Rule], list[dict[str, Any]]]:
    """The rules (of `contains`, a tenth of the count) and the events of a workload."""
    draw = Random(seed)
    if kind == "contains":
        return _contains(draw, max(1, count // 10), events)
    values = [[_word(draw, 8) for _ in range(_VALUES)] for _ in _ATTRIBUTES]
    rules = [_rule(draw, values, kind == "prefix") for _ in range(count)]
    names = list(zip(_ATTRIBUTES, values, strict=True))
    return rules, [{name: draw.choice(own) for name, own in names} for _ in range(events)]


def rules_table(rules: Sequence[Rule]) -> Any:
    """The rules for `Engine.subscribe_predicates`; ids are their numbers."""
    columns = [("attribute", pa.string()), ("op", pa.string()), ("text", pa.string())]
    tests = [[dict(zip(("attribute", "op", "text"), test, strict=True)) for test in rule] for rule in rules]
    kinds = pa.list_(pa.struct(columns))
    return pa.table({"id": pa.array(range(len(rules)), pa.int64()), "predicates": pa.array(tests, kinds)})


def holds_rule(rule: Rule, event: dict[str, Any]) -> bool:
    """By brute force."""
    for attribute, op, text in rule:
        value = event[attribute]
        if not (value == text if op == "=" else value.startswith(text) if op == "prefix" else text in value):
            return False
    return True


def _rule(draw: Random, values: list[list[str]], prefixes: bool) -> Rule:
    rule: Rule = []
    for n in draw.sample(range(len(_ATTRIBUTES)), draw.randint(2, 4) if prefixes else 3):
        value = draw.choice(values[n])
        is_prefix = prefixes and draw.random() < 0.5
        test = ("prefix", value[: draw.randint(3, 5)]) if is_prefix else ("=", value)
        rule.append((_ATTRIBUTES[n], *test))
    return rule


def _contains(draw: Random, count: int, events: int) -> tuple[list[Rule], list[dict[str, Any]]]:
    words, kinds = [_word(draw, draw.randint(4, 7)) for _ in range(_WORDS)], [f"kind{n}" for n in range(50)]
    rules: list[Rule] = [
        [("text", "contains", draw.choice(words)), ("kind", "=", draw.choice(kinds))] for _ in range(count)
    ]
    drawn = []
    for _ in range(events):
        parts = [draw.choice(words) if draw.random() < 0.3 else _word(draw, 6) for _ in range(20)]
        text = " ".join(parts)[:_LENGTH]
        host, ms = f"host{draw.randrange(100)}", draw.randrange(1000)
        drawn.append({"text": text, "kind": draw.choice(kinds), "host": host, "ms": ms})
    return rules, drawn


def _word(draw: Random, length: int) -> str:
    return "".join(draw.choices(ascii_lowercase, k=length))
