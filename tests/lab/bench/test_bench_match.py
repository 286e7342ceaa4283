"""`tocsin bench match`: what it prints, and that it refuses wrong answers."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from tocsin.cli import app
from tocsin.errors import TocsinError
from tocsin.lab.bench.filter_workloads import make_workload
from tocsin.lab.bench.match import PRIME, MatchResult, check_equal, checksum, find_indexes
from tocsin.language.bulk import expand_predicates
from tocsin.match.scan import Scan
from tocsin.model.schema import Stream
from tocsin.reference import holds

SMALL = ("--n", 300, "--events", 60, "--batch", 25, "--repeat", 2, "--index", "scan", "--attributes", 40)


def run(*arguments: object):
    return CliRunner().invoke(app, ["bench", "match", *(str(a) for a in arguments)])


def test_prints_what_was_measured_and_a_checksum_that_the_reference_has_too():
    result = run(*SMALL, "--seed", 5, "--json")
    assert result.exit_code == 0, result.output
    output = json.loads(result.stdout)
    assert (output["workload"], output["n"], output["events"], output["threads"]) == ("sparse", 300, 60, 1)
    assert output["options"] == {"attributes": 40} and output["left_out"] == {}
    (one,) = output["results"]
    assert list(one) == [
        *("index", "build_s", "us_per_event", "us_per_event_spread"),
        *("bytes_per_subscription", "matches", "checksum"),
    ]
    assert one["build_s"] > 0 and one["us_per_event"] > 0 and one["us_per_event_spread"] >= 0
    assert one["bytes_per_subscription"] > 0
    work = make_workload("sparse", 300, 60, 5, attributes=40)
    queries = expand_predicates(Stream("events"), work.subscriptions).queries
    matches = [
        (event, number)
        for event, row in enumerate(work.events["attributes"].to_pylist())
        for number, query in enumerate(queries)
        if holds(query.where, dict(row))
    ]
    assert one["matches"] == len(matches) > 0
    assert one["checksum"] == sum((event + 1) * (number + 1) for event, number in matches) % PRIME


def test_prints_a_table_for_people():
    result = run("--workload", "products", "--n", 200, "--events", 20, "--repeat", 1, "--index", "scan")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0].split()[0] == "index" and lines[1].split()[0] == "scan"


def test_measures_through_the_engine_too():
    result = run(*SMALL, "--engine", "--json")
    assert result.exit_code == 0, result.output
    through = json.loads(result.stdout)["results"][0]["engine"]
    assert list(through) == ["subscribe_s", "us_per_event", "us_per_event_spread", "ratio"]
    assert through["ratio"] > 0


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda found: found[1:], "1 missing"),
        (lambda found: np.append(found, found[:1]), "1 repeated"),
        (lambda found: np.append(found, (299 << 32) | 0), "is wrong"),
    ],
)
def test_a_wrong_index_has_no_time(monkeypatch, spoil, message):
    right = Scan.match
    monkeypatch.setattr(Scan, "match", lambda self, rows: spoil(right(self, rows)))
    result = run(*SMALL)
    assert result.exit_code == 1
    assert "the index scan gives wrong answers" in result.stderr and message in result.stderr
    assert "µs/event" not in result.stdout
    as_json = run(*SMALL, "--json")
    assert as_json.exit_code == 1 and not json.loads(as_json.stdout)["ok"]


def test_a_wrong_brute_force_is_found_by_the_reference(monkeypatch):
    monkeypatch.setattr("tocsin.lab.bench.match.brute_answers", lambda *_: np.array([7], np.int64))
    result = run(*SMALL)
    assert result.exit_code == 1
    assert "the brute force of the benchmark gives wrong answers" in result.stderr


def test_an_index_that_does_not_take_all_is_left_out(monkeypatch):
    class Picky(Scan):
        def supports(self, filters):
            return np.arange(filters.count) != 3

    known = find_indexes() | {"picky": Picky}
    monkeypatch.setattr("tocsin.lab.bench.match.find_indexes", lambda: known)
    result = run(*SMALL, "--index", "scan,picky", "--json")
    output = json.loads(result.stdout)
    assert result.exit_code == 0 and [one["index"] for one in output["results"]] == ["scan"]
    assert output["left_out"] == {"picky": "the index picky does not support 1 of 300 subscriptions"}
    assert run(*SMALL, "--index", "picky").exit_code == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--index", "nosuch"), "there is no index 'nosuch'"),
        (("--workload", "nosuch"), "there is no workload 'nosuch'"),
        (("--workload", "dense", "--width", 0.5), "the workload dense has no option --width"),
        (("--index", "scan", "--threads", 2), "the index scan has one thread, not 2"),
    ],
)
def test_refuses_what_there_is_not(options, message):
    result = run("--n", 10, "--events", 10, *options)
    assert result.exit_code == 2
    assert message in result.stderr


def test_threads_go_to_indexes_that_have_them(monkeypatch):
    made = []

    class Threaded(Scan):
        def __init__(self, threads: int = 1) -> None:
            super().__init__()
            made.append(threads)

    monkeypatch.setattr("tocsin.lab.bench.match.find_indexes", lambda: {"threaded": Threaded})
    assert run(*SMALL, "--index", "threaded", "--threads", 2).exit_code == 0
    assert set(made) == {2}


def test_checksums_do_not_overflow():
    slots, events = np.array([2**32 - 1, 2**31, 5]), np.array([10**6, 10**6, 3])
    assert checksum(slots, events) == ((10**6 + 1) * (2**32 + 2**31 + 1) + 4 * 6) % PRIME
    assert checksum(slots[:0], events[:0]) == 0


def test_indexes_must_find_the_same():
    one, other = (MatchResult(name, 1.0, 1.0, 0.0, 1.0, 5, total) for name, total in (("a", 1), ("b", 2)))
    check_equal([one, one])
    with pytest.raises(TocsinError, match="a finds 5 matches"):
        check_equal([one, other])


def test_every_index_is_found_by_its_name():
    assert find_indexes()["scan"] is Scan
    published = "betree counting dynamic kindex opindex opindexbs propagation propagationprefetch static"
    assert set(find_indexes()) == {"auto", "scan", *published.split()}
