"""Webhooks: requests, their order, waits and limits by a made-up clock; then a real server, and Spark."""

import json
import threading
from collections import Counter, defaultdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.delivery.batches import WebhookSender, requests_of
from tocsin.delivery.http import HttpAnswer, HttpPoster
from tocsin.delivery.webhook_client import TokenBucket, WebhookSettings
from tocsin.errors import TocsinError
from tocsin.spark.sinks import QueryStart, as_sink, begin_sinks
from tocsin.spark.sinks.webhooks import Webhook, send

URL = "http://host/{subscriber}"


def delta(subscriber, seq, subscription=7):
    return {
        "seq": seq,
        "subscription": subscription,
        "subscriber": subscriber,
        "sign": 1,
        "row": f'{{"n":{seq}}}',
    }


class World:
    """A clock, chance, and subscribers that answer as planned: by subscriber, a list of answers, then 200."""

    def __init__(self, **planned):
        self.time, self.planned = 100.0, {name: list(answers) for name, answers in planned.items()}
        self.posts = []  # (time, url, key, seqs)

    def send(self, url, body, headers, timeout):
        self.time += 0.001
        message = json.loads(body)
        seqs = [d["seq"] for d in message["deltas"]]
        self.posts.append((self.time, url, headers["Idempotency-Key"], seqs))
        waiting = self.planned.get(message["subscriber"], [])
        return waiting.pop(0) if waiting else HttpAnswer(200)

    def sleep(self, seconds):
        assert seconds > 0
        self.time += seconds

    def sender(self, buckets=None, **settings):
        return WebhookSender(
            WebhookSettings(URL, **settings),
            self.send,
            buckets=buckets,
            now=lambda: self.time,
            today=lambda: self.time,
            sleep=self.sleep,
            chance=lambda: 1.0,
        )

    def deliver(self, deltas, size=1, **settings):
        return self.sender(**settings).deliver(requests_of(deltas, "q", 5, size))


def test_requests_have_the_keys_of_their_batch_and_carry_rows_as_they_are():
    deltas = [delta("ann", 1), delta(None, 1), delta("a/n é", 2), delta("ann", 3), delta("ann", 4)]
    requests = requests_of(deltas, "q", 5, 2)
    assert [request.key for request in requests] == [
        "q/5/ann/0",
        "q/5/ann/1",
        "q/5/subscription-7/0",
        "q/5/a%2Fn%20%C3%A9/0",
    ]
    assert requests == requests_of(deltas, "q", 5, 2)
    message = json.loads(requests[1].body)
    assert message == {
        "query": "q",
        "batch": 5,
        "subscriber": "ann",
        "part": 1,
        "deltas": [{"seq": 4, "subscription": 7, "sign": 1, "row": {"n": 4}}],
    }


def test_failures_are_tried_again_with_longer_waits_and_hold_up_nobody_else():
    world = World(ann=[HttpAnswer(503), HttpAnswer(0, "refused"), HttpAnswer(429)])
    assert world.deliver([delta("ann", 1), delta("ann", 2), delta("bob", 1)], first_wait=1.0) == []
    assert [(url[-3:], seqs) for _, url, _, seqs in world.posts] == [
        ("ann", [1]),
        ("bob", [1]),
        ("ann", [1]),
        ("ann", [1]),
        ("ann", [1]),
        ("ann", [2]),
    ]
    times = [time for time, url, _, seqs in world.posts if url.endswith("ann") and seqs == [1]]
    waits = [round(later - earlier) for earlier, later in pairwise(times)]
    assert waits == [1, 2, 4]
    assert len({key for _, url, key, seqs in world.posts if url.endswith("ann") and seqs == [1]}) == 1


def test_retry_after_is_honoured_up_to_the_longest_wait():
    later = HttpAnswer(503, retry_after="Thu, 01 Jan 1970 00:02:00 GMT")
    world = World(ann=[HttpAnswer(429, retry_after="7"), later, HttpAnswer(503, retry_after="9999")])
    assert world.deliver([delta("ann", 1)], longest_wait=60.0) == []
    times = [time for time, *_ in world.posts]
    assert times[1] - times[0] == pytest.approx(7, abs=0.01)
    assert times[2] == pytest.approx(120, abs=0.01)
    assert times[3] - times[2] == pytest.approx(60, abs=0.01)


def test_what_is_given_up_has_its_reason_and_so_has_what_is_behind_it():
    world = World(ann=[HttpAnswer(410, "Gone")], bob=[HttpAnswer(0, "refused")] * 3)
    lost = world.deliver([delta(name, seq) for name in ("ann", "bob", "cid") for seq in (1, 2)], tries=3)
    assert [(u.request.subscriber, u.request.part, u.reason) for u in lost] == [
        ("ann", 0, "answered 410 Gone"),
        ("ann", 1, "not sent: part 0 before it was not delivered"),
        ("bob", 0, "no answer: refused, after 3 tries"),
        ("bob", 1, "not sent: part 0 before it was not delivered"),
    ]
    assert [seqs for _, url, _, seqs in world.posts if url.endswith("cid")] == [[1], [2]]


def test_a_host_that_is_down_does_not_cost_every_subscriber_all_tries():
    names = [f"s{n:02}" for n in range(20)]
    world = World(**{name: [HttpAnswer(0, "down")] * 9 for name in names})
    lost = world.deliver([delta(name, 1) for name in names], tries=4)
    assert len(lost) == 20
    assert len(world.posts) < 2 * 20 + 3 * 4


def test_a_rate_holds_over_letters_and_batches():
    world, buckets = World(), {}
    for batch in range(2):
        sender = world.sender(buckets, rate=2.0, burst=2)
        sender.deliver(requests_of([delta(n, s) for n in ("ann", "bob") for s in range(3)], "q", batch, 1))
    for name in ("ann", "bob"):
        times = [time for time, url, *_ in world.posts if url.endswith(name)]
        assert len(times) == 6
        for i in range(len(times)):
            for j in range(i, len(times)):
                assert j - i + 1 <= 2 + 2.0 * (times[j] - times[i]) + 0.1
    assert world.time - 100 == pytest.approx(2.0, abs=0.1), "and no slower than agreed"


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9)), max_size=25),
    st.dictionaries(st.sampled_from("abc"), st.lists(st.sampled_from([0, 404, 429, 500]), max_size=6)),
    st.integers(1, 4),
    st.sampled_from([0.0, 1.5]),
)
def test_every_delta_is_delivered_or_kept_once_and_in_order(deltas, planned, size, rate):
    deltas_sent = [delta(name, seq) for seq, (name, _) in enumerate(deltas)]
    world = World(**{name: [HttpAnswer(status) for status in answers] for name, answers in planned.items()})
    accepted = defaultdict(list)
    send_first = world.send

    def send(url, body, headers, timeout):
        answer = send_first(url, body, headers, timeout)
        if answer.status == 200:
            accepted[json.loads(body)["subscriber"]] += world.posts[-1][3]
        return answer

    world.send = send
    lost = world.deliver(deltas_sent, size, tries=3, rate=rate)
    kept = defaultdict(list)
    for each in lost:
        kept[each.request.subscriber] += [d["seq"] for d in json.loads(each.request.body)["deltas"]]
        assert each.reason
    for name in "abc":
        expected = [d["seq"] for d in deltas_sent if d["subscriber"] == name]
        assert accepted[name] + kept[name] == expected


@given(st.lists(st.floats(0, 5), min_size=1, max_size=30), st.sampled_from([0.5, 3.0]), st.integers(1, 4))
def test_a_bucket_never_gives_more_than_burst_and_rate(pauses, rate, burst):
    bucket, now, given_at = TokenBucket(rate, burst), 0.0, []
    for pause in pauses:
        now += pause
        given_at.append(bucket.take(now))
    for i, early in enumerate(given_at):
        for count, late in enumerate(given_at[i:], start=1):
            assert count <= burst + rate * (late - early) + 1e-6


@pytest.mark.parametrize(
    ("url", "settings", "fact"),
    [
        ("ftp://host", {}, "is no address of a webhook"),
        ("https://{subscriber}.host/", {}, "depends on the subscriber"),
        ("https://ann:pw@host/", {}, "password"),
        (URL, {"tries": 0}, "tries of a webhook is 0"),
        (URL, {"rate": -1.0}, "rate of a webhook is -1.0"),
        (URL, {"rates": 1.0}, "has no such setting"),
    ],
)
def test_wrong_settings_are_refused(url, settings, fact):
    with pytest.raises(TocsinError, match=fact):
        Webhook(url, **settings)


def test_a_webhook_from_its_name_takes_no_dead_letters(tmp_path):
    sink = as_sink("webhook:https://host/{subscriber}?a=1")
    start = QueryStart(None, "name", tmp_path)
    (mine,) = begin_sinks([sink], start)
    assert mine.query == "name"
    assert mine.undelivered.startswith(str(tmp_path / "undelivered"))
    with pytest.raises(TocsinError, match="dead letters cannot go to a webhook"):
        begin_sinks([sink], start, dead_letters=True)


class Server:
    """A real server. Keys are remembered; `refusing` maps a path to the status of its next answers."""

    def __init__(self):
        self.bodies, self.keys, self.refusing = [], Counter(), {}
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status = outer.refusing.get(self.path, 200)
                if status == 200:
                    outer.keys[self.headers["Idempotency-Key"]] += 1
                    outer.bodies.append((self.path, self.headers["Authorization"], json.loads(body)))
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def close(self):
        self.http.shutdown()
        self.http.server_close()


@pytest.fixture
def server():
    running = Server()
    yield running
    running.close()


def test_a_real_server_by_several_senders(server):
    requests = requests_of([delta(f"s{n % 10}", n) for n in range(100)], "q", 1, 3)
    assert send(requests, WebhookSettings(server.url + "/{subscriber}", parallel=3)) == []
    for name in (f"s{n}" for n in range(10)):
        seqs = [d["seq"] for path, _, body in server.bodies if path == f"/{name}" for d in body["deltas"]]
        assert seqs == sorted(seqs)
        assert len(seqs) == 10
    assert set(server.keys.values()) == {1}


def test_no_answer_is_a_reason_and_a_connection_that_went_stale_is_none(server):
    poster = HttpPoster()
    assert poster(server.url, b"{}", {"Idempotency-Key": "a", "Content-Length": "2"}, 5.0).status == 200
    for connection in poster._open.values():
        connection.sock.close()
    assert poster(server.url + "/x?y=1", b"{}", {"Idempotency-Key": "b"}, 5.0).status == 200
    answer = poster("http://127.0.0.1:9/", b"{}", {}, 0.5)
    assert answer.status == 0
    assert "refused" in answer.reason.lower()
    poster.close()


@pytest.mark.spark
@pytest.mark.slow
def test_on_spark_a_replay_sends_the_same_keys_and_what_fails_is_kept(spark, server, tmp_path):
    columns = "batch bigint, seq bigint, subscription bigint, subscriber string, sign tinyint, row string"
    names = ["ann", "bob", None]
    rows = [(4, seq, 7, names[seq % 3], 1, f'{{"n":{seq}}}') for seq in range(30)]
    frame = spark.createDataFrame(rows, columns).repartition(3)
    sink = Webhook(
        server.url + "/{subscriber}",
        headers={"Authorization": "Bearer x"},
        undelivered=tmp_path / "kept",
        query="q",
        deltas_per_request=4,
    )
    server.refusing["/bob"] = 410
    for _ in range(2):
        sink(frame, 4)
    assert set(server.keys.values()) == {2}
    assert {key.split("/")[2] for key in server.keys} == {"ann", "subscription-7"}
    assert {authorization for _, authorization, _ in server.bodies} == {"Bearer x"}
    seqs = [d["seq"] for path, _, body in server.bodies if path == "/ann" for d in body["deltas"]]
    assert seqs == [*range(0, 30, 3)] * 2
    files = list((tmp_path / "kept" / "batch=4").iterdir())
    kept = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    assert [d["seq"] for request in kept for d in request["body"]["deltas"]] == [*range(1, 30, 3)]
    assert kept[0]["reason"] == "answered 410 Gone"
    server.refusing.clear()
    sink(frame, 4)
    assert not Path(tmp_path / "kept" / "batch=4").exists(), "delivered by the replay"
    assert server.keys["q/4/bob/0"] == 1
