"""The HTTP API: every form of request, and what is answered."""

from __future__ import annotations

import io
import json
from threading import Thread

import pyarrow as pa
import pytest
from websockets.sync.client import connect

from tests.server.conftest import running

STOCKS = "CREATE TABLE stocks (symbol STRING, per DOUBLE, PRIMARY KEY (symbol))"


def arrow(**columns):
    table, sink = pa.table(columns), io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def ok(answer):
    assert answer.status_code == 200, answer.text
    return answer.json()


def define(server, sql):
    return ok(server.post("/definitions", json={"sql": sql}))


def subscribe(server, sql, **given):
    return ok(server.post("/subscriptions", json={"sql": sql, **given}))["id"]


def rows(server, id):
    return ok(server.get(f"/subscriptions/{id}/content"))["rows"]


def test_define_subscribe_publish_and_read(server):
    define(server, STOCKS)
    cheap = subscribe(server, "SELECT * FROM stocks ORDER BY per LIMIT 2", subscriber="ann")
    done = ok(server.post("/changes/stocks", json=[{"symbol": "A", "per": 3}, {"symbol": "B", "per": 2}]))
    assert (done["applied"], done["seq"]) == (2, 2)
    assert rows(server, cheap) == [{"symbol": "B", "per": 2.0}, {"symbol": "A", "per": 3.0}]
    assert ok(server.post("/changes/stocks?op=delete", json={"symbol": "B"}))["applied"] == 1
    assert rows(server, cheap) == [{"symbol": "A", "per": 3.0}]
    listed = ok(server.get("/subscriptions"))
    assert listed["total"] == 1 and listed["subscriptions"][0]["subscriber"] == "ann"
    assert ok(server.get("/definitions"))["definitions"][0]["name"] == "stocks"


@pytest.mark.parametrize(
    ("body", "kind", "applied"),
    [
        (b'{"n":\n 1}', "application/json", 1),
        (b'[{"n": 1}, {"n": 2}]', "application/json", 2),
        (b'{"n": 1}\n\n{"n": 2}\n', "application/x-ndjson", 2),
        (arrow(n=[1, 2, 3]), "application/vnd.apache.arrow.stream", 3),
        (
            b'{"specversion": "1.0", "id": "1", "source": "s", "type": "t", "data": {"n": 1}}',
            "application/cloudevents+json",
            1,
        ),
        (
            b'[{"specversion": "1.0", "id": "1", "source": "s", "type": "t", "data": {"n": 1}}]',
            "application/cloudevents-batch+json",
            1,
        ),
    ],
)
def test_changes_come_in_many_forms(server, body, kind, applied):
    define(server, "CREATE STREAM hits")
    subscribe(server, "SELECT * FROM hits WHERE n >= 1")
    since = ok(server.get("/deltas"))["token"]
    assert (
        ok(server.post("/changes/hits", content=body, headers={"content-type": kind}))["applied"] == applied
    )
    deltas = ok(server.get("/deltas", params={"since": since}))["deltas"]
    assert [delta["row"] for delta in deltas] == [{"n": n} for n in range(1, applied + 1)]


def test_a_cloud_event_in_binary_mode_is_applied_once(server):
    define(server, "CREATE STREAM hits")
    headers = {"ce-id": "7", "ce-source": "/test", "ce-specversion": "1.0", "ce-type": "hit"}
    first = server.post("/changes/hits", json={"n": 1}, headers=headers)
    again = server.post("/changes/hits", json={"n": 1}, headers=headers)
    assert ok(first) == ok(again) and again.headers["idempotency-replayed"] == "true"
    assert ok(server.get("/stats"))["engine"]["last_seq"] == 1


def test_an_idempotency_key_holds_across_a_restart(tmp_path):
    with running(tmp_path) as server:
        define(server, "CREATE STREAM hits")
        first = ok(server.post("/changes/hits", json={"n": 1}, headers={"idempotency-key": "a"}))
    with running(tmp_path) as server:
        assert ok(server.post("/changes/hits", json={"n": 1}, headers={"idempotency-key": "a"})) == first
        other = server.post("/changes/hits", json={"n": 2}, headers={"idempotency-key": "a"})
        assert other.status_code == 422 and "another request" in other.json()["detail"]


def test_bad_rows_reject_the_batch_or_are_skipped(server):
    define(server, STOCKS)
    body = [{"symbol": "A", "per": 1}, {"symbol": "B", "per": "much"}, {"per": 3}]
    refused = server.post("/changes/stocks", json=body)
    assert refused.status_code == 400 and refused.json()["rows"][0]["row"] == 1
    assert ok(server.get("/stats"))["engine"]["rows"] == {"stocks": 0}
    done = ok(server.post("/changes/stocks?bad=skip", json=body))
    assert done["applied"] == 1 and [bad["row"] for bad in done["rejected"]] == [1, 2]


@pytest.mark.parametrize(
    ("given", "many"),
    [
        ({"json": {"subscriptions": [{"sql": "SELECT * FROM hits WHERE n > 1"}] * 2}}, 2),
        ({"json": {"template": "SELECT * FROM hits WHERE n > :n", "params": [{"n": 1, "id": 5}]}}, 1),
        (
            {
                "json": {
                    "relation": "hits",
                    "predicates": [{"id": 8, "predicates": [{"attribute": "n", "op": ">", "number": 1}]}],
                }
            },
            1,
        ),
        (
            {
                "content": b'{"sql": "SELECT * FROM hits"}\n',
                "headers": {"content-type": "application/x-ndjson"},
            },
            1,
        ),
        (
            {
                "content": arrow(n=[1, 2, 3], id=[7, 8, 9]),
                "params": {"template": "SELECT * FROM hits WHERE n > :n"},
                "headers": {"content-type": "application/vnd.apache.arrow.stream"},
            },
            3,
        ),
    ],
)
def test_many_subscriptions_in_one_request(server, given, many):
    define(server, "CREATE STREAM hits")
    assert ok(server.post("/subscriptions", **given))["count"] == many
    ok(server.post("/changes/hits", json={"n": 9}))
    assert ok(server.get("/stats"))["engine"]["subscriptions"] == many


def test_pause_resume_replace_expire_and_remove_are_deltas(server):
    define(server, STOCKS)
    ok(server.post("/changes/stocks", json=[{"symbol": s, "per": n} for n, s in enumerate("ABC")]))
    since = ok(server.get("/deltas"))["token"]
    id = subscribe(server, "SELECT symbol FROM stocks WHERE per >= 1", id=42)
    ok(server.post(f"/subscriptions/{id}/pause"))
    assert ok(server.get(f"/subscriptions/{id}"))["state"] == "paused" and rows(server, id) == []
    ok(server.post(f"/subscriptions/{id}/resume"))
    ok(server.put(f"/subscriptions/{id}", json={"sql": "SELECT symbol FROM stocks WHERE per >= 2"}))
    ok(server.post(f"/subscriptions/{id}/expire"))
    ok(server.post("/changes/stocks", json={"symbol": "D", "per": 9}))
    assert ok(server.get(f"/subscriptions/{id}"))["state"] == "expired"
    ok(server.delete(f"/subscriptions/{id}"))
    assert server.get(f"/subscriptions/{id}").status_code == 404
    deltas = ok(server.get("/deltas", params={"since": since}))["deltas"]
    signed = [(delta["sign"], delta["row"]["symbol"]) for delta in deltas]
    assert signed[:7] == [(1, "B"), (1, "C"), (-1, "B"), (-1, "C"), (1, "B"), (1, "C"), (-1, "B")]
    assert signed[7:] == [(-1, "C")]


def test_a_replaced_subscription_stays_its_subscribers(server):
    define(server, STOCKS)
    id = subscribe(server, "SELECT symbol FROM stocks WHERE per > 1", subscriber="ann")
    for given, owner in (({}, "ann"), ({"subscriber": "bob"}, "bob"), ({"subscriber": None}, None)):
        ok(server.put(f"/subscriptions/{id}", json={"sql": "SELECT symbol FROM stocks", **given}))
        assert ok(server.get(f"/subscriptions/{id}")).get("subscriber") == owner
    ok(server.put(f"/subscriptions/{id}", json={"sql": "SELECT symbol FROM stocks", "subscriber": "ann"}))
    ok(server.post(f"/subscriptions/{id}/pause"))
    ok(server.put(f"/subscriptions/{id}", json={"sql": "SELECT per FROM stocks"}))
    ok(server.post(f"/subscriptions/{id}/resume"))
    assert ok(server.get(f"/subscriptions/{id}"))["subscriber"] == "ann"


def test_errors_are_problems_with_a_place_and_a_hint(server):
    define(server, "CREATE STREAM listings (price DOUBLE)")
    answer = server.post("/subscriptions", json={"sql": "SELECT * FROM listings WHERE prise <= 5"})
    problem = answer.json()
    assert answer.headers["content-type"] == "application/problem+json" and answer.status_code == 400
    assert problem["detail"] == "there is no column 'prise' in listings"
    assert problem["place"] == {"line": 1, "column": 30, "start": 29, "end": 34}
    assert "price" in problem["hint"]


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/subscriptions/77", None, 404),
        ("GET", "/subscriptions/no", None, 400),
        ("DELETE", "/subscriptions/77", None, 404),
        ("GET", "/nothing", None, 404),
        ("GET", "/deltas?since=never", None, 400),
        ("GET", "/deltas?subscription=77", None, 404),
        ("POST", "/changes/nothing", b"{}", 404),
        ("POST", "/changes/hits", b"{", 400),
        ("POST", "/changes/hits", b"", 400),
        ("POST", "/changes/hits", b'{"_seq": 9}', 400),
        ("POST", "/changes/hits?bad=ignore", b"{}", 400),
        ("POST", "/definitions", b'{"sql": "CREATE STREAM hits"}', 400),
        ("POST", "/subscriptions", b'{"sql": "SELECT * FROM hits", "id": 1}', 409),
        ("PATCH", "/subscriptions/1", b"{}", 405),
    ],
)
def test_bad_requests_have_a_status_and_change_nothing(server, method, path, body, status):
    define(server, "CREATE STREAM hits")
    subscribe(server, "SELECT * FROM hits", id=1)
    before = ok(server.get("/stats"))["log"]["position"]
    answer = server.request(method, path, content=body, headers={"content-type": "application/json"})
    assert answer.status_code == status and answer.json()["detail"]
    assert ok(server.get("/stats"))["log"]["position"] == before


def test_an_unknown_content_type_is_rejected(server):
    define(server, "CREATE STREAM hits")
    answer = server.post("/changes/hits", content=b"n=1", headers={"content-type": "text/csv"})
    assert answer.status_code == 415 and "application/x-ndjson" in answer.json()["hint"]


def test_explain_shows_each_condition(server):
    define(server, "CREATE STREAM hits")
    id = subscribe(server, "SELECT * FROM hits WHERE n > 5 AND page = '/'")
    found = ok(server.post(f"/subscriptions/{id}/explain", json={"row": {"n": 9, "page": "/pay"}}))
    assert found["held"] is False and [check["held"] for check in found["checks"]] == [True, False]
    same = ok(server.get(f"/subscriptions/{id}/explain", params={"row": '{"n": 9, "page": "/pay"}'}))
    assert same == found


# -- following ----------------------------------------------------------------------------------------


def lines_of(server, count, **params):
    """The first messages of an NDJSON stream."""
    out = []
    with server.stream("GET", "/deltas", params=params, headers={"accept": "application/x-ndjson"}) as answer:
        for line in answer.iter_lines():
            out.append(json.loads(line))
            if len(out) == count:
                return out
    return out


def test_sse_resumes_by_the_last_id(server):
    define(server, "CREATE STREAM hits")
    id = subscribe(server, "SELECT n FROM hits WHERE n > 1")
    with server.stream(
        "GET", f"/deltas?subscription={id}", headers={"accept": "text/event-stream"}
    ) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = answer.iter_lines()
        token = next(lines).removeprefix("id: ")
    for n in range(4):
        ok(server.post("/changes/hits", json={"n": n}))
    headers = {"accept": "text/event-stream", "last-event-id": token}
    with server.stream("GET", f"/deltas?subscription={id}", headers=headers) as answer:
        data = [
            line[6:] for _, line in zip(range(8), answer.iter_lines(), strict=False) if line[:5] == "data:"
        ]
    assert [json.loads(text)["deltas"][0]["row"]["n"] for text in data] == [2, 3]


def test_snapshot_then_follow_in_one_call(server):
    define(server, STOCKS)
    ok(server.post("/changes/stocks", json={"symbol": "A", "per": 1}))
    id = subscribe(server, "SELECT * FROM stocks WHERE per < 5", subscriber="ann")
    for params in {}, {"subscription": id}, {"subscriber": "ann"}:
        later = Thread(
            target=lambda: server.post("/changes/stocks?op=upsert", json={"symbol": "B", "per": 2})
        )
        found = []
        with server.stream(
            "GET", "/deltas", params=params, headers={"accept": "application/x-ndjson"}
        ) as answer:
            for line in answer.iter_lines():
                found.append(json.loads(line))
                if len(found) == 1:
                    later.start()
                if len(found) == 2:
                    break
        later.join()
        ok(server.post("/changes/stocks?op=delete", json={"symbol": "B"}))
        assert found[0]["contents"] == [{"subscription": id, "rows": [{"symbol": "A", "per": 1.0}]}]
        assert found[1]["deltas"][0]["row"] == {"symbol": "B", "per": 2.0}


def test_a_web_socket_receives_the_same_messages(server):
    define(server, "CREATE STREAM hits")
    subscribe(server, "SELECT n FROM hits WHERE n > 1")
    address = str(server.base_url).replace("http", "ws") + "deltas"
    with connect(address) as socket:
        first = json.loads(socket.recv())
        ok(server.post("/changes/hits", json={"n": 5}))
        second = json.loads(socket.recv())
    assert first["type"] == "snapshot" and second["deltas"][0]["row"] == {"n": 5}
    with connect(f"{address}?since={first['token']}") as socket:
        assert json.loads(socket.recv()) == second


def test_a_long_poll_waits_for_the_first_deltas(server):
    define(server, "CREATE STREAM hits")
    subscribe(server, "SELECT n FROM hits WHERE n > 1")
    since = ok(server.get("/deltas"))["token"]
    assert ok(server.get("/deltas", params={"since": since}))["deltas"] == []
    poster = Thread(target=lambda: server.post("/changes/hits", json={"n": 5}))
    poster.start()
    found = ok(server.get("/deltas", params={"since": since, "wait": 20}))
    poster.join()
    assert [delta["row"] for delta in found["deltas"]] == [{"n": 5}]


def test_a_token_of_another_log_is_answered_with_a_snapshot(server):
    define(server, "CREATE STREAM hits")
    for token, reason in ("0badcafe-1", "another log"), (None, "start"):
        params = {} if token is None else {"since": token}
        assert ok(server.get("/deltas", params=params))["reset"] == reason
        assert lines_of(server, 1, **params)[0]["reason"] == reason
    ahead = ok(server.get("/deltas"))["token"] + "99"
    assert ok(server.get("/deltas", params={"since": ahead}))["reset"] == "ahead"


def test_messages_are_cut_and_resumed_in_the_middle_of_a_command(server):
    define(server, "CREATE STREAM hits")
    subscribe(server, "SELECT n FROM hits WHERE n >= 0")
    token = ok(server.get("/deltas"))["token"]
    ok(server.post("/changes/hits", json=[{"n": n} for n in range(2500)]))
    seen = []
    while len(seen) < 2500:
        found = ok(server.get("/deltas", params={"since": token, "limit": 1}))
        seen += [delta["row"]["n"] for delta in found["deltas"]]
        token = found["token"]
    assert seen == list(range(2500))


def test_content_and_deltas_survive_a_restart(tmp_path):
    with running(tmp_path) as server:
        define(server, STOCKS)
        id = subscribe(server, "SELECT * FROM stocks ORDER BY per LIMIT 1")
        token = ok(server.get("/deltas"))["token"]
        ok(server.post("/changes/stocks", json={"symbol": "A", "per": 3}))
    with running(tmp_path) as server:
        ok(server.post("/changes/stocks", json={"symbol": "B", "per": 2}))
        assert rows(server, id) == [{"symbol": "B", "per": 2.0}]
        found = ok(server.get("/deltas", params={"since": token, "subscription": id}))
        assert [(d["sign"], d["row"]["symbol"]) for d in found["deltas"]] == [(1, "A"), (-1, "A"), (1, "B")]
