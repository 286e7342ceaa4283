"""Queries before they are registered: checked, tried on rows, replayed; rows to try; who may do what."""

from __future__ import annotations

import pytest

from tests.server.conftest import running
from tests.server.test_api import define, ok, subscribe

RELATIONS = """CREATE TABLE stocks (symbol STRING, per DOUBLE, PRIMARY KEY (symbol));
               CREATE TABLE owners (symbol STRING, owner STRING, PRIMARY KEY (symbol, owner));
               CREATE STREAM hits RETAIN '1 hour'"""
ROWS = [{"symbol": "A", "per": 1}, {"symbol": "B", "per": 2}, {"symbol": "C", "per": 3}]


def tried(server, sql, *rows, **given):
    found = ok(server.post("/try", json={"sql": sql, "rows": list(rows), **given}))
    return [one["held"] for one in found["results"]], found["results"]


@pytest.mark.parametrize(
    ("sql", "row", "held"),
    [
        ("SELECT * FROM stocks WHERE per > 2", {"symbol": "C", "per": 3}, True),
        ("SELECT * FROM stocks WHERE per > 2", {"symbol": "C", "per": 2}, False),
        ("SELECT * FROM hits WHERE n > 2", {"n": 3}, True),
        ("SELECT * FROM hits WHERE n > 2", {"m": 3}, False),
        ("SELECT symbol FROM stocks ORDER BY per LIMIT 2", {"symbol": "D", "per": 0}, True),
        ("SELECT symbol FROM stocks ORDER BY per LIMIT 2", {"symbol": "D", "per": 9}, False),
        ("SELECT owner FROM stocks JOIN owners USING (symbol)", {"symbol": "A", "per": 1}, True),
        ("SELECT owner FROM stocks JOIN owners USING (symbol)", {"symbol": "B", "per": 1}, False),
    ],
)
def test_a_draft_is_explained_as_a_subscription_is(server, sql, row, held):
    define(server, RELATIONS)
    ok(server.post("/changes/stocks", json=ROWS))
    ok(server.post("/changes/owners", json={"symbol": "A", "owner": "ann"}))
    position = ok(server.get("/stats"))["log"]["position"]
    (found,), results = tried(server, sql, row)
    assert ok(server.get("/subscriptions"))["total"] == 0
    assert ok(server.get("/stats"))["log"]["position"] == position  # nothing was written
    same = ok(server.post(f"/subscriptions/{subscribe(server, sql)}/explain", json={"row": row}))
    assert bool(found) is held and same["held"] == found
    assert (same["checks"], same["notes"]) == (results[0]["checks"], results[0]["notes"])


def test_a_row_that_cannot_be_tried_has_its_problem_and_the_others_are_tried(server):
    define(server, RELATIONS)
    found, results = tried(
        server, "SELECT * FROM stocks WHERE per > 2", {"per": "x"}, {"symbol": "A", "per": 3}
    )
    assert found == [None, True]
    assert results[0]["problem"]["status"] == 400 and "per" in results[0]["problem"]["detail"]
    assert server.post("/try", json={"sql": "SELECT", "rows": []}).status_code == 400
    assert server.post("/try", json={"sql": "SELECT 1", "rows": [{}] * 201}).status_code == 400


def test_texts_are_checked_with_the_place_of_an_error(server):
    define(server, RELATIONS)
    assert ok(server.post("/validate", json={"sql": "CREATE STREAM other"}))["shape"] == "definition"
    assert ok(server.post("/validate", json={"sql": "SELECT * FROM hits"}))["tables"] == ["hits"]
    wrong = server.post("/validate", json={"sql": "SELECT *\nFROM stocks WHERE prise < 5"})
    assert wrong.status_code == 400
    place = wrong.json()["place"]
    assert (place["line"], place["column"], place["end"] - place["start"]) == (2, 19, 5)
    assert server.post("/validate", json={"sql": "CREATE STREAM"}).status_code == 400


def test_samples_are_rows_and_the_last_events(server):
    define(server, RELATIONS)
    ok(server.post("/changes/stocks", json=ROWS))
    for n in range(30):
        ok(server.post("/changes/hits", json={"n": n} if n % 2 else {"m": n}))
    assert ok(server.get("/relations/stocks/sample?limit=2"))["rows"] == ROWS[:2]
    assert ok(server.get("/relations/hits/sample?limit=3"))["rows"] == [{"n": 29}, {"m": 28}, {"n": 27}]
    assert server.get("/relations/nothing/sample").status_code == 404


def test_a_backtest_sees_events_of_all_layouts(server):
    define(server, RELATIONS)
    for n in range(20):
        ok(server.post("/changes/hits", json={"n": n} if n % 2 else {"m": n, "s": "x"}))
    found = ok(server.post("/backtest", json={"sql": "SELECT n FROM hits WHERE n > 10"}))
    assert (found["events"], found["matched"]) == (20, 5)
    assert found["rows"] == [{"n": n} for n in range(11, 20, 2)]
    assert sum(one["count"] for one in found["histogram"]) == 5


def test_access_shows_a_tenant_its_own_tokens_by_name(tmp_path):
    from tocsin.server.access import AccessControl
    from tocsin.server.scopes import Scope

    folder = tmp_path / "data"
    admin = AccessControl(folder).add_token("acme", "ops", [Scope.ADMIN, Scope.READ])
    reader = AccessControl(folder).add_token("acme", "wall", [Scope.READ])
    AccessControl(folder).add_token("other", "secret", [Scope.READ])
    with running(folder) as server:
        assert server.get("/access").status_code == 401
        found = ok(server.get("/access", headers={"authorization": f"Bearer {admin}"}))
        assert (found["tenant"], found["is_open"]) == ("acme", False)
        assert [one["name"] for one in found["tokens"]] == ["ops", "wall"]
        assert all(set(one) == {"name", "scopes"} for one in found["tokens"])
        assert ok(server.get("/access", headers={"authorization": f"Bearer {reader}"}))["tokens"] == []
