"""Event patterns against a second evaluator, and in the engine; refusals name the place."""

from __future__ import annotations

import os
import random

import pytest

from tests.rules import eventbridge_cases as cases
from tests.rules.eventbridge_oracle import matches
from tocsin import Engine
from tocsin.reference import holds
from tocsin.rules.base import Condition, Refusal, RefusedError, read_rules
from tocsin.rules.eventbridge import EventBridge

PAIRS = int(os.environ.get("TOCSIN_RULE_PAIRS", "3000"))


def test_patterns_mean_what_the_second_evaluator_says():
    rng, language, found = random.Random(7), EventBridge(), 0
    for _ in range(max(1, PAIRS // 10)):
        pattern = cases.pattern(rng)
        (rule,) = language.read([pattern])
        if isinstance(rule, Refusal):  # a field with values and fields inside
            assert rule.construct == "$or", pattern
            continue
        for _ in range(10):
            event = cases.event(rng)
            expected = matches(pattern, event)
            found += expected
            assert holds(rule.where, event) is expected, (pattern, event)
    assert found > PAIRS // 30


@pytest.mark.parametrize("seed", range(max(2, PAIRS // 20_000)))
def test_the_engine_matches_what_the_second_evaluator_says(seed):
    rng = random.Random(seed)
    patterns = [pattern for pattern in (cases.pattern(rng) for _ in range(60)) if "$or" not in str(pattern)]
    engine = Engine()
    engine.execute("CREATE STREAM events")
    done = engine.subscribe_rules("eventbridge", patterns, stream="events")
    assert not done.refused
    events = [cases.event(rng) for _ in range(60)]
    expected = [[n + 1 for n, pattern in enumerate(patterns) if matches(pattern, event)] for event in events]
    deltas = engine.apply("events", events)
    batch = [deltas.subscription[deltas.seq == n + 1].tolist() for n in range(len(events))]
    assert batch == expected
    assert [engine.publish("events", event).subscription.tolist() for event in events] == expected


def test_conditions_print_as_SQL_that_means_the_same():
    rng = random.Random(3)
    engine = Engine()
    engine.execute("CREATE STREAM events")
    for _ in range(40):
        (rule,) = EventBridge().read([cases.pattern(rng)])
        if isinstance(rule, Refusal):
            continue
        condition = rule.where
        query = engine.plan(f"SELECT * FROM events WHERE {condition}").query
        for event in (cases.event(rng) for _ in range(20)):
            assert (holds(query.where, event) is True) == (holds(condition, event) is True)


ORDER = {"items": [{"sku": "a", "n": 1, "gift": True}, {"sku": "b", "n": 9}]}


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ({"items": {"sku": ["a"], "n": [1]}}, True),
        ({"items": {"sku": ["a"], "n": [9]}}, False),  # not of one element
        ({"items": {"sku": ["b"], "tag": [{"exists": False}]}}, True),
        (
            {"items": {"sku": ["b"], "gift": [{"exists": False}]}},
            False,
        ),  # gift stands before sku: no item has one
        ({"items": {"n": [9], "o": [{"exists": False}]}}, True),
        ({"items": {"gift": [{"exists": False}]}}, False),
        ({"items": [{"exists": False}]}, True),  # it is no leaf
        ({"$or": [{"items": {"n": [7]}}, {"items": {"sku": [{"anything-but": "a"}]}}]}, True),
    ],
)
def test_elements_of_one_list_are_met_together(pattern, expected):
    assert matches(pattern, ORDER) is expected
    assert holds(EventBridge().condition(pattern), ORDER) is expected


@pytest.mark.parametrize(
    ("pattern", "place", "construct"),
    [
        ({"a": "x"}, "a", "x"),
        ({"a": []}, "a", "[]"),
        ({}, "", "{}"),
        ({"a": {"b": {}}}, "a.b", "{}"),
        ({"a.b": ["x"]}, "a.b", "a.b"),
        ({"a": [["x"]]}, "a[0]", "['x']"),
        ({"a": ["y", {"prefix": 5}]}, "a[1].prefix", "5"),
        ({"a": [{"like": "x"}]}, "a[0]", "like"),
        ({"a": [{"numeric": [">", 5, "<", 3]}]}, "a[0].numeric", "['>', 5, '<', 3]"),
        ({"a": [{"numeric": ["<", "5"]}]}, "a[0].numeric", "5"),
        ({"a": [{"wildcard": "a**b"}]}, "a[0].wildcard", "a**b"),
        ({"a": [{"wildcard": "a\\b"}]}, "a[0].wildcard", "a\\b"),
        ({"a": [{"cidr": "10.0.0.0"}]}, "a[0].cidr", "10.0.0.0"),
        ({"a": [{"anything-but": [1, "x"]}]}, "a[0].anything-but", "[1, 'x']"),
        ({"a": [{"anything-but": {"prefix": ""}}]}, "a[0].anything-but.prefix", ""),
        ({"a": [{"anything-but": {"cidr": "x"}}]}, "a[0].anything-but", "cidr"),
        ({"a": [{"equals-ignore-case": "straße"}]}, "a[0].equals-ignore-case", "ß"),
        ({"$or": [{"a": [1]}]}, "$or", "[{'a': [1]}]"),
        ({"$or": [{"prefix": [1]}, {"a": [1]}]}, "$or[0].prefix", "prefix"),
    ],
)
def test_a_refusal_names_the_place_and_the_construct(pattern, place, construct):
    with pytest.raises(RefusedError) as refused:
        EventBridge().condition(pattern)
    assert (refused.value.place, refused.value.construct) == (place, construct)


def test_rules_are_texts_lists_and_those_of_templates():
    given = [
        '{"a": [1]}',
        '[{"a": [2]}, {"Name": "third", "EventPattern": "{\\"a\\": [3]}"}]',
        '{"a": [1], "a": [2]}',
        "{",
    ]
    found = list(read_rules("eventbridge", given))
    assert [one.rule for one in found] == ["rule 1", "rule 2", "third", "rule 4", "rule 5"]
    assert [isinstance(one, Condition) for one in found] == [True, True, True, False, False]
    assert str(found[3]) == "rule 4: a: a: the field occurs twice"
    assert str(found[4]).startswith("rule 5: line 1, column 2: this is not JSON")
