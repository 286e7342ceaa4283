"""Each form of the SQL of alerts, by itself: explained, replayed by a backtest, saved and loaded."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from typer.testing import CliRunner

from tocsin import Engine
from tocsin.cli import app
from tocsin.commands.backtest import backtest
from tocsin.reference import row_key

DEFINITIONS = """
CREATE TABLE s (id BIGINT, k BIGINT, x BIGINT, PRIMARY KEY (id));
CREATE STREAM e (k BIGINT, x BIGINT, at TIMESTAMP)
"""
JOINED = "s a JOIN s b ON a.x = b.k"
OVER_TABLE = {
    "group by, having": "SELECT k, COUNT(*) AS n FROM s GROUP BY k HAVING COUNT(*) >= 2",
    "filter": "SELECT k, COUNT(*) FILTER (WHERE x > 1) AS n FROM s GROUP BY k",
    "count distinct": "SELECT COUNT(DISTINCT x) AS n FROM s",
    "aggregate over a join": f"SELECT COUNT(*) AS n, MAX(b.x) AS most FROM {JOINED}",
    "distinct over a join": f"SELECT DISTINCT a.k FROM {JOINED}",
    "top-k over a join": f"SELECT a.id, b.x FROM {JOINED} ORDER BY b.x DESC LIMIT 2",
    "offset": "SELECT id, x FROM s ORDER BY x LIMIT 2 OFFSET 1",
    "first rows of groups": "SELECT id FROM s QUALIFY ROW_NUMBER() OVER (PARTITION BY k ORDER BY x) <= 1",
    "left join": "SELECT a.id, b.x FROM s a LEFT JOIN s b ON a.x = b.k",
    "right join": "SELECT a.id, b.x FROM s a RIGHT JOIN s b ON a.x = b.k",
    "full join": "SELECT a.id, b.x FROM s a FULL JOIN s b ON a.x = b.k",
    "exists": "SELECT a.id FROM s a WHERE EXISTS (SELECT 1 FROM s b WHERE b.k = a.x)",
    "not exists": "SELECT a.id FROM s a WHERE NOT EXISTS (SELECT 1 FROM s b WHERE b.k = a.x)",
    "in": "SELECT id FROM s WHERE k IN (SELECT x FROM s)",
    "not in": "SELECT id FROM s WHERE k NOT IN (SELECT x FROM s WHERE x > 2)",
    "union all": "SELECT id FROM s WHERE x > 1 UNION ALL SELECT k FROM s WHERE k = 1",
}
OVER_STREAM = {
    "window": "SELECT k FROM e GROUP BY k HAVING COUNT(*) >= 2 WITH (window = '2 minutes')",
    "absence of keys": "SELECT s.id FROM s WHERE NOT EXISTS (SELECT 1 FROM e WHERE e.k = s.id)"
    " WITH (window = '1 minute')",
    "absence": "SELECT DISTINCT k FROM e WITH (window = '1 minute', absent = 'forever')",
    "sequence": "SELECT b.k FROM e a FOLLOWED BY e b ON a.k = b.k WITHIN '2 minutes'"
    " WHERE a.x > 0 AND b.x < 4",
}
FORMS = OVER_TABLE | OVER_STREAM
BEGIN = datetime(2024, 5, 1, tzinfo=UTC)
ROWS = [{"id": n, "k": n % 3, "x": (n * 7) % 5} for n in range(12)]


def at(n):
    return BEGIN + timedelta(seconds=25 * n)


def event(n):
    return {"k": n % 3, "x": (n * 7) % 5, "at": at(n)}


def bag(deltas):
    return Counter((d.subscription, d.sign, row_key(d.row)) for d in deltas)


@pytest.mark.parametrize("form", FORMS)
def test_a_saved_engine_goes_on(tmp_path, form):
    now = BEGIN
    engine = Engine(clock=lambda: now)
    engine.execute(DEFINITIONS)
    id = engine.subscribe(FORMS[form])
    emitted = bag(engine.apply("s", ROWS[:6]))
    for n in range(4):
        now = at(n)
        emitted += bag(engine.publish("e", event(n)))
    engine.tick()
    engine.save(tmp_path / "saved")
    other = Engine.load(tmp_path / "saved", clock=lambda: now)
    for n in range(4, 10):
        now = at(n)
        changes = [{**ROWS[n + 2], "_op": "insert"}, {**ROWS[n - 3], "_op": "delete"}]
        for relation, batch in (("s", changes), ("e", [event(n)])):
            found, expected = (bag(one.apply(relation, batch)) for one in (other, engine))
            assert found == expected
            emitted += found
    assert sum(emitted.values()) > 2
    assert Counter(map(row_key, other.content(id))) == Counter(map(row_key, engine.content(id)))
    other._check()


@pytest.mark.parametrize("form", FORMS)
def test_a_row_is_explained(form):
    now = BEGIN
    engine = Engine(clock=lambda: now)
    engine.execute(DEFINITIONS)
    id = engine.subscribe(FORMS[form])
    engine.apply("s", ROWS[:6])
    for n in range(4):
        now = at(n)
        engine.publish("e", event(n))
    table, row = ("s", ROWS[7]) if form in OVER_TABLE else ("e", event(4))
    text = str(engine.explain(id, row, table=table))
    assert f"subscription {id.id}" in text and len(text.splitlines()) > 1


@pytest.mark.parametrize("form", FORMS)
def test_a_backtest_replays_it(tmp_path, form):
    file = tmp_path / "rows.jsonl"
    name, rows = ("s", ROWS) if form in OVER_TABLE else ("e", [event(n) for n in range(12)])
    file.write_text("\n".join(json.dumps(row, default=str) for row in rows))
    found = backtest(FORMS[form], file, schema=DEFINITIONS, relation=name)
    assert not found.bad.rows
    expected = form != "absence of keys"  # its keys are rows of a table, which the file does not hold
    assert bool(found.subscriptions[0].matches) == expected


def test_what_is_kept_is_bounded_and_reported(tmp_path):
    """Ever new keys come and go; what windows, groups, sequences and absence keep does not grow."""
    now = BEGIN
    engine = Engine(clock=lambda: now)
    engine.execute(DEFINITIONS)
    for form in OVER_STREAM:
        engine.subscribe(FORMS[form].replace("'forever'", "'2 minutes'"))
    sizes = []
    for n in range(60):
        now += timedelta(seconds=30)
        engine.apply("e", [{"k": 500 * n + k, "x": k % 5} for k in range(500)])
        stats = engine.stats()
        windows = sum(window["bytes"] for window in stats["windows"].values())
        groups = sum(source["bytes"] for source in stats["group"]["sources"])
        sizes.append((windows, groups, stats["sequence"]["bytes"]))
        assert stats["sequence"]["chains"] <= 500 * 12  # pruned when most are late
        assert stats["group"]["sources"][0]["groups"] <= 500 * 5
    assert all(late <= 2 * early for early, late in zip(sizes[15], sizes[-1], strict=True))
    engine.save(tmp_path / "saved")
    shown = CliRunner().invoke(app, ["limits", str(tmp_path / "saved"), "--kept"]).stdout
    assert "window e (k) WITH (window = '1 minute'" in shown and "groups of e WITH" in shown
    assert "sequences: 2 steps, " in shown and "bytes" in shown
    found = json.loads(
        CliRunner().invoke(app, ["limits", str(tmp_path / "saved"), "--kept", "--json"]).stdout
    )
    assert found["sequences"]["chains"] > 0 and len(found["windows"]) == 3
