"""Values inside many events are those that paths give event by event, and those of events read singly."""

import random
from collections import OrderedDict

import pytest

from tocsin import Engine
from tocsin.model.inside_dicts import inside_dict, inside_dicts
from tocsin.model.paths import MISSING, read_path
from tocsin.reference import holds

TREE = {"a": ("", {"b": ("a.b", {"c": ("a.b.c", {})}), "d": ("a.d", {})})}
PATHS = ("a.b", "a.b.c", "a.d")
PLAIN = ["x", "é", "", 3, -7, 2.5, -0.0, True, None, [1, 2], 2**63 - 1]
ODD = [2**63, OrderedDict(b=3), (1, 2), "\ud800"]


def event(draw, values):
    def some(**given):
        return {name: value for name, value in given.items() if draw.random() < 0.8}

    inner = some(c=draw.choice(values))
    value = draw.choice([inner, draw.choice(values)])
    return some(
        a=draw.choice([some(b=value, d=draw.choice(values)), draw.choice(values)]), n=draw.randrange(9)
    )


def test_values_are_those_of_paths():
    draw = random.Random(4)
    for _ in range(100):
        events = [event(draw, PLAIN) for _ in range(draw.randrange(1, 12))]
        found = [{} for _ in events]
        for (name,), part in inside_dicts(events, TREE):
            for n, value in zip(part.event.tolist(), part.vector.to_list(), strict=True):
                found[n][name] = (type(value), value)
        for one, values in zip(events, found, strict=True):
            singly = {}
            assert inside_dict(one, TREE, singly)
            assert {name: (type(value), value) for name, value in singly.items()} == values
            given = {path: read_path(path).value(one) for path in PATHS}
            expected = {p: v for p, v in given.items() if v is not MISSING and not isinstance(v, dict | list)}
            assert {name: value for name, (_, value) in values.items()} == {
                path: value for path, value in expected.items() if value is not None
            }


@pytest.mark.parametrize("odd", ODD, ids=repr)
def test_values_that_are_not_plain_are_read_one_by_one(odd):
    events = [{"a": {"b": 1}}, {"a": {"b": odd}}]
    assert inside_dicts(events, TREE) is None or odd == "\ud800"
    draw, engine = random.Random(5), Engine()
    engine.execute("CREATE STREAM s")
    wheres = ["a.b > 1", "a.b = 'x' OR a.d < 3", "a.b.c IS NOT NULL", "a.b IS NULL AND n > 3"]
    ids = engine.subscribe_texts([f"SELECT * FROM s WHERE {where}" for where in wheres]).tolist()
    for _ in range(10):
        events = [event(draw, [*PLAIN, odd] if odd != "\ud800" else PLAIN) for _ in range(5)]
        expected = [[id for id in ids if holds(engine.query(id).where, one) is True] for one in events]
        deltas = engine.apply("s", events)
        firsts = sorted(set(deltas.seq.tolist()))
        found = [sorted(deltas.subscription[deltas.seq == seq].tolist()) for seq in firsts]
        assert found == [one for one in expected if one]
        assert [sorted(engine.publish("s", one).subscription.tolist()) for one in events] == expected
