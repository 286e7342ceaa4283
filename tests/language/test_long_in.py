"""A long IN means the same as a short one: parsed by its first constant, merged and compiled at once."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tocsin
from tocsin.errors import SqlError
from tocsin.language import ranges
from tocsin.language.algebra import Column, In
from tocsin.language.rewrite import _normalised
from tocsin.language.sql import parse_query
from tocsin.language.template import Parser, lift, shortened
from tocsin.model.schema import Field, Stream, Table, Type
from tocsin.predicate.codes import fits
from tocsin.predicate.compile import Builder, flatten

FIELDS = (Field("n", Type.BIGINT), Field("x", Type.DOUBLE), Field("s", Type.STRING), Field("d", Type.DATE))
CATALOG: dict[str, Table | Stream] = {"typed": Stream("typed", FIELDS), "hits": Stream("hits", ())}
LISTS: dict[str, Any] = {
    "n": lambda r: r.randrange(10**6),
    "x": lambda r: f"{r.randrange(1000)}.{r.randrange(10)}",
    "s": lambda r: f"'{r.choice('abc')}{r.randrange(999)}'",
    "d": lambda r: f"'2024-0{r.randrange(1, 10)}-1{r.randrange(10)}'",
}


def some_list(r: random.Random, name: str, size: int) -> str:
    values = [str(LISTS[name](r)) for _ in range(size)]
    return r.choice([", ", ",", " ,\n "]).join(values)


@pytest.mark.parametrize("seed", range(20))
def test_a_long_in_is_parsed_as_it_stands(seed: int) -> None:
    r, parser = random.Random(seed), Parser(CATALOG)
    for _ in range(3):  # the template of the first text serves the others
        parts = []
        for name in r.sample(sorted(LISTS), r.randrange(1, 4)):
            listed = some_list(r, name, r.choice([1, 63, 64, 65, 200]))
            parts.append(f"{name} {r.choice(['IN', 'in', 'NOT IN'])} ({listed})")
        parts.insert(r.randrange(len(parts) + 1), f"n > {r.randrange(9)}")
        text = f"SELECT * FROM typed WHERE {' AND '.join(parts)}"
        assert parser.parse(text) == parse_query(text, CATALOG)


@pytest.mark.parametrize(
    "listed",
    [
        ", ".join(["1"] * 99 + ["'a'"]),  # two types
        ", ".join(["1"] * 99 + ["-1"]),
        ", ".join(["'2024-01-01'"] * 99 + ["'2024-13-01'"]),
        ", ".join(["1"] * 99) + ", n",
        ", ".join(["1"] * 99) + ",",
        ", ".join(["NULL"] * 99),
    ],
)
@pytest.mark.parametrize("column", ["n", "x", "s", "d", "nothing"])
def test_answers_and_errors_are_those_of_the_whole_text(listed: str, column: str) -> None:
    text = f"SELECT * FROM typed WHERE x > 1 AND {column} IN ({listed}) AND n < 5"
    outcomes = []
    for parse in (Parser(CATALOG).parse, lambda text: parse_query(text, CATALOG)):
        try:
            outcomes.append(str(parse(text)))
        except SqlError as error:
            outcomes.append(str(error))
    assert outcomes[0] == outcomes[1]


def test_what_only_looks_like_a_list_is_left_alone() -> None:
    for text in (
        "SELECT * FROM hits WHERE a = 'x IN (" + ", ".join(["1"] * 99) + ")'",
        "SELECT * FROM hits WHERE a IN (" + ", ".join(["1"] * 63) + ")",
        "SELECT * FROM hits WHERE a BETWEEN 1 AND 2",
    ):
        lifted = lift(text)
        assert lifted is not None and shortened(text, lifted) is None


def test_lists_of_any_length_share_a_template() -> None:
    parser = Parser(CATALOG)
    for size in range(64, 90):
        parser.parse(f"SELECT * FROM hits WHERE a IN ({', '.join(map(str, range(size)))})")
    assert parser.parsed == 1


VALUES: list[list[Any]] = [
    [3, 1, 2, 2],
    [1, 2, 3],
    [-5, 0, 7],
    [1.5, -0.5, 2],
    [float("nan"), 1.0],
    [2**53, 1],
    [2**63 - 1, 2**63, -(2**63), -(2**63) - 1],
    [10**400, 1],
    ["b", "a", ""],
    ["a", "b", "é"],
    [True, False],
    [True, 1],
]


@pytest.mark.parametrize("type", [None, Type.BIGINT, Type.DOUBLE, Type.STRING, Type.BOOLEAN])
@pytest.mark.parametrize("values", VALUES)
def test_shortcuts_change_no_filter(
    values: list[Any], type: Type | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if type is not None and not all(fits(type, value) for value in values):
        pytest.skip("the parser rejects it")
    for given in (values, sorted(values)):
        literal = In(Column("a", type), tuple(given))
        form = _normalised(literal, 256)
        filters = flatten([form])
        with monkeypatch.context() as patch:
            patch.setattr(ranges, "_is_sorted", lambda literal: False)
            patch.setattr(Builder, "_one_of", lambda self, atom: None)
            slow_form = _normalised(literal, 256)
            slow_filters = flatten([slow_form])
        assert slow_form == form
        for name, own in vars(slow_filters).items():
            mine = getattr(filters, name)
            assert mine.equals(own) if isinstance(own, pa.Array) else np.array_equal(mine, own), name


def test_a_long_in_matches_its_values() -> None:
    engine = tocsin.Engine()
    engine.execute("CREATE STREAM hits")
    numbers, texts = [3 * n for n in range(300)], [f"v{n}" for n in range(300)]
    engine.subscribe(f"SELECT * FROM hits WHERE a IN ({', '.join(map(str, numbers))})")
    engine.subscribe("SELECT * FROM hits WHERE a IN ({})".format(", ".join(f"'{t}'" for t in texts)))
    engine.subscribe(f"SELECT * FROM hits WHERE a NOT IN ({', '.join(map(str, numbers))})")
    found = [engine.publish("hits", {"a": a}).subscription.tolist() for a in (6, 7, 6.0, "v7", "w", 897)]
    assert found == [[1], [3], [1], [2], [], [1]]
