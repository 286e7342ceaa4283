"""Where messages go, by address: a webhook, a topic of Kafka, or e-mail and chat through apprise.

    https://host/hooks/{subscriber}     POST, signed                              WebhookTarget
    kafka://broker:9092/topic           a record, acknowledged by all replicas    KafkaTarget
    mailto://user:pass@host, slack://token/#channel, ...                          AppriseTarget

A target tries once and says what follows (`Verdict`); who has the messages keeps the retries. The packages
behind the last two come with the extra `notify` and are imported at first use.

>>> message = Outgoing("msg_1", "ann", b"{}", "Tocsin: alerts", "+ {}")
>>> target_of("http://127.0.0.1:1/", Retries(tries=3, first_wait=2.0)).send(message, 1).delivered
False
>>> target_of("nonsense")
Traceback (most recent call last):
...
tocsin.errors.TocsinError: 'nonsense' is no address to deliver to
hint: https://host/hook, kafka://broker:9092/topic, or an address of apprise (mailto://..., slack://...)
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlsplit

import msgspec

from tocsin.delivery.http import HttpPoster
from tocsin.delivery.webhook_client import Verdict, WebhookClient, WebhookSettings, back_off
from tocsin.errors import TocsinError

__all__ = ["Outgoing", "Retries", "Target", "has_lanes", "target_of"]

_HINT = "https://host/hook, kafka://broker:9092/topic, or an address of apprise (mailto://..., slack://...)"


class Retries(msgspec.Struct, frozen=True, omit_defaults=True):
    """How often a message is tried, and how long to wait between. Times are in seconds."""

    tries: int = 12
    first_wait: float = 1.0  # doubled with each retry
    longest_wait: float = 3600.0
    timeout: float = 10.0


class Outgoing(NamedTuple):
    """A message: its id, the same in every retry; whose it is; as JSON; and as people read it."""

    id: str
    lane: str
    body: bytes
    title: str
    text: str


class Target(Protocol):
    """Something that messages are sent to."""

    def send(self, message: Outgoing, tried: int) -> Verdict:
        """Try once; `tried` is the number of this try, from 1."""

    def close(self) -> None:
        """Drop connections."""


def has_lanes(to: str) -> bool:
    """Whether subscribers have their own addresses: they do not wait for each other then."""
    return "{subscriber}" in to


def target_of(to: str, retries: Retries | None = None, secret: str = "") -> Target:
    """The target of an address."""
    retries = retries or Retries()
    scheme = to.partition("://")[0].lower() if "://" in to else ""
    if scheme in ("http", "https"):
        return WebhookTarget(to, retries, secret)
    if not scheme:
        raise TocsinError(f"{to[:60]!r} is no address to deliver to", hint=_HINT)
    if scheme == "kafka":
        return KafkaTarget(to, retries)
    return AppriseTarget(to, retries)


class WebhookTarget:
    """POST by the client that Spark's sink uses, too."""

    def __init__(self, to: str, retries: Retries, secret: str = "") -> None:
        settings = WebhookSettings(
            to,
            tries=retries.tries,
            first_wait=retries.first_wait,
            longest_wait=retries.longest_wait,
            timeout=retries.timeout,
            secret=secret,
        )
        self._poster = HttpPoster()
        self._client = WebhookClient(settings, self._poster)

    def send(self, message: Outgoing, tried: int) -> Verdict:
        answer = self._client.post(message.lane, message.id, message.body, message.id)
        return self._client.judge(answer, tried)

    def close(self) -> None:
        self._poster.close()


class AppriseTarget:
    """E-mail and chat; apprise knows about a hundred services by the scheme of their address."""

    def __init__(self, to: str, retries: Retries) -> None:
        self._retries = retries
        self._apprise = _import("apprise")
        self._notifier = self._apprise.Apprise()
        if not self._notifier.add(to):
            raise TocsinError(f"{_without_secrets(to)!r} is no address to deliver to", hint=_HINT)

    def send(self, message: Outgoing, tried: int) -> Verdict:
        with self._apprise.LogCapture(level=self._apprise.logging.WARNING) as log:
            done = self._notifier.notify(title=message.title, body=message.text)
            lines = log.getvalue().strip().splitlines()
        reason = lines[-1].split(" - ")[-1] if lines else "the service did not accept it"
        return Verdict(True) if done else _again(reason, tried, self._retries)

    def close(self) -> None:
        self._notifier.clear()


class KafkaTarget:
    """A record per message, with its lane as key and its id as header `webhook-id`."""

    def __init__(self, to: str, retries: Retries, **settings: Any) -> None:
        parts = urlsplit(to)
        self._topic, self._retries = parts.path.strip("/"), retries
        if not parts.netloc or "@" in parts.netloc or not self._topic or "/" in self._topic:
            raise TocsinError(f"{_without_secrets(to)!r} is no topic", hint="kafka://broker:9092/topic")
        milliseconds = int(1000 * retries.timeout)
        self._producer = _import("confluent_kafka").Producer({
            "bootstrap.servers": parts.netloc,
            "acks": "all",
            "enable.idempotence": True,
            "message.timeout.ms": milliseconds,
            "socket.timeout.ms": max(milliseconds, 1000),
            "logger": None,
            **settings,
        })  # fmt: skip

    def send(self, message: Outgoing, tried: int) -> Verdict:
        failed: list[str] = ["no broker acknowledged it"]

        def acknowledged(error: Any, _: Any) -> None:
            failed[:] = [] if error is None else [str(error)]

        try:
            self._producer.produce(
                self._topic,
                message.body,
                key=message.lane.encode() or None,
                headers={"webhook-id": message.id},
                on_delivery=acknowledged,
            )
            self._producer.flush(self._retries.timeout + 1)
        except Exception as error:  # noqa: BLE001 - KafkaException and BufferError: tried again
            failed = [str(error)]
        return _again(failed[0], tried, self._retries) if failed else Verdict(True)

    def close(self) -> None:
        with suppress(Exception):
            self._producer.flush(1)


def _again(reason: str, tried: int, retries: Retries, chance: Callable[[], float] = random.random) -> Verdict:
    """Another try, if there is one left."""
    if tried < retries.tries:
        return Verdict(False, reason, back_off(tried, retries.first_wait, retries.longest_wait, chance))
    return Verdict(False, reason if tried == 1 else f"{reason}, after {tried} tries")


def _import(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise TocsinError(f"{name} is not installed", hint="pip install 'tocsin[notify]'") from None


def _without_secrets(to: str) -> str:
    """An address without what may be a password.

    >>> _without_secrets("mailto://ann:secret@host/?x=1")
    'mailto://...@host'
    """
    parts = urlsplit(to)
    host = parts.netloc.rpartition("@")
    return f"{parts.scheme}://" + ("...@" if host[1] else "") + host[2]
