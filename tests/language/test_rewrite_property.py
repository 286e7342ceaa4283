"""Normal forms mean what the condition means, and keep to the cap."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.language.threevalued import holds
from tests.language.trees import COLUMNS, OPEN_COLUMNS, atoms, predicates, worlds
from tocsin.errors import NormalFormError
from tocsin.language.algebra import (
    And,
    Between,
    Column,
    Compare,
    In,
    IsNull,
    IsTrue,
    Like,
    Not,
    Or,
    Predicate,
    Rlike,
    Truth,
)
from tocsin.language.ranges import intersect, unite
from tocsin.language.rewrite import CAP, RULES, NormalForm, normalise, rewrite
from tocsin.model.schema import Type

NARROW = {name: COLUMNS[name] for name in ("n", "x")}  # so that conditions meet on one column
ONE = {"s": COLUMNS["s"]}
CHOICES = [COLUMNS, NARROW, ONE, {"d": COLUMNS["d"], "t": COLUMNS["t"]}, {"b": COLUMNS["b"]}, OPEN_COLUMNS]


def check_form(form: NormalForm, cap: int) -> None:
    assert len(form.groups) <= cap
    for group in form.groups:
        for literal in group:
            atom = literal.arg if isinstance(literal, Not) else literal
            if isinstance(atom, IsTrue):  # NOT of it is true where its atom is unknown, so it stays
                assert isinstance(literal, Not)
                continue
            assert isinstance(atom, Compare | Between | In | Like | Rlike | IsNull)
            assert not (isinstance(literal, Not) and isinstance(atom, Compare)), (
                "NOT over a comparison turns it"
            )
    if form.kind == "dnf":
        assert all(intersect(group) == group for group in form.groups), "conjunctions are merged"


@settings(max_examples=max(500, settings().max_examples), deadline=None)
@given(st.data())
def test_property_normal_form_is_equivalent(data: st.DataObject) -> None:
    world = data.draw(worlds(CHOICES))
    predicate = data.draw(predicates(world))
    form = normalise(predicate)
    check_form(form, CAP)
    for row in data.draw(st.lists(world.rows(), min_size=1, max_size=12)):
        truth = holds(predicate, row) is True
        assert (holds(form.predicate, row) is True) == truth, f"{predicate}  became  {form}  on {row}"
        assert not (form.never and truth)
        assert not (form.always and not truth)


@settings(max_examples=max(200, settings().max_examples), deadline=None)
@given(st.data())
def test_property_cnf_is_equivalent(data: st.DataObject) -> None:
    """The same under a cap so small that clauses are needed."""
    world = data.draw(worlds(CHOICES))
    predicate = data.draw(predicates(world))
    try:
        form = normalise(predicate, cap=2)
    except NormalFormError:
        return
    check_form(form, 2)
    for row in data.draw(st.lists(world.rows(), min_size=1, max_size=12)):
        assert (holds(form.predicate, row) is True) == (holds(predicate, row) is True), (
            f"{predicate} became {form}"
        )


@settings(max_examples=max(200, settings().max_examples), deadline=None)
@given(st.data())
def test_property_each_rule_keeps_what_matches(data: st.DataObject) -> None:
    world = data.draw(worlds(CHOICES))
    predicate = data.draw(predicates(world, depth=2))
    drawn = data.draw(st.lists(world.rows(), min_size=1, max_size=6))
    for rule in RULES:
        after = rule(predicate)
        for row in drawn:
            assert (holds(after, row) is True) == (holds(predicate, row) is True), (
                f"{rule.__name__}: {predicate} -> {after}"
            )
        predicate = after


@settings(max_examples=max(200, settings().max_examples), deadline=None)
@given(worlds(CHOICES).flatmap(predicates))
def test_property_rewriting_twice_changes_nothing(predicate: Predicate) -> None:
    once = rewrite(predicate)
    assert rewrite(once) == once
    form = normalise(predicate)
    assert normalise(form.predicate).groups == form.groups or form.kind == "dnf"


@settings(max_examples=max(500, settings().max_examples), deadline=None)
@given(st.data())
def test_property_union_of_ranges(data: st.DataObject) -> None:
    world = data.draw(worlds([{name: column} for name, column in COLUMNS.items()]))
    literals = [rewrite(data.draw(atoms(world, nulls=False))) for _ in range(4)]
    literals = [x for x in literals if not isinstance(x, Truth | And | Or)]
    united = unite(literals)
    for row in data.draw(st.lists(world.rows(), min_size=1, max_size=12)):
        before = any(holds(x, row) is True for x in literals)
        assert (united is None or any(holds(x, row) is True for x in united)) == before, (
            f"{literals} became {united}"
        )


def test_a_condition_over_the_cap_is_refused_without_building_it() -> None:
    names = [Column(f"c{i}", Type.BIGINT) for i in range(80)]
    pairs = [And((Compare(names[i], "=", 1), Compare(names[i + 40], "=", 2))) for i in range(40)]
    dnf_and_cnf = And(
        (
            Or(tuple(pairs)),
            *(Or((Compare(names[i], ">", 5), Compare(names[i + 40], ">", 6))) for i in range(40)),
        )
    )
    with pytest.raises(NormalFormError, match=r"about 10\^13 conjunctions and about 10\^12 clauses"):
        normalise(dnf_and_cnf)


def test_many_clauses_stay_cnf() -> None:
    names = [Column(f"c{i}", Type.BIGINT) for i in range(20)]
    clauses = tuple(Or((Compare(names[i], "=", 1), Compare(names[i + 10], "=", 2))) for i in range(10))
    form = normalise(And(clauses))
    assert form.kind == "cnf"
    assert len(form.groups) == 10
    assert str(form).startswith("(c0 = 1 OR c10 = 2) AND (c1 = 1")


@pytest.mark.parametrize("name", ["never", "always"])
def test_constant_forms(name: str) -> None:
    form = normalise(Truth(name == "always"))
    assert getattr(form, name)
    assert form.predicate == Truth(name == "always")
    assert (str(form), form.groups) == (("TRUE", ((),)) if name == "always" else ("FALSE", ()))
