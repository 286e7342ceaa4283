"""Deliveries over a real log to a real receiver: order, retries, dead letters, restarts, kills."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.delivery.test_targets import receiver
from tests.server.deliveries.worker import block, commit
from tocsin.delivery.signing import new_secret, verify
from tocsin.errors import TocsinError
from tocsin.server.deliveries.definitions import DeliveryRule
from tocsin.server.deliveries.outbox import Outbox
from tocsin.server.deliveries.planner import Planner
from tocsin.server.deliveries.service import Deliveries
from tocsin.server.log import Log


class Place:
    """A log with deliveries in a folder, and its next position."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.open()

    def open(self) -> None:
        self.log = Log(self.folder / "log.sqlite")
        self.deliveries = Deliveries(self.log, self.folder, lambda id: id < 100)

    def add(self, to, *, counts=None, **options):
        self.deliveries.keep_blocks()
        delivery = DeliveryRule(
            **{"name": "d", "to": to, "first_wait": 0.01, "longest_wait": 0.02, **options}
        )
        self.deliveries.add(delivery, counts or {}, self.log.position)

    def change(self, *changes):
        commit(self.log, block(self.log.position + 1, *changes))
        self.deliveries.wake()

    def wait(self, predicate, seconds=30.0, name="d"):
        until = time.monotonic() + seconds
        while not predicate():
            assert time.monotonic() < until, self.deliveries.shown(name)
            time.sleep(0.01)

    def close(self):
        self.deliveries.close()
        self.log.close()


@pytest.fixture
def place(tmp_path):
    made = Place(tmp_path)
    yield made
    made.close()


def settled(place):
    shown = place.deliveries.shown("d")
    return shown["delivered"] + shown["dead"]


def data_of(received):
    return [json.loads(body)["data"] for _, _, body in received]


def test_deltas_arrive_signed_in_order_and_say_what_is_resolved(place):
    secret = new_secret()
    with receiver(500, 429) as (host, received):
        place.add(f"http://{host}/x", secret=secret, counts={7: 1})
        place.change((7, 1, '{"n":1}'), (8, 1, '{"n":1}'))
        place.change((7, -1, '{"n":0}'), (7, -1, '{"n":1}'))
        place.wait(lambda: place.deliveries.shown("d")["delivered"] == 2)
    ids = [verify(secret, headers, body) for _, headers, body in received]
    assert ids[0] == ids[1] == ids[2] != ids[3] and len(ids) == 4
    first, second = data_of(received)[2:]
    assert [(d["seq"], d["subscription"], d["sign"], d["row"]) for d in first["deltas"]] == [
        (1, 7, 1, {"n": 1}),
        (1, 8, 1, {"n": 1}),
    ]
    assert (first["delivery"], first["token"], first["resolved"]) == ("d", f"{place.log.epoch}-1", [])
    assert second["resolved"] == [7]
    shown = place.deliveries.shown("d")
    assert (shown["state"], shown["waiting"], shown["dead"], shown["last_error"]) == ("active", 0, 0, None)
    assert shown["secret"] == "whsec_..."


def test_only_what_is_wanted_is_delivered(place):
    with receiver() as (host, received):
        place.change((7, 1, '{"n":0}'))  # before the delivery
        place.add(f"http://{host}/{{subscriber}}", subscriptions=[7])
        place.change((8, 1, '{"n":1}'))
        place.change((7, 1, '{"n":2}'), (8, 1, '{"n":2}'))
        place.wait(lambda: received)
        time.sleep(0.1)
    (data,) = data_of(received)
    assert received[0][0] == "/ann" and data["subscriber"] == "ann"
    assert [d["row"] for d in data["deltas"]] == [{"n": 2}]


def test_what_is_given_up_is_a_dead_letter_until_it_is_delivered_again(place):
    with receiver(410, 200, 500, 500) as (host, received):
        place.add(f"http://{host}/", tries=2)
        for n in range(3):
            place.change((7, 1, f'{{"n":{n}}}'))
            place.wait(
                lambda n=n: place.deliveries.shown("d")["delivered"] + place.deliveries.shown("d")["dead"] > n
            )
        gone, other = place.deliveries.dead_letters("d", 0, 10)
        assert (gone["reason"], other["reason"]) == (
            "answered 410 Gone",
            "answered 500 Internal Server Error, after 2 tries",
        )
        assert place.deliveries.dead_letters("d", gone["number"], 10)[0]["id"] == other["id"]
        assert place.deliveries.redeliver("d", [other["number"], 12345]) == 1
        place.wait(lambda: place.deliveries.shown("d")["dead"] == 1)
        assert place.deliveries.redeliver("d") == 1
        place.wait(lambda: place.deliveries.shown("d")["delivered"] == 3)
    assert received[-1][1]["webhook-id"] == gone["id"] == received[0][1]["webhook-id"]


def test_it_goes_on_after_a_restart(place):
    with receiver(*[503] * 3) as (host, received):
        place.add(f"http://{host}/", first_wait=0.2, longest_wait=0.2, counts={7: 1})
        place.change((7, 1, '{"n":1}'))
        place.wait(lambda: received)
        place.close()
        before = len(received)
        place.log = Log(place.folder / "log.sqlite")
        commit(place.log, block(2, (7, -1, '{"n":1}'), (7, -1, '{"n":0}')))  # while nobody delivers
        place.log.close()
        place.open()
        place.wait(lambda: place.deliveries.shown("d")["delivered"] == 2)
    assert before < 4 and len(received) == 5
    assert data_of(received)[-1]["resolved"] == [7]


def test_a_digest_survives_a_restart(place):
    with receiver() as (host, received):
        place.add(f"http://{host}/", digest="700 ms")
        place.change((7, 1, '{"n":1}'))
        place.wait(lambda: place.deliveries._outbox.position == 1)
        place.close()
        place.open()
        place.change((7, 1, '{"n":2}'))
        place.wait(lambda: received)
    (data,) = data_of(received)
    assert [d["row"]["n"] for d in data["deltas"]] == [1, 2]


def test_repeats_are_suppressed(place):
    with receiver() as (host, received):
        place.add(f"http://{host}/", suppress="400 ms", by=["host"])
        place.change((7, 1, '{"host":"a","v":1}'))
        place.change((7, -1, '{"host":"a","v":1}'), (7, 1, '{"host":"a","v":2}'))
        place.change((107, 1, '{"host":"a","v":1}'))
        place.change((107, 1, '{"host":"a","v":2}'))  # of a stream: dropped
        place.wait(lambda: sum(len(d["deltas"]) for d in data_of(received)) == 4)
        time.sleep(0.5)
    found = [
        (d["subscription"], d["sign"], d["row"]["v"]) for data in data_of(received) for d in data["deltas"]
    ]
    assert found == [(7, 1, 1), (107, 1, 1), (7, -1, 1), (7, 1, 2)]


def test_one_that_waits_delays_no_other_subscriber(place):
    with receiver(*[503] * 8) as (host, received):
        place.add(f"http://{host}/{{subscriber}}", first_wait=30.0, longest_wait=30.0)
        place.change((7, 1, '{"n":1}'))
        place.wait(lambda: len(received) == 1)
        place.add(f"http://{host}/fast", name="e", first_wait=0.01)
        place.change((8, 1, '{"n":2}'))
        place.wait(lambda: place.deliveries.shown("e")["delivered"] == 1)
        assert place.deliveries.shown("d")["waiting"] == 2
        assert place.deliveries.shown("d")["state"] == "retrying"


def test_a_paused_delivery_keeps_its_messages(place):
    with receiver() as (host, received):
        place.add(f"http://{host}/")
        place.deliveries.pause("d", True)
        place.change((7, 1, '{"n":1}'))
        place.wait(lambda: place.deliveries.shown("d")["waiting"] == 1)
        assert place.deliveries.shown("d")["state"] == "paused" and not received
        place.close()
        place.open()
        place.deliveries.pause("d", False)
        place.wait(lambda: received)


def test_the_log_keeps_blocks_only_while_there_are_deliveries(place):
    with receiver() as (host, _):
        place.add(f"http://{host}/")
        assert place.log._writer.execute("SELECT count(*) FROM cursors").fetchone() == (1,)
        place.deliveries.remove("d")
        assert place.log._writer.execute("SELECT count(*) FROM cursors").fetchone() == (0,)
        assert place.deliveries.names() == []
    with pytest.raises(TocsinError, match="no delivery 'd'"):
        place.deliveries.shown("d")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"digest": "5"}, "digest"),
        ({"suppress": "soon"}, "suppress"),
        ({"by": ["host"]}, "by tells repeats apart"),
        ({"subscriptions": [1], "subscriber": "ann"}, "two ways"),
        ({"secret": "abc"}, "no secret"),
        ({"to": "nowhere"}, "no address"),
    ],
)
def test_bad_definitions_change_nothing(place, options, said):
    with pytest.raises(TocsinError, match=said):
        place.add(**{"to": "http://127.0.0.1:1/", **options})
    assert place.deliveries.names() == []


def test_nothing_is_lost_or_doubled_when_the_process_is_killed(tmp_path):
    """Random kills; the receiver deduplicates by id, and fails one request in five."""
    draw, kills = random.Random(5), int(os.environ.get("TOCSIN_KILLS", "6"))
    commands = 60 * (kills + 1)
    statuses = [500 if draw.random() < 0.2 else 200 for _ in range(20 * commands)]
    with receiver(*statuses) as (host, received):
        command = [
            sys.executable,
            "-m",
            "tests.server.deliveries.worker",
            str(tmp_path),
            f"http://{host}/",
            str(commands),
        ]
        for _ in range(kills):
            worker = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            assert worker.stdout is not None and worker.stdout.readline() == "ready\n"
            time.sleep(draw.uniform(0.0, 0.3))
            os.kill(worker.pid, signal.SIGKILL)
            worker.wait()
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        answers = dict(zip(range(len(received)), statuses, strict=False))
    by_id: dict[str, list[tuple[int, int, int]]] = {}
    for number, (_, headers, body) in enumerate(received):
        deltas = [(d["seq"], d["sign"], d["row"]["n"]) for d in json.loads(body)["data"]["deltas"]]
        assert by_id.setdefault(headers["webhook-id"], deltas) == deltas, "an id with another content"
        assert answers[number] in (200, 500)
    found = [delta for deltas in by_id.values() for delta in deltas]
    assert found == [(n, 1 if n % 2 else -1, (n + 1) // 2) for n in range(1, commands + 1)]


def test_a_block_that_is_committed_while_none_are_found_is_planned_next(place):
    """The planner is at the end of the log as it was before it looked for blocks."""
    with receiver() as (host, _):
        place.add(f"http://{host}/")
        place.deliveries.close()
        late = Late(place.log)
        outbox = Outbox(place.folder / "deliveries.sqlite")
        planner = Planner(late, outbox, lambda id: True)
        planner.step(time.time())
        assert (planner.position, place.log.position) == (0, 1)
        assert planner.step(time.time()) == [("d", "")]
        outbox.close()


def test_a_new_delivery_has_what_others_were_planned_already(place):
    """Its contents are read before it is added, and the planner goes on in between."""
    with receiver() as (host, received):
        place.add(f"http://{host}/first", name="first")
        place.deliveries.keep_blocks()
        start = place.log.position
        place.change((7, 1, '{"n":1}'))
        place.wait(lambda: place.deliveries.shown("first")["delivered"] == 1, name="first")
        place.deliveries.add(DeliveryRule("d", f"http://{host}/d"), {}, start)
        place.wait(lambda: place.deliveries.shown("d")["delivered"] == 1)
        place.change((7, 1, '{"n":2}'))
        place.wait(lambda: place.deliveries.shown("d")["delivered"] == 2)
    assert [row["n"] for row in rows_to(received, "/d")] == [1, 2]


def test_a_kill_before_anything_was_planned_loses_nothing(place):
    with receiver() as (host, received):
        place.add(f"http://{host}/")
        place.deliveries.close()  # as if it were killed
        commit(place.log, block(1, (7, 1, '{"n":1}')))
        place.log.close()
        place.open()
        place.wait(lambda: place.deliveries.shown("d")["delivered"] == 1)
    assert [row["n"] for row in rows_to(received, "/")] == [1]


def test_a_delivery_that_is_defined_again_repeats_no_id(place):
    with receiver() as (host, received):
        for n in range(6):
            if n in (0, 2, 4):
                if n == 4:
                    place.deliveries.remove("d")
                place.add(f"http://{host}/")
            place.change((7, 1, f'{{"n":{n}}}'))
            place.wait(lambda n=n: len(received) > n)
    assert len({headers["webhook-id"] for _, headers, _ in received}) == 6


def test_the_last_other_delivery_is_removed_while_one_is_added(place):
    with receiver() as (host, received):
        place.add(f"http://{host}/", name="other")
        place.deliveries.keep_blocks()
        place.deliveries.remove("other")
        place.deliveries.add(DeliveryRule("d", f"http://{host}/"), {}, place.log.position)
        place.change((7, 1, '{"n":1}'))
        place.wait(lambda: received)


def rows_to(received, path):
    return [d["row"] for to, _, body in received if to == path for d in json.loads(body)["data"]["deltas"]]


def test_a_digest_survives_a_disk_that_was_full_for_a_moment(place, monkeypatch):
    with receiver() as (host, _):
        place.add(f"http://{host}/", digest="1 hour")
        place.deliveries.close()
        outbox = Outbox(place.folder / "deliveries.sqlite")
        planner, now = Planner(place.log, outbox, lambda id: True), time.time()
        commit(place.log, block(1, (7, 1, '{"n":1}')))
        planner.step(now)
        commit(place.log, block(2, (7, 1, '{"n":2}')))
        with monkeypatch.context() as full:
            full.setattr(outbox, "plan", lambda *_: 1 / 0)
            for _ in range(2):
                with pytest.raises(ZeroDivisionError):
                    planner.step(now + 3700)
        assert planner.step(now + 3700) == [("d", "")]
        body = json.loads(outbox.first("d", "").message.body)
        assert [delta["row"] for delta in body["data"]["deltas"]] == [{"n": 1}, {"n": 2}]
        outbox.close()


class Late:
    """A log to which the first block is added when it is found to have none."""

    def __init__(self, log: Log) -> None:
        self.epoch, self._log = log.epoch, log

    @property
    def position(self):
        return self._log.position

    def blocks(self, after, limit=256):
        found = self._log.blocks(after, limit)
        if not found:
            commit(self._log, block(1, (7, 1, '{"n":1}')))
        return found
