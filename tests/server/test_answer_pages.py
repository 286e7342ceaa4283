"""Long answers in pages: of one moment, kept for some time, read on by clients."""

from __future__ import annotations

import asyncio

import pytest

from tests.server.test_api import define, ok, subscribe
from tocsin.remote import AsyncRemote, Remote
from tocsin.server import answer_pages
from tocsin.server.answer_pages import AnswerPages
from tocsin.server.problems import Problem

ROWS = [{"k": k} for k in range(10)]


def test_pages_are_of_one_moment(server):
    define(server, "CREATE TABLE t (k BIGINT, PRIMARY KEY (k))")
    id = subscribe(server, "SELECT k FROM t ORDER BY k LIMIT 100")
    ok(server.post("/changes/t?op=upsert", json=ROWS))
    path = f"/subscriptions/{id}/content"
    whole = ok(server.get(path))
    assert (whole["rows"], whole["total"], "next" in whole) == (ROWS, 10, False)
    page = ok(server.get(path, params={"limit": 4}))
    ok(server.post("/changes/t?op=delete", json=[{"k": 4}, {"k": 5}]))
    found, tokens = page["rows"], {page["token"]}
    while "next" in page:
        page = ok(server.get(path, params={"limit": 4, "after": page["next"]}))
        assert page["total"] == 10
        found += page["rows"]
        tokens.add(page["token"])
    assert (found, tokens) == (ROWS, {whole["token"]})
    assert ok(server.get(path))["total"] == 8


@pytest.mark.parametrize("after", ["x", "0123-4", "-1", "-", "é-1"])
def test_a_page_that_is_not_kept_is_an_error(server, after):
    define(server, "CREATE TABLE t (k BIGINT, PRIMARY KEY (k))")
    id = subscribe(server, "SELECT k FROM t")
    answer = server.get(f"/subscriptions/{id}/content", params={"after": after})
    assert answer.status_code == 404 and answer.json()["hint"] == "read it from the start"


def test_clients_read_all_pages(server, monkeypatch):
    define(server, "CREATE TABLE t (k BIGINT, PRIMARY KEY (k))")
    id = subscribe(server, "SELECT k FROM t ORDER BY k LIMIT 100")
    ok(server.post("/changes/t", json=ROWS))
    monkeypatch.setattr(AnswerPages, "first", short(AnswerPages.first))
    monkeypatch.setattr(AnswerPages, "after", short(AnswerPages.after))
    url = str(server.base_url).removesuffix("/v1/")
    with Remote(url) as remote:
        assert remote.content(id) == ROWS

    async def read():
        async with AsyncRemote(url) as remote:
            return await remote.content(id)

    assert asyncio.run(read()) == ROWS


def short(method):
    """Pages of three rows, whatever is asked for."""
    return lambda self, *given: method(self, *given[:-1], 3)


def test_few_answers_are_kept_and_the_last_one_always(monkeypatch):
    monkeypatch.setattr(answer_pages, "MOST_ROWS_KEPT", 25)
    pages = AnswerPages()
    names = [pages.first(1, "a-1", ROWS, 4).next for _ in range(3)]
    with pytest.raises(Problem, match="there is no page"):
        pages.after(names[0], 1, 4)
    assert pages.after(names[1], 1, 4).rows == pages.after(names[1], 1, 4).rows == ROWS[4:8]
    with pytest.raises(Problem, match="of this answer"):
        pages.after(names[1], 2, 4)
    long = pages.first(1, "a-1", ROWS * 9, 4)
    assert pages.after(long.next, 1, 90).next is None
