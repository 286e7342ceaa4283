"""Deliveries over the API of a real server, to a real receiver."""

from __future__ import annotations

import json
import time

import pytest

from tests.delivery.test_targets import receiver
from tests.server.conftest import running
from tests.server.test_api import define, ok, subscribe
from tocsin.delivery.signing import verify


def wait(predicate, seconds=10.0):
    until = time.monotonic() + seconds
    while not predicate():
        assert time.monotonic() < until
        time.sleep(0.02)


def state(server, name="pager"):
    return ok(server.get(f"/deliveries/{name}"))


def test_an_alert_is_delivered_and_resolved_across_a_restart(tmp_path):
    with receiver() as (host, received):
        with running(tmp_path) as server:
            define(server, "CREATE TABLE disks (host STRING, used DOUBLE, PRIMARY KEY (host))")
            ok(server.post("/changes/disks", json=[{"host": "web1", "used": 0.95}]))
            full = subscribe(server, "SELECT host FROM disks WHERE used > 0.9")
            made = ok(server.post("/deliveries", json={"name": "pager", "to": f"http://{host}/x"}))
            ok(server.post("/changes/disks", json={"host": "web2", "used": 0.99}))
            wait(lambda: received)
        with running(tmp_path) as server:
            rows = [{"host": "web1", "used": 0.1}, {"host": "web2", "used": 0.1}]
            ok(server.post("/changes/disks?op=upsert", json=rows))
            wait(lambda: len(received) == 2)
            assert state(server)["delivered"] == 2 and state(server)["secret"] == "whsec_..."
            assert ok(server.delete("/deliveries/pager")) == {"removed": "pager"}
            assert ok(server.get("/deliveries")) == {"deliveries": []}
    for _, headers, body in received:
        assert verify(made["secret"], headers, body)
    first, second = (json.loads(body)["data"] for _, _, body in received)
    assert [(d["sign"], d["row"]) for d in first["deltas"]] == [(1, {"host": "web2"})]
    assert first["resolved"] == [] and second["resolved"] == [full]


def test_pause_dead_letters_and_redelivery(server):
    define(server, "CREATE STREAM hits")
    subscribe(server, "SELECT * FROM hits", subscriber="ann")
    with receiver(410) as (host, received):
        to = {"name": "pager", "to": f"http://{host}/x", "subscriber": "ann"}
        ok(server.post("/deliveries", json=to))
        assert ok(server.post("/deliveries/pager/pause"))["state"] == "paused"
        ok(server.post("/changes/hits", json={"n": 1}))
        wait(lambda: state(server)["waiting"] == 1)
        ok(server.post("/deliveries/pager/resume"))
        wait(lambda: state(server)["dead"] == 1)
        (dead,) = ok(server.get("/deliveries/pager/dead-letters"))["dead_letters"]
        assert dead["reason"] == "answered 410 Gone"
        assert dead["message"]["data"]["deltas"][0]["row"] == {"n": 1}
        assert (
            ok(server.post("/deliveries/pager/redeliver", json={"numbers": [dead["number"]]}))["count"] == 1
        )
        wait(lambda: len(received) == 2)
        assert ok(server.post("/deliveries/pager/redeliver"))["count"] == 0


@pytest.mark.parametrize(
    ("given", "status", "said"),
    [
        ({"name": "x", "to": "nowhere"}, 400, "no address"),
        ({"name": "x", "to": "http://h/", "digest": "5 parsecs"}, 400, "digest"),
        ({"name": "x y", "to": "http://h/"}, 400, "the body is not as it should be"),
        ({"name": "x", "to": "http://h/", "subscriptions": [7]}, 404, "no subscription 7"),
        ({"name": "x", "to": "http://h/", "colour": "red"}, 400, "colour"),
    ],
)
def test_what_is_wrong_is_a_problem(server, given, status, said):
    answer = server.post("/deliveries", json=given)
    assert answer.status_code == status and said in answer.json()["detail"]
    assert ok(server.get("/deliveries")) == {"deliveries": []}


def test_a_delivery_that_is_not_there(server):
    for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/pause"), ("GET", "/dead-letters")):
        assert server.request(method, f"/deliveries/x{path}").status_code == 404
