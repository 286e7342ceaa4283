"""Requests of a batch, by webhook: in order, rate-limited, retried in memory, and never dropped silently.

A *request* carries a part of a batch for one subscriber. A sender has the requests of some subscribers and
works by one clock: the subscriber that may be sent to first is next. So one subscriber's wait, for its rate
or after a failure, delays no other, and a subscriber's requests leave one after the other:

    ann   ●────●────●          ● a request     ─ waits for the rate
    bob   ●~~~●~~~~~~~●        ~ waits after a failure, longer each time

A request that is given up is *undelivered*, with the reason, and so are those behind it in the same batch,
which would arrive out of order. After very many failures in a row the sender stops retrying: the receiver is
down.
"""

from __future__ import annotations

import heapq
import json
import random
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

from tocsin.delivery.http import Send
from tocsin.delivery.webhook_client import UNAVAILABLE, TokenBucket, WebhookClient, WebhookSettings

__all__ = ["Undelivered", "WebhookRequest", "WebhookSender", "requests_of"]

DOWN = 3  # times `tries` failures in a row: the receiver is down, and requests are not retried


class WebhookRequest(NamedTuple):
    """One request; a replay of the batch repeats its key."""

    subscriber: str
    part: int
    key: str
    body: bytes


class Undelivered(NamedTuple):
    """A request that was given up, and why."""

    request: WebhookRequest
    reason: str


def requests_of(
    deltas: Iterable[Mapping[str, Any]], query: str, batch: int, size: int
) -> list[WebhookRequest]:
    """The requests of a batch, from deltas that are in order for each subscriber.

    Deltas of subscriptions without a subscriber go to `subscription-<id>`.

    >>> delta = {"seq": 3, "subscription": 7, "subscriber": "ann", "sign": 1, "row": '{"n":1}'}
    >>> request, _ = requests_of([delta] * 3, "q", 5, 2)
    >>> request.key, request.body[:60]
    ('q/5/ann/0', b'{"query":"q","batch":5,"subscriber":"ann","part":0,"deltas":')
    """
    parts: dict[str, list[list[Mapping[str, Any]]]] = {}
    for delta in deltas:
        subscriber = delta["subscriber"] or f"subscription-{delta['subscription']}"
        mine = parts.setdefault(subscriber, [[]])
        if len(mine[-1]) == size:
            mine.append([])
        mine[-1].append(delta)
    return [
        WebhookRequest(s, n, f"{query}/{batch}/{quote(s, safe='')}/{n}", _body(query, batch, s, n, part))
        for s, found in parts.items()
        for n, part in enumerate(found)
    ]


def _body(query: str, batch: int, subscriber: str, part: int, deltas: list[Mapping[str, Any]]) -> bytes:
    head = {"query": query, "batch": batch, "subscriber": subscriber, "part": part, "deltas": None}
    # a delta's row is JSON text already
    texts = ",".join(
        f'{{"seq":{d["seq"]},"subscription":{d["subscription"]},"sign":{d["sign"]},"row":{d["row"]}}}'
        for d in deltas
    )
    return json.dumps(head, separators=(",", ":")).removesuffix("null}").encode() + f"[{texts}]}}".encode()


class WebhookSender:
    """Sends the requests of some subscribers. `buckets` may outlive it: a rate holds across batches."""

    def __init__(
        self,
        settings: WebhookSettings,
        send: Send,
        *,
        buckets: dict[str, TokenBucket] | None = None,
        now: Callable[[], float] = time.monotonic,
        today: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.settings = settings
        self._client = WebhookClient(settings, send, today=today, chance=chance)
        self._buckets = {} if buckets is None else buckets
        self._now, self._sleep = now, sleep
        self._failures = 0  # requests in a row that nobody could answer

    def deliver(self, requests: Iterable[WebhookRequest]) -> list[Undelivered]:
        """Send all; returns those that could not be delivered."""
        waiting: dict[str, deque[WebhookRequest]] = {}
        for request in requests:
            waiting.setdefault(request.subscriber, deque()).append(request)
        undelivered: list[Undelivered] = []
        queue = [(self._next_slot(name), place, name, 1) for place, name in enumerate(waiting)]
        heapq.heapify(queue)
        while queue:
            due, place, name, tried = heapq.heappop(queue)
            if due > self._now():
                self._sleep(due - self._now())
            mine = waiting[name]
            answer = self._client.post(name, mine[0].key, mine[0].body)
            verdict = self._client.judge(answer, tried)
            self._failures = self._failures + 1 if answer.status in UNAVAILABLE else 0
            if verdict.delivered:
                mine.popleft()
                if mine:
                    heapq.heappush(queue, (self._next_slot(name), place, name, 1))
            elif verdict.wait is not None and self._failures < DOWN * self.settings.tries:
                later = self._now() + verdict.wait
                heapq.heappush(queue, (max(later, self._next_slot(name)), place, name, tried + 1))
            else:
                undelivered += _give_up(mine, verdict.reason)
        return undelivered

    def _next_slot(self, subscriber: str) -> float:
        bucket = self._buckets.setdefault(subscriber, TokenBucket(self.settings.rate, self.settings.burst))
        return bucket.take(self._now())


def _give_up(requests: deque[WebhookRequest], reason: str) -> list[Undelivered]:
    first = requests[0]
    behind = [
        Undelivered(request, f"not sent: part {first.part} before it was not delivered")
        for request in list(requests)[1:]
    ]
    return [Undelivered(first, reason), *behind]
