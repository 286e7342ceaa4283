"""Stored queries against a second evaluator, and in the engine; query texts; refusals name the place."""

from __future__ import annotations

import json
import os
import random

import pytest

from tests.rules import percolator_cases as cases
from tests.rules.percolator_oracle import MAPPING, matches
from tocsin import Engine
from tocsin.language.shape import plan
from tocsin.reference import holds
from tocsin.rules.base import Condition, Refusal, read_rules
from tocsin.rules.percolator import Percolator

PAIRS = int(os.environ.get("TOCSIN_RULE_PAIRS", "3000"))


def test_queries_mean_what_the_second_evaluator_says():
    rng, language, found = random.Random(7), Percolator(MAPPING), 0
    for _ in range(PAIRS // 10):
        query = cases.query(rng)
        (rule,) = language.read([query])
        assert isinstance(rule, Condition), (query, str(rule))
        for _ in range(10):
            document = cases.document(rng)
            expected = matches(query, document)
            found += expected
            assert (holds(rule.where, document) is True) is expected, (query, str(rule.where), document)
    assert found > PAIRS // 30


@pytest.mark.parametrize("seed", range(max(2, PAIRS // 20_000)))
def test_the_engine_matches_what_the_second_evaluator_says(seed):
    rng = random.Random(seed)
    queries = [cases.query(rng) for _ in range(60)]
    engine = Engine()
    engine.execute("CREATE STREAM docs")
    done = engine.subscribe_rules("percolator", queries, stream="docs", mapping=MAPPING)
    assert not done.refused
    documents = [cases.document(rng) for _ in range(60)]
    expected = [[n + 1 for n, query in enumerate(queries) if matches(query, one)] for one in documents]
    deltas = engine.apply("docs", documents)
    assert [deltas.subscription[deltas.seq == n + 1].tolist() for n in range(len(documents))] == expected
    assert [engine.publish("docs", one).subscription.tolist() for one in documents] == expected


def test_conditions_print_as_SQL_that_means_the_same():
    rng = random.Random(3)
    engine = Engine()
    engine.execute("CREATE STREAM docs")
    rules = list(Percolator(MAPPING).read([cases.query(rng) for _ in range(40)]))
    for rule in rules:
        engine.subscribe(f"SELECT * FROM docs WHERE {rule.where}")
    for _ in range(40):
        document = cases.document(rng)
        expected = [n + 1 for n, rule in enumerate(rules) if holds(rule.where, document) is True]
        assert engine.publish("docs", document).subscription.tolist() == expected


# -- query texts --------------------------------------------------------------------------------------------


DOCUMENT = {"title": "Quick brown fox", "state": "new", "n": 5, "at": "2024-01-02"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("quick", True),
        ("quick dog", True),
        ("dog cat", False),
        ("+quick -dog", True),
        ("quick -fox", False),
        ("quick AND dog", False),
        ("dog OR quick AND cat", False),
        ("cat OR quick AND fox", True),
        ("quick OR dog AND NOT cat", False),  # dog must match
        ("NOT dog", True),
        ("NOT dog NOT cat", True),
        ("(dog OR quick) AND fox", True),
        ('"quick brown"', True),
        ('"brown quick"', False),
        ("title:(quick AND fox)", True),
        ("state:new", True),
        ("state:n*", True),
        ("qu?ck", True),
        ("title:/qu.ck/", True),
        ("n:[5 TO 6}", True),
        ("n:{5 TO 6]", False),
        ("n:>=5 AND n:<6", True),
        ("n:5", True),
        ("at:[2024-01-01 TO 2024-01-02]", True),
        ("_exists_:at", True),
        ("_exists_:ok", False),
        ("*:*", True),
        ("quick^3 dog", True),
        ("quick\\-brown", True),
        ("state:(old new)", True),
    ],
)
def test_query_texts(text, expected):
    query = {"query_string": {"query": text, "default_field": "title"}}
    (rule,) = Percolator(MAPPING).read([query])
    assert isinstance(rule, Condition), rule
    assert (holds(rule.where, DOCUMENT) is True) is expected, str(rule.where)


def test_query_texts_where_all_clauses_are_required():
    def found(text):
        query = {"query_string": {"query": text, "fields": ["title^2", "state"], "default_operator": "AND"}}
        (rule,) = Percolator(MAPPING).read([json.dumps({"query": query})])
        return holds(rule.where, DOCUMENT) is True

    assert found("quick new")
    assert not found("quick dog")
    assert found("dog OR quick")
    assert not found("quick-dog")


def test_without_a_mapping_values_compare_as_in_JSON():
    queries = [
        {"term": {"state": "new"}},
        {"term": {"n": 5}},
        {"term": {"n": "5"}},
        {"match": {"title": "QUICK"}},
        {"term": {"title.keyword": "Quick brown fox"}},
        {"range": {"n": {"gte": 5}}},
        {"wildcard": {"title": "Quick*"}},
        {"nested": {"path": "items", "query": {"bool": {
            "must": [{"term": {"items.a": 1}}, {"term": {"items.b": 2}}]}}}},
    ]  # fmt: skip
    documents = [DOCUMENT, {"items": [{"a": 1}, {"b": 2}]}, {"items": [{"a": 1, "b": [3, 2]}]}]
    engine = Engine()
    engine.execute("CREATE STREAM docs")
    done = engine.subscribe_rules("percolator", queries, stream="docs")
    assert not done.refused
    found = [engine.publish("docs", one).subscription.tolist() for one in documents]
    assert found == [[1, 2, 4, 5, 6, 7], [], [8]]


@pytest.mark.parametrize(
    ("query", "place", "construct"),
    [
        ({"fuzzy": {"title": "x"}}, "fuzzy", "fuzzy"),
        ({"bool": {"must": [{"match_all": {}}, {"span": {}}]}}, "bool.must[1].span", "span"),
        ({"bool": {"maybe": []}}, "bool.maybe", "[]"),
        ({"term": {"nowhere": 1}}, "term.nowhere", "nowhere"),
        ({"term": {"n": "five"}}, "term.n", "five"),
        ({"term": {"items.sku": "x"}}, "term.items.sku", "items.sku"),
        ({"nested": {"path": "o", "query": {"match_all": {}}}}, "nested.path", "o"),
        ({"nested": {"path": "items", "query": {"term": {"n": 1}}}}, "nested.query.term.n", "n"),
        ({"match": {"title": {"query": "x", "fuzziness": "AUTO"}}}, "match.title.fuzziness", "AUTO"),
        ({"match_phrase": {"title": {"query": "x y", "slop": 2}}}, "match_phrase.title.slop", "2"),
        ({"range": {"at": {"gte": "now-1d"}}}, "range.at.gte", "now-1d"),
        ({"range": {"n": {"gte": 1, "time_zone": "+01:00"}}}, "range.n.time_zone", "+01:00"),
        ({"range": {"title": {"gte": "a"}}}, "range.title", "title"),
        ({"regexp": {"state": "a~b"}}, "regexp.state", "~"),
        ({"regexp": {"state": "(a"}}, "regexp.state", "(a"),
        ({"terms": {"state": {"index": "x"}}}, "terms.state", "{'index': 'x'}"),
        ({"geo_distance": {"distance": "5 parsecs", "place": [0, 0]}}, "geo_distance.distance", "5 parsecs"),
        ({"geo_distance": {"distance": "5km", "place": "u4pruyd"}}, "geo_distance.place", "u4pruyd"),
        ({"query_string": {"query": "title:(a", "default_field": "title"}}, "query_string.query", "title:(a"),
        ({"query_string": {"query": "quick~2", "default_field": "title"}}, "query_string.query", "quick~2"),
        ({"query_string": {"query": "quick"}}, "query_string.query", "quick"),
        ({"bool": {"should": [{"term": {"n": i}} for i in range(30)], "minimum_should_match": 15}},
         "bool.minimum_should_match", "15"),
        ("{", "line 1, column 2", ""),
        ([], None, None),
        (7, "", "7"),
    ],
)  # fmt: skip
def test_a_refusal_names_the_place_and_the_construct(query, place, construct):
    found = list(read_rules("percolator", [query], mapping=MAPPING))
    if place is None:
        assert not found
        return
    assert isinstance(found[0], Refusal), str(found[0].where)
    assert (found[0].place, found[0].construct) == (place, construct), found[0]


def test_queries_over_the_cap_of_normal_forms(tmp_path):
    """Parts of a query that is too large become shared attributes."""
    rng = random.Random(9)

    def pairs():
        return [{"bool": {"must": [cases.leaf(rng, ""), cases.leaf(rng, "")]}} for _ in range(12)]

    queries = [{"bool": {"must": [{"bool": {"should": pairs()}} for _ in range(4)]}} for _ in range(5)]
    engine = Engine()
    engine.execute("CREATE STREAM docs")
    done = engine.subscribe_rules("percolator", queries, stream="docs", mapping=MAPPING)
    assert not done.refused
    assert "held(" in str(plan(engine.query(1)))
    documents = [cases.document(rng) for _ in range(30)]
    expected = [[n + 1 for n, query in enumerate(queries) if matches(query, one)] for one in documents]
    assert [engine.publish("docs", one).subscription.tolist() for one in documents] == expected
    engine.save(tmp_path / "saved")
    loaded = Engine.load(tmp_path / "saved")
    assert [sorted(loaded.publish("docs", one).subscription.tolist()) for one in documents] == expected
