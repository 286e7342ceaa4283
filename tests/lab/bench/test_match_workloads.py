"""The workloads of filters: shapes, seeds, distributions."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tocsin.errors import UsageError
from tocsin.lab.bench.brute_force import brute_answers, reference_answers
from tocsin.lab.bench.draws import Popularity
from tocsin.lab.bench.filter_workloads import (
    WORKLOADS,
    Drift,
    FilterWorkload,
    cnf_answers,
    cnf_filters,
    dnf_answers,
    dnf_filters,
    draw_groups,
    drift,
    make_workload,
)
from tocsin.lab.bench.match import build_filters, event_rows
from tocsin.match.scan import Scan
from tocsin.model.schema import Stream

EVENTS = Stream("events")
SMALL = {  # few attributes, so that there are matches among few subscriptions
    "sparse": {"attributes": 40},
    "dense": {},
    "interval": {},
    "keywords": {"attributes": 100},
    "products": {},
    "prefix": {"attributes": 30, "texts": 20, "share": 0.6, "length": 1},
}


def predicates(work: FilterWorkload):
    """All predicates as columns, and the subscription of each."""
    lists = work.subscriptions["predicates"].combine_chunks()
    flat = pc.list_flatten(lists)
    columns = {f.name: pc.struct_field(flat, f.name) for f in flat.type}
    return columns, pc.list_parent_indices(lists).to_numpy()


def sizes(work: FilterWorkload):
    return pc.list_value_length(work.subscriptions["predicates"]).to_numpy()


def shares(column):
    values, counts = np.unique(np.array(column.to_pylist()), return_counts=True)
    return dict(zip(values.tolist(), (counts / counts.sum()).tolist(), strict=True))


@pytest.mark.parametrize("name", WORKLOADS)
def test_has_the_promised_columns_and_is_reproduced_by_its_seed(name):
    one, same, other = (make_workload(name, 500, 20, seed) for seed in (3, 3, 4))
    assert one.name == name and one.n == 500 and one.events.num_rows == 20
    assert one.subscriptions["id"].to_pylist() == list(range(500))
    assert set(one.events.column_names) <= {"attributes", "texts"}
    one.subscriptions.validate(full=True)
    one.events.validate(full=True)
    assert one.subscriptions.equals(same.subscriptions) and one.events.equals(same.events)
    assert not one.subscriptions.equals(other.subscriptions) and not one.events.equals(other.events)


@pytest.mark.parametrize("name", WORKLOADS)
def test_no_attribute_twice_in_a_subscription_or_an_event(name):
    work = make_workload(name, 2000, 50, **SMALL[name])
    columns, row = predicates(work)
    pairs = list(zip(row.tolist(), columns["attribute"].to_pylist(), strict=True))
    assert len(set(pairs)) == len(pairs)
    for column in work.events.column_names:
        for event in work.events[column].to_pylist():
            assert len(dict(event)) == len(event)


@pytest.mark.parametrize("name", WORKLOADS)
def test_brute_force_says_what_the_reference_says(name):
    work = make_workload(name, 150, 30, **SMALL[name])
    found = brute_answers(work.subscriptions, work.events)
    assert len(found)
    right = reference_answers(EVENTS, work.subscriptions, event_rows(work.events), np.arange(150))
    assert found.tolist() == right.tolist()


@pytest.mark.parametrize("op", ["!=", "<", ">", "not_between", "not_in", "suffix", "contains", "is_null"])
def test_brute_force_knows_the_other_operators_too(op):
    operands = {"number": 2.0, "high": 4.0, "text": "ab", "values": ["ab", "b"]}
    texts = op in ("suffix", "contains", "not_in")
    fields = {k: v for k, v in operands.items() if (k in ("text", "values")) == texts}
    rows = [[{"attribute": "x", "op": op, **fields}], [{"attribute": "y", "op": op, **fields}]]
    events = pa.table(
        {
            "attributes": pa.array([[("x", v)] for v in (1.0, 2.0, 3.0, float("nan"))] + [[]] * 4, MAP),
            "texts": pa.array([[]] * 4 + [[("x", v)] for v in ("ab", "cab", "abc", "")], TEXTS),
        }
    )
    table = pa.table({"id": [0, 1], "predicates": rows})
    right = reference_answers(EVENTS, table, event_rows(events), np.arange(2))
    assert brute_answers(table, events).tolist() == right.tolist()
    assert len(right)


MAP, TEXTS = pa.map_(pa.string(), pa.float64()), pa.map_(pa.string(), pa.string())


# -- distributions -----------------------------------------------------------------------------------


def test_sparse_is_as_in_the_paper():
    work = make_workload("sparse", 20_000, 200)
    columns, _ = predicates(work)
    assert sorted(set(sizes(work).tolist())) == [1, 2, 3, 4] and abs(sizes(work).mean() - 2.5) < 0.05
    found = shares(columns["op"])
    assert found == pytest.approx({"=": 0.4, "<=": 0.3, ">=": 0.3}, abs=0.02)
    values = columns["number"].to_numpy()
    assert (values.min(), values.max()) == (1, 50) and abs(values.mean() - 25.5) < 0.5
    assert len(pc.unique(columns["attribute"].cast(pa.string()))) > 15_000
    assert {len(event) for event in work.events["attributes"].to_pylist()} == {20}


def test_dense_and_interval_have_all_attributes_in_every_event():
    dense, interval = make_workload("dense", 5000, 20), make_workload("interval", 5000, 20)
    assert {len(event) for event in dense.events["attributes"].to_pylist()} == {20}
    assert {len(event) for event in interval.events["attributes"].to_pylist()} == {50}
    assert sorted(set(sizes(dense).tolist())) == [3, 4, 5] and set(sizes(interval).tolist()) == {5}
    columns, _ = predicates(interval)
    width = columns["high"].to_numpy() - columns["number"].to_numpy()
    assert set(width.tolist()) == {300_000.0} and columns["high"].to_numpy().max() <= 1_000_000
    matches = len(brute_answers(interval.subscriptions, interval.events)) / 20
    assert 4 < matches < 30  # 0.3^5 of 5000 is 12


def test_zipf_makes_the_first_attributes_and_values_frequent():
    even, skewed = (make_workload("sparse", 5000, 50, zipf=zipf) for zipf in (0.0, 1.0))
    for name in ("attribute", "number"):
        top = [max(shares(predicates(work)[0][name]).values()) for work in (even, skewed)]
        assert top[1] > 5 * top[0]
    assert shares(predicates(skewed)[0]["number"])[1.0] == pytest.approx(0.22, abs=0.03)  # 1 / H(50)


def test_fixed_predicates_are_equalities_on_the_first_attributes():
    work = make_workload("sparse", 500, 5, fixed=2, smallest=5, largest=5, attributes=32, equality=0.0)
    columns, row = predicates(work)
    names, ops = columns["attribute"].to_pylist(), columns["op"].to_pylist()
    firsts = [(a, o) for a, o in zip(names, ops, strict=True) if a in ("a0", "a1")]
    assert len(firsts) == 1000 and {o for _, o in firsts} == {"="}
    assert ops.count("=") == 1000 and len(row) == 2500


@pytest.mark.parametrize(("operator", "fields"), [("=", 3), ("is_not_null", 2), ("between", 4)])
def test_keywords_by_operator(operator, fields):
    work = make_workload("keywords", 1000, 10, operator=operator, event_size=120)
    columns, _ = predicates(work)
    assert shares(columns["op"]) == {operator: 1.0} and len(columns) == fields
    assert sorted(set(sizes(work).tolist())) == [2, 3]
    assert {len(event) for event in work.events["attributes"].to_pylist()} == {120}


def test_products_are_texts_and_prices():
    work = make_workload("products", 5000, 200)
    columns, row = predicates(work)
    price = np.array(columns["attribute"].to_pylist()) == "price"
    assert len(set(row[price].tolist())) / 5000 == pytest.approx(0.5, abs=0.03)
    ops = np.array(columns["op"].to_pylist())
    assert set(ops[price].tolist()) == {"<=", "between"} and set(ops[~price].tolist()) == {"=", "in"}
    lengths = columns["values"].filter(pa.array(ops == "in")).value_lengths().to_numpy()
    assert lengths.min() >= 2
    branded = np.mean(["brand" in dict(event) for event in work.events["texts"].to_pylist()])
    assert branded > 0.3
    assert all(list(dict(event)) == ["price"] for event in work.events["attributes"].to_pylist())


def test_draws_of_different_numbers_take_all_if_they_must():
    rng = np.random.default_rng(0)
    rows = Popularity.zipf(6, 1.0).distinct(rng, 50, 6)
    assert np.array_equal(np.sort(rows, axis=1), np.tile(np.arange(6), (50, 1)))


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("sparse", {"event_size": 30, "attributes": 20}, "and there are 20"),
        ("sparse", {"smallest": 3, "largest": 2}, "sizes go from smallest to largest"),
        ("interval", {"zipf": 1.0}, "has no option --zipf"),
        ("keywords", {"operator": "<"}, "no operator '<'"),
        ("bulky", {}, "no workload 'bulky'"),
    ],
)
def test_refuses_what_makes_no_sense(name, options, message):
    with pytest.raises(UsageError, match=message):
        make_workload(name, 10, 10, **options)


# -- drift -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["schema", "skew"])
def test_drift_renews_the_population(kind):
    alive: set[int] = set()
    phases = list(drift(kind, 1000, 10, seed=1, setting=Drift(steady=2, turning=3, settled=1)))
    for phase in phases:
        ids = phase.workload.subscriptions["id"].to_pylist()
        assert set(phase.removed.tolist()) == set(sorted(alive)[: len(phase.removed)]), "the oldest go"
        alive = alive - set(phase.removed.tolist()) | set(ids)
        assert len(alive) == 1000
    assert [phase.share for phase in phases] == pytest.approx([0, 0, 0, 1 / 3, 2 / 3, 1, 1])
    first_new = phases[3].workload.subscriptions["id"][0].as_py()
    renewed = phases[5].workload.subscriptions["id"].to_pylist()[-1] + 1 - first_new
    assert renewed == 1000, "after the turning all are new"


def test_schema_drift_moves_to_other_attributes_and_skew_drift_to_few_values():
    def used(phase):
        columns, _ = predicates(phase.workload)
        return {int(name[1:]) for name in columns["attribute"].to_pylist()}, columns

    small = Drift(steady=0, turning=1, settled=0)
    before, after = drift("schema", 1000, 10, setting=small)
    assert used(before)[0] == set(range(16)) and used(after)[0] == set(range(16, 32))
    before, after = drift("skew", 1000, 50, setting=small)
    assert used(before)[0] == used(after)[0] == set(range(32))
    for phase, most in ((before, 35), (after, 2)):
        columns = used(phase)[1]
        first = pc.equal(columns["attribute"].cast(pa.string()), "a0")
        assert len(pc.unique(columns["number"].filter(first))) == most
        values = {dict(event)["a0"] for event in phase.workload.events["attributes"].to_pylist()}
        assert (len(values) <= 2) == (most == 2)


# -- CNF and DNF -------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["cnf", "dnf"])
def test_forms_are_what_brute_force_says(form):
    work = make_workload("sparse", 300, 20, attributes=40)
    groups = draw_groups(300, most=4, seed=2)
    assert groups.sum() == 300 and groups.min() >= 1 and groups.max() <= 4
    make, answers = (cnf_filters, cnf_answers) if form == "cnf" else (dnf_filters, dnf_answers)
    filters = make(build_filters(EVENTS, work.subscriptions), groups)
    filters._check()
    index = Scan()
    index.add(np.arange(len(groups)), filters)
    expected = answers(work.subscriptions, groups, work.events)
    assert len(expected)
    assert np.sort(index.match(event_rows(work.events))).tolist() == expected.tolist()
