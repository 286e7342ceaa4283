"""Random expressions have the values that Spark SQL gives them; TOCSIN_EXPRESSIONS says how many."""

import os

import pytest

from tests.expressions.evaluated import comparable, computed, equal, in_spark
from tests.strategies.expressions import expressions, rows

pytestmark = pytest.mark.spark

COUNT = int(os.environ.get("TOCSIN_EXPRESSIONS", "300"))
_TOGETHER = 500


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_expressions_mean_what_they_mean_in_spark(spark, depth):
    settings = {"spark.sql.ansi.enabled": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
    before = {name: spark.conf.get(name) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        for seed in range(-(-COUNT // (3 * _TOGETHER))):
            _compare(spark, seed, min(COUNT // 3, _TOGETHER), depth)
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


def _compare(spark, seed, count, depth):
    texts, given = expressions(1000 * depth + seed, count, depth), rows(seed, 20)
    ours, theirs = computed([text for _, text in texts], given), in_spark(spark, texts, given)
    wrong = []
    for (kind, text), (by_column, by_row), wanted in zip(texts, ours, theirs, strict=True):
        for row, one, other, value in zip(given, by_column, by_row, wanted, strict=True):
            if not (equal(comparable(kind, one), value) and equal(comparable(kind, other), value)):
                wrong.append((text, row, one, other, value))
                break
    assert not wrong, wrong[:5]
