"""Good queries with a mistake: taken, or refused at a place; nothing else is raised."""

from __future__ import annotations

import os
import random
import re

import pytest

import tocsin
from tests.strategies.expression_queries import SHAPES, event_queries, queries
from tests.strategies.expressions import FIELDS
from tocsin.errors import SqlError

pytestmark = pytest.mark.property

COUNT = int(os.environ.get("TOCSIN_EXPRESSIONS", "180"))
_TOKEN = re.compile(r"'[^']*'|\w+|\s+|.", re.DOTALL)
_ODD = [
    "'", '"', "`", "(", ")", "[", "]", ",", ".", "*", "%", "NULL", "NOT", "AND", "->", "::", "?", ";", "--",
    "''", "é", "\x00", "CAST(", "CASE", "END", "INTERVAL", "99999999999999999999", "[*]", "exists(",
    "=", "<=>", "1e999",
]  # fmt: skip


def mutated(draw: random.Random, text: str) -> str:
    tokens = _TOKEN.findall(text)
    for _ in range(draw.randrange(1, 3)):
        at, kind = draw.randrange(len(tokens)), draw.randrange(5)
        if kind == 0:
            del tokens[at]
        elif kind == 1:
            tokens.insert(at, draw.choice(_ODD))
        elif kind == 2:
            tokens[at] = draw.choice(tokens)
        elif kind == 3:
            tokens[at] = draw.choice(_ODD)
        else:
            tokens[at] = tokens[at][: draw.randrange(len(tokens[at]) + 1)]
        tokens = tokens or ["SELECT"]
    return "".join(tokens)


@pytest.mark.parametrize("shape", [*SHAPES, "events"])
def test_a_mistake_has_a_place(shape):
    draw, engine = random.Random(shape), tocsin.Engine()
    columns = ", ".join(f"{field.name} {field.type}" for field in FIELDS)
    engine.execute(f"CREATE TABLE r (k BIGINT PRIMARY KEY, {columns}); CREATE STREAM e")
    count = -(-COUNT // (len(SHAPES) + 1))
    good = event_queries(7, count) if shape == "events" else queries(7, count, shape)
    refused = 0
    for query in good:
        text = mutated(draw, query.text)
        try:
            engine.unsubscribe(engine.subscribe(text))
        except SqlError as error:
            refused += 1
            if error.position is None:
                pytest.fail(f"no place: {text!r}: {error}")
    assert refused > count / 4
