"""Targets against real receivers: an HTTP server, apprise's JSON service, librdkafka's mock brokers."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tocsin.delivery.signing import BadSignature, message_id, new_secret, verify
from tocsin.delivery.targets import KafkaTarget, Outgoing, Retries, target_of
from tocsin.errors import TocsinError


@contextmanager
def receiver(*statuses):
    """An HTTP server that answers as planned, then 200; yields its address and what it received."""
    planned, received = list(statuses), []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            received.append((self.path, dict(self.headers), body))
            self.send_response(planned.pop(0) if planned else 200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"127.0.0.1:{server.server_port}", received
    finally:
        server.shutdown()
        server.server_close()


def outgoing(number=1):
    return Outgoing(message_id("d", number), "ann", b'{"n": %d}' % number, "title", "+ row")


def test_a_webhook_is_signed_and_a_retry_has_the_same_id():
    old, new = new_secret(), new_secret()
    with receiver(503) as (host, received):
        target = target_of(f"http://{host}/hooks/{{subscriber}}", Retries(first_wait=0.0), f"{new} {old}")
        first, second = target.send(outgoing(), 1), target.send(outgoing(), 2)
        target.close()
    assert (first.delivered, first.wait, second.delivered) == (False, 0.0, True)
    assert first.reason == "answered 503 Service Unavailable"
    (path, headers, body), (_, again, _) = received
    assert path == "/hooks/ann"
    for secret in (old, new):
        assert verify(secret, headers, body) == again["webhook-id"] == outgoing().id
    with pytest.raises(BadSignature):
        verify(new_secret(), headers, body)
    with pytest.raises(BadSignature):
        verify(old, headers, body + b" ")
    with pytest.raises(BadSignature):
        verify(old, headers, body, now=2e9)
    with pytest.raises(BadSignature):
        verify(old, {}, body)


def test_what_is_final_is_not_tried_again():
    with receiver(410, 500) as (host, _):
        target = target_of(f"http://{host}/", Retries(tries=1))
        assert target.send(outgoing(), 1).wait is None
        assert target.send(outgoing(), 1).wait is None


def test_chat_goes_through_apprise():
    pytest.importorskip("apprise")
    with receiver(200, 500) as (host, received):
        target = target_of(f"json://{host}/alerts", Retries(first_wait=1.0))
        assert target.send(outgoing(), 1).delivered
        failed = target.send(outgoing(), 1)
    assert not failed.delivered and failed.wait is not None and "500" in failed.reason
    message = json.loads(received[0][2])
    assert (message["title"], message["message"]) == ("title", "+ row")


def test_a_topic_receives_records():
    kafka = pytest.importorskip("confluent_kafka")
    # librdkafka brings brokers of its own: they live as long as this producer
    brokers = kafka.Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "ignored", "logger": None})
    host = next(iter(brokers.list_topics(timeout=10).brokers.values()))
    target = target_of(f"kafka://{host.host}:{host.port}/alerts", Retries(timeout=10.0))
    assert isinstance(target, KafkaTarget)
    assert target.send(outgoing(7), 1).delivered
    target.close()
    reader = kafka.Consumer(
        {"bootstrap.servers": f"{host.host}:{host.port}", "group.id": "g", "auto.offset.reset": "earliest"}
    )
    reader.subscribe(["alerts"])
    record = reader.poll(20)
    assert (record.key(), record.value(), dict(record.headers())) == (
        b"ann",
        b'{"n": 7}',
        {"webhook-id": outgoing(7).id.encode()},
    )
    reader.close()


def test_a_topic_that_nobody_serves_is_tried_again():
    pytest.importorskip("confluent_kafka")
    target = target_of("kafka://127.0.0.1:1/alerts", Retries(tries=2, timeout=0.5))
    first, last = target.send(outgoing(), 1), target.send(outgoing(), 2)
    assert not first.delivered and first.wait is not None
    assert not last.delivered and last.wait is None and last.reason.endswith("after 2 tries")


@pytest.mark.parametrize(
    ("to", "said"),
    [
        ("nonsense", "no address"),
        ("ftp://host/x", "no address"),
        ("http://user:secret@host/", "password"),
        ("http://{subscriber}.host/", "depends on the subscriber"),
        ("kafka://host", "no topic"),
        ("mailto://", "no address"),
    ],
)
def test_bad_addresses_are_rejected_without_their_secrets(to, said):
    pytest.importorskip("apprise")
    with pytest.raises(TocsinError, match=said) as caught:
        target_of(to)
    assert "secret" not in str(caught.value)


def test_a_bad_secret_is_rejected():
    for secret in ("abc", "whsec_", "whsec_!!!", "whsec_c2hvcnQ="):
        with pytest.raises(TocsinError, match="no secret"):
            target_of("http://host/", secret=secret)
