"""The live page as a user has it: typed, clicked and read in Chromium, over a real server.

With TOCSIN_SCREENSHOTS=docs/_static/page the screenshots of the documentation are taken on the way.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from time import perf_counter

import pytest

from tests.server.conftest import running
from tests.server.test_api import define, ok, subscribe

TYPING_ERROR = "SELECT model, price FROM listings WHERE prise <= 580 AND model LIKE 'x%'"
DATA = """CREATE STREAM listings (model STRING, price DOUBLE, seller STRING) RETAIN '1 hour';
          CREATE TABLE stocks (symbol STRING, per DOUBLE, PRIMARY KEY (symbol))"""
EVENTS = [
    {"model": f"{'xyz'[n % 3]}{n % 7}", "price": 400.0 + 37 * n % 400, "seller": ["ann", "bob"][n % 2]}
    for n in range(60)
]


@pytest.fixture(name="shots")
def _shots(tmp_path) -> Path:
    return Path(os.environ.get("TOCSIN_SCREENSHOTS", tmp_path))


def address(server) -> str:
    return str(server.base_url).removesuffix("/v1/")


def test_a_query_is_written_corrected_tried_and_replayed(server, tab, shots):
    define(server, DATA)
    for event in EVENTS:
        ok(server.post("/changes/listings", json=event))
    tab.open(f"{address(server)}/#/query")
    tab.write(".editor textarea", TYPING_ERROR)
    tab.see(".message.bad", "there is no column 'prise' in listings")
    assert "did you mean 'price'?" in tab.text(".message.bad")
    assert tab.text("mark") == "prise"
    tab.shot(shots / "error.png")
    tab.write(".editor textarea", TYPING_ERROR.replace("prise", "price"))
    tab.see(".message.good", "filter over listings")
    assert tab.text("mark") == ""
    tab.write("#rows", '{"model": "x5", "price": 499}\n{"model": "y7", "price": 499}')
    tab.see("#results .badge.yes", "match")
    tab.see("#results .badge.no", "no match")
    verdicts = tab.evaluate("[...document.querySelectorAll('.trial')].map(e => e.innerText.split('\\n')[0])")
    assert verdicts == ["match", "no match"]
    reasons = tab.evaluate("[...document.querySelectorAll('.trial')][1].querySelector('.checks').innerText")
    assert reasons.split() == ["yes", "price", "<=", "580", "no", "model", "LIKE", "'x%'"]
    tab.click("#backtest")
    tab.see("#past", f"of {len(EVENTS)} events would have matched")
    assert tab.evaluate("document.querySelectorAll('#past rect.bar').length") == 60
    tab.shot(shots / "query.png")
    tab.show(1200, 820, "dark")
    tab.shot(shots / "query-dark.png")
    assert ok(server.get("/subscriptions"))["total"] == 0  # all of this registered nothing
    tab.evaluate("document.querySelector('.editor textarea').focus()")
    tab.press("Control+Enter")
    tab.see(".message.good", "subscription 1 is registered")
    assert ok(server.get("/subscriptions/1"))["sql"] == TYPING_ERROR.replace("prise", "price")


def test_published_rows_become_deltas(server, tab, shots):
    define(server, DATA)
    subscribe(server, "SELECT model, price FROM listings WHERE price <= 580", subscriber="ann")
    tab.open(f"{address(server)}/#/live")
    tab.wait("document.querySelector('#relation')?.options.length")
    wait_for_follower(server, tab)
    tab.write("#publish-rows", '{"model": "x5", "price": 499}')
    tab.press("Control+Enter")
    tab.see(".deltas td code", '{"model":"x5","price":499')
    assert tab.text(".deltas td.sign") == "+1"
    tab.write("#publish-rows", '{"model": "x5", "price": "cheap"}')
    tab.click("#publish")
    tab.see(".message.bad", "row 1: column price: 'cheap' is not a DOUBLE")
    tab.shot(shots / "live.png")


def wait_for_follower(server, tab, count=1):
    tab.wait("document.readyState === 'complete'")
    while ok(server.get("/stats"))["followers"] < count:
        tab.evaluate("new Promise(done => setTimeout(done, 20))")


def test_rows_enter_and_leave_a_ranking(server, tab, shots):
    define(server, DATA)
    best = subscribe(server, "SELECT symbol, per FROM stocks ORDER BY per DESC LIMIT 3")
    rows = [{"symbol": name, "per": 10.0 * n} for n, name in enumerate(("AMZN", "GOOG", "IBM", "MSFT"), 1)]
    ok(server.post("/changes/stocks", json=rows))
    tab.open(f"{address(server)}/#/subscriptions/{best}")
    tab.see("#content tbody", "MSFT")
    wait_for_follower(server, tab, 2)
    tab.watch("#content tr.entered", "#content tr.left")
    ok(server.post("/changes/stocks?op=upsert", json={"symbol": "AMZN", "per": 99}))
    tab.has_seen("#content tr.entered", "AMZN")
    tab.has_seen("#content tr.left", "GOOG")
    tab.see(".deltas td.minus", "−1")
    tab.shot(shots / "top-k.png")
    tab.wait("!document.querySelector('#content tr.left')")
    content = tab.evaluate(
        "[...document.querySelectorAll('#content tbody tr td:first-child')].map(e => e.innerText)"
    )
    assert content == ["AMZN", "MSFT", "IBM"]
    tab.write("#why-rows", '{"symbol": "GOOG", "per": 20}')
    tab.click("#explain")
    tab.see("#why", "no match")
    tab.click("button", "Pause")
    tab.see("section.card", "paused")


def test_rows_enter_and_leave_joins_and_minima(server, tab):
    define(server, DATA + "; CREATE TABLE owners (symbol STRING, owner STRING, PRIMARY KEY (symbol))")
    joined = subscribe(server, "SELECT owner, per FROM stocks JOIN owners USING (symbol) WHERE per < 5")
    least = subscribe(server, "SELECT MIN(per) AS least FROM stocks")
    ok(
        server.post(
            "/changes/owners", json=[{"symbol": "A", "owner": "ann"}, {"symbol": "B", "owner": "bob"}]
        )
    )
    ok(server.post("/changes/stocks", json={"symbol": "A", "per": 4}))
    for id, left, entered in ((joined, "ann", "bob"), (least, "4", "3")):
        tab.open("about:blank")
        tab.open(f"{address(server)}/#/subscriptions/{id}")
        tab.see("#content tbody", left)
        wait_for_follower(server, tab, 2)
        tab.watch("#content tr.entered", "#content tr.left")
        ok(server.post("/changes/stocks?op=upsert", json={"symbol": "B", "per": 3}))
        tab.has_seen("#content tr.entered", entered)
        ok(server.post("/changes/stocks?op=delete", json={"symbol": "B"}))
        tab.has_seen("#content tr.left", entered)


def test_a_hundred_thousand_subscriptions_are_sorted_by_the_server(server, tab, shots):
    define(server, DATA)
    params = [{"id": n, "seller": f"s{n}", "subscriber": f"u{n % 5}"} for n in range(1, 100_001)]
    body = {"template": "SELECT model, price FROM listings WHERE seller = :seller", "params": params}
    tab.open(f"{address(server)}/#/subscriptions")
    tab.see("#subscriptions td", "none yet")
    tab.open("about:blank")
    ok(server.post("/subscriptions", json=body, timeout=300))  # the first may compile
    events = [{"model": "x5", "price": 9, "seller": f"s{n}"} for n in (70_000, 70_000, 5)]
    ok(server.post("/changes/listings", json=events, timeout=300))
    tab.open(f"{address(server)}/#/subscriptions")
    tab.see("#subscriptions td", "50")
    assert any(seconds_to_list(server) < 1 for _ in range(10))
    assert "100,000 subscriptions" in tab.text("main")
    assert tab.evaluate("document.querySelectorAll('#subscriptions tbody tr').length") == 50
    tab.click("#next")
    tab.see("#subscriptions td", "51")
    tab.click("th button", "deltas")
    tab.wait("document.querySelector('#subscriptions td a').innerText === '70000'")
    tab.shot(shots / "subscriptions.png")
    tab.write("#of-subscriber", "u0")
    tab.wait("document.querySelectorAll('#subscriptions tbody tr').length === 2")
    assert tab.text("#subscriptions tbody").split()[0] == "70000"


def seconds_to_list(server) -> float:
    """What the page asks for when its list opens."""
    began = perf_counter()
    ok(server.get("/subscriptions", params={"limit": 50, "sort": "cost"}))
    return perf_counter() - began


def test_tokens_are_needed_where_there_are_any(tmp_path, tab):
    from tocsin.server.access import AccessControl
    from tocsin.server.scopes import Scope

    folder = tmp_path / "data"
    token = AccessControl(folder).add_token("acme", "page", [Scope.READ, Scope.ADMIN])
    with running(folder) as server:
        tab.open(f"{address(server)}/")
        tab.see("h1", "This server has tokens")
        tab.write("#token", "toc_wrong")
        tab.press("Enter")
        tab.see(".message.bad", "the token is not known")
        tab.write("#token", token)
        tab.press("Enter")
        tab.see("h2", "Streams and tables")
        tab.press("Alt+5")
        tab.see("#tokens", "admin, read")
        tab.see("main", "acme")
        tab.press("Alt+1")
        tab.write(".editor textarea", "CREATE STREAM hits")
        tab.see(".message.good", "definition")
        tab.click("#register")
        tab.see(".message.bad", "the token is not for define")


def test_requests_copied_as_curl_and_python_run(server, tab):
    define(server, DATA)
    tab.open(f"{address(server)}/#/query")
    tab.write(".editor textarea", "SELECT * FROM listings WHERE seller = 'ann''s' AND price < 9")
    tab.see(".message.good", "filter")
    tab.click("button", "Copy as curl")
    curl, python = tab.see(".as-curl pre"), tab.text(".as-python pre")
    for number, command in enumerate((["sh", "-c", curl], [sys.executable, "-c", python]), 1):
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        assert "token" in done.stdout, done
        assert "ann''s" in ok(server.get(f"/subscriptions/{number}"))["sql"]


def test_first_paint_within_a_second(server, tab):
    define(server, DATA)
    paints = [10_000.0]
    while min(paints) >= 1000 and len(paints) < 20:  # on a machine that does other things too
        tab.call("Network.setCacheDisabled", cacheDisabled=True)
        tab.open("about:blank")
        tab.open(f"{address(server)}/")
        tab.see(".editor")
        paint = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
        paints.append(tab.wait(paint))
    assert min(paints) < 1000, paints


def test_files_of_the_page_have_a_policy_and_no_others_are_served(server):
    root = address(server)
    answer = server.get(f"{root}/")
    assert answer.status_code == 200 and "default-src 'none'" in answer.headers["content-security-policy"]
    same = server.get(f"{root}/page/main.js", headers={"if-none-match": "x"})
    again = server.get(f"{root}/page/main.js", headers={"if-none-match": same.headers["etag"]})
    assert (same.status_code, again.status_code) == (200, 304)
    for name in ("nothing.js", "..%2f__init__.py", "%2e%2e/routes.py"):
        assert server.get(f"{root}/page/{name}").status_code == 404
