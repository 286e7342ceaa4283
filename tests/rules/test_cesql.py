"""CESQL: values and errors of expressions, conditions that mean the same, refusals; the conformance cases."""

from __future__ import annotations

import os
import random

import pytest
import yaml

from tests.rules.data import folder
from tocsin import Engine
from tocsin.reference import holds
from tocsin.rules.base import Condition, Refusal, read_rules
from tocsin.rules.cesql import Cesql
from tocsin.rules.cesql_syntax import SyntaxFault, parsed
from tocsin.rules.cesql_values import evaluate

CASES = int(os.environ.get("TOCSIN_RULE_PAIRS", "3000"))
EVENT = {"specversion": "1.0", "id": "7", "source": "https://x/a", "type": "order.made"}


class _Loader(yaml.SafeLoader):
    """Timestamps stay texts, as they are in JSON."""

    yaml_implicit_resolvers = {  # noqa: RUF012
        letter: [(tag, regex) for tag, regex in known if tag != "tag:yaml.org,2002:timestamp"]
        for letter, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


@pytest.mark.parametrize(
    ("text", "value", "error"),
    [
        ("1 + 2 * 3 - 4", 3, ""),
        ("7-9", -2, ""),
        ("-7 / 2", -3, ""),
        ("-7 % 2", -1, ""),
        ("2147483647 + 1", 0, "math"),
        ("-2147483648", -(2**31), ""),
        ("- -3", 3, ""),
        ("TRUE OR FALSE AND FALSE", True, ""),
        ("FALSE AND FALSE OR TRUE", False, ""),  # from right to left
        ("NOT TRUE = TRUE", False, ""),  # NOT binds first
        ("NOT 'x'", True, "cast"),
        ("missing OR TRUE", False, "missingAttribute"),
        ("TRUE OR missing", True, ""),
        ("'a' IN ('b', missing)", False, "missingAttribute"),
        ("'b' IN ('b', missing)", True, ""),
        ("5 IN ('x', 5)", False, "cast"),
        ("n = '5'", True, ""),
        ("'05' = n", True, ""),
        ("big = '3000000000'", True, ""),
        ("half LIKE '1._'", True, ""),
        ("flag = 'true'", True, ""),
        ("deep", False, "missingAttribute"),
        ("data", False, "missingAttribute"),
        ("EXISTS ID AND EXISTS type", True, ""),
        ("EXISTS nothing OR EXISTS deep", False, ""),
        ("CONCAT_WS('-', n, flag, type)", "5-true-order.made", ""),
        ("SUBSTRING(type, -4, 2)", "ma", ""),
        ("SUBSTRING(type, 1, -2)", "", "functionEvaluation"),
        ("LEFT(type, LENGTH(id))", "o", ""),
        ("UPPER(TRIM('  a\\'b '))", "A'B", ""),
        ("'a\\c' LIKE 'a\\c'", True, ""),
        ("'a\nc' LIKE '___'", True, ""),
        ("BOOL('x')", False, "cast"),
        ("BOOL(-5) XOR 'TRUE'", False, ""),
        ("LENGTH(missing)", 0, "missingAttribute"),
    ],
)
def test_expressions_have_values_and_errors(text, value, error):
    event = {
        **EVENT, "n": 5, "big": 3_000_000_000, "half": 1.5, "flag": True, "deep": {"a": 1}, "nothing": None,
        "data": "x",
    }  # fmt: skip
    node = parsed(text)
    assert evaluate(node, event) == (value, error)
    assert type(evaluate(node, event).value) is type(value)
    assert parsed(str(node)) == node or str(parsed(str(node))) == str(node)


@pytest.mark.parametrize(
    ("given", "place", "construct"),
    [
        ("ABC(", "column 5", ""),
        ("type = ", "column 8", ""),
        ("type = 'a", "column 8", "'"),
        ("type LIKE 5", "column 11", "5"),
        ("x = 3000000000", "column 5", "3000000000"),
        ("a_b = 1", "column 1", "a_b"),
        ("(1 = 2", "column 7", ""),
        ("1 = 2)", "column 6", ")"),
        ("a NOT b", "column 7", "b"),
        ("x = #", "column 5", "#"),
        ("NOPE(1) = 2", "column 1", "NOPE"),
        ("1 = 2 OR CONCAT_WS() = 'x'", "column 10", "CONCAT_WS"),
        ("LENGTH(type)", "", "LENGTH(type)"),
        ("'text'", "", "'text'"),
        ({"name": "x", "sql": 7}, "", "{'name': 'x', 'sql': 7}"),
        ("(" * 300 + "TRUE" + ")" * 300, "column 61", "("),
        ("NOT " * 300 + "TRUE", "column 241", "NOT"),
    ],
)
def test_a_refusal_names_the_place_and_the_construct(given, place, construct):
    (found,) = read_rules("cesql", [given])
    assert isinstance(found, Refusal)
    assert (found.place, found.construct) == (place, construct), found


# -- random expressions -------------------------------------------------------------------------------------

NAMES = ["id", "type", "source", "a", "b", "n"]
TEXTS = ["", "x", "abc", "order.made", "5", "05", "true", "False", "1.5", "-3", "a%b", "it's"]
PATTERNS = ["%", "a%", "%c", "_b_", "5", "t%", "o%", "%.%", "a\\%b", "1_5", "-%", "x"]


def expression(rng, depth):
    """A random expression, of any type, as text."""
    kind = rng.randrange(12) if depth else rng.randrange(3)
    inner = lambda: expression(rng, depth - 1)  # noqa: E731
    if kind == 0:
        return rng.choice(NAMES)
    if kind == 1:
        return "'" + rng.choice(TEXTS).replace("'", "\\'") + "'"
    if kind == 2:
        return rng.choice(["0", "1", "5", "-3", "2147483647", "TRUE", "FALSE"])
    if kind == 3:
        return f"({inner()} {rng.choice('+-*/%')} {inner()})"
    if kind == 4:
        return f"(NOT {inner()})" if rng.random() < 0.8 else f"(-{inner()})"
    if kind == 5:
        call = rng.choice(["INT", "BOOL", "STRING", "LENGTH", "LOWER", "ABS", "CONCAT"])
        return f"{call}({inner()})"
    return condition(rng, depth)


def condition(rng, depth):
    """A random expression that is a Boolean, as text."""
    kind = rng.randrange(7)
    if kind <= 1 and depth:
        op = rng.choice(["AND", "OR", "AND", "OR", "XOR"])
        return f"({condition(rng, depth - 1)} {op} {condition(rng, depth - 1)})"
    left = expression(rng, max(0, depth - 2)) if rng.random() < 0.4 else rng.choice(NAMES)
    if kind == 2:
        return f"EXISTS {rng.choice(NAMES)}"
    if kind == 3:
        pattern = rng.choice(PATTERNS)
        return f"({left} {rng.choice(['', 'NOT '])}LIKE '{pattern}')"
    if kind == 4:
        among = ", ".join(expression(rng, 0) for _ in range(rng.randint(1, 3)))
        return f"({left} {rng.choice(['', 'NOT '])}IN ({among}))"
    if kind == 5:
        return f"NOT {condition(rng, depth - 1)}" if depth else rng.choice(["TRUE", "FALSE"])
    return f"({left} {rng.choice(['=', '!=', '<>', '<', '<=', '>', '>='])} {expression(rng, 0)})"


def event_of(rng):
    """A random event; CloudEvents have no lists and objects as attributes."""
    values = [*TEXTS, 5, 5.0, 0, 1, -3, 1.5, 3_000_000_000, True, False, None]
    return {name: rng.choice(values) for name in NAMES if rng.random() < 0.8}


def test_conditions_mean_what_the_expressions_are_worth():
    rng, language, passed = random.Random(11), Cesql(), 0
    for _ in range(CASES // 5):
        text = condition(rng, 3)
        (rule,) = language.read([text])
        assert isinstance(rule, Condition), rule
        for _ in range(5):
            event = event_of(rng)
            found = evaluate(parsed(text), event)
            expected = found.value is True and not found.error
            passed += expected
            assert (holds(rule.where, event) is True) is expected, (text, str(rule.where), event, found)
    assert passed > CASES // 30


@pytest.mark.parametrize("seed", range(max(2, CASES // 20_000)))
def test_the_engine_delivers_what_passes(seed):
    rng = random.Random(seed)
    texts = [condition(rng, 3) for _ in range(60)]
    engine = Engine()
    engine.execute("CREATE STREAM events")
    done = engine.subscribe_rules("cesql", texts, stream="events")
    assert not done.refused
    events = [event_of(rng) for _ in range(60)]
    expected = [
        [n + 1 for n, text in enumerate(texts) if evaluate(parsed(text), event) == (True, "")]
        for event in events
    ]
    deltas = engine.apply("events", events)
    assert [deltas.subscription[deltas.seq == n + 1].tolist() for n in range(len(events))] == expected
    assert [engine.publish("events", event).subscription.tolist() for event in events] == expected


def test_conditions_print_as_SQL_that_means_the_same(tmp_path):
    rng = random.Random(5)
    engine = Engine()
    engine.execute("CREATE STREAM events")
    rules = list(Cesql().read([condition(rng, 3) for _ in range(40)]))
    for rule in rules:
        engine.subscribe(f"SELECT * FROM events WHERE {rule.where}")
    event_list = [event_of(rng) for _ in range(40)]
    expected = [[n + 1 for n, rule in enumerate(rules) if holds(rule.where, e) is True] for e in event_list]
    assert [engine.publish("events", event).subscription.tolist() for event in event_list] == expected
    engine.save(tmp_path / "saved")
    loaded = Engine.load(tmp_path / "saved")
    found = [sorted(loaded.publish("events", event).subscription.tolist()) for event in event_list]
    assert found == expected


def test_random_texts_are_refused_with_a_place_or_read():
    rng, pieces = (
        random.Random(2),
        ["a", "5", "'x'", "(", ")", "AND", "NOT", "LIKE", "IN", "=", "-", ",", "#"],
    )
    for _ in range(1000):
        text = " ".join(rng.choice(pieces) for _ in range(rng.randint(1, 7)))
        (found,) = Cesql().read([text])
        if isinstance(found, Refusal) and found.place:
            assert 1 <= int(found.place.removeprefix("column ")) <= len(text) + 1


# -- conformance --------------------------------------------------------------------------------------------


def test_conformance_cases():
    files = sorted(folder("cesql_tck").glob("*.yaml"))
    cases = [case for file in files for case in yaml.load(file.read_text(), _Loader)["tests"]]
    assert len(cases) >= 275
    wrong = [case for case in cases if not _conforms(case)]
    assert not wrong


def _conforms(case):
    text = case["expression"]
    text = str(text).upper() if isinstance(text, bool) else str(text)
    event = case.get("event") or {**EVENT, **case.get("eventOverrides", {})}
    try:
        value, error = evaluate(parsed(text), event)
    except SyntaxFault:
        return case.get("error") == "parse"
    wanted = case.get("result", value)
    if (value, error) != (wanted, case.get("error", "")) or type(value) is not type(wanted):
        return False
    (rule,) = Cesql().read([text])
    if isinstance(rule, Refusal):  # of no Boolean, or without such a function
        return type(value) is not bool or error == "missingFunction"
    return (holds(rule.where, event) is True) is (value is True and not error)
