"""Deltas to subscribers over HTTP: in order, rate-limited, retried, and never dropped silently.

A *request* carries a part of a batch for one subscriber. A sender has the requests of some subscribers and
works by one clock: the subscriber that may be sent to first is next. So one subscriber's wait, for its rate
or after a failure, delays no other, and a subscriber's requests leave one after the other:

    ann   ●────●────●          ● a request     ─ waits for the rate
    bob   ●~~~●~~~~~~~●        ~ waits after a failure, longer each time

An answer 2xx is a delivery. 408, 425, 429, 5xx and no answer at all are retried, after a wait that doubles
each time and has a random part (so that many senders do not come back at once), or after `Retry-After`. Any
other answer is final. A request that is given up is *undelivered*, with the reason, and so are those behind
it in the same batch, which would arrive out of order. After very many failures in a row the sender stops
retrying: the receiver is down.

No Spark here; time, randomness and the HTTP client are passed in.
"""

from __future__ import annotations

import heapq
import http.client
import json
import random
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

from tocsin.errors import TocsinError

__all__ = [
    "HttpAnswer", "HttpPoster", "TokenBucket", "Undelivered", "WebhookRequest", "WebhookSender",
    "WebhookSettings", "requests_of",
]  # fmt: skip

UNAVAILABLE = frozenset([0, 500, 502, 503, 504])  # 0 is no answer
RETRIED = UNAVAILABLE | {408, 425, 429}
DOWN = 3  # times `tries` failures in a row: the receiver is down, and requests are not retried


@dataclass(frozen=True)
class WebhookSettings:
    """How requests are sent. Times are in seconds."""

    url: str  # may contain {subscriber}
    headers: Mapping[str, str] = field(default_factory=dict)
    deltas_per_request: int = 500
    tries: int = 5
    first_wait: float = 0.5  # doubled with each retry
    longest_wait: float = 60.0  # also bounds Retry-After
    timeout: float = 10.0
    rate: float = 0.0  # requests per second and subscriber; 0 for no limit
    burst: int = 1  # requests that may leave at once after a pause
    parallel: int = 4  # senders in a task

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise TocsinError(f"{self.url!r} is no address of a webhook", hint="as https://host/{subscriber}")
        if "@" in parts.netloc:
            raise TocsinError("the address of a webhook has a password in it", hint="put it into a header")
        if "{subscriber}" in parts.netloc:
            raise TocsinError(
                f"the host of {self.url!r} depends on the subscriber", hint="put it in the path"
            )
        for name in (
            "deltas_per_request",
            "tries",
            "burst",
            "parallel",
            "first_wait",
            "longest_wait",
            "timeout",
            "rate",
        ):
            value, whole = getattr(self, name), isinstance(getattr(WebhookSettings, name), int)
            if not isinstance(value, int if whole else int | float) or value < (1 if whole else 0):
                hint = "a whole number from 1" if whole else "a number from 0"
                raise TocsinError(f"{name} of a webhook is {value!r}", hint=hint)

    def address(self, subscriber: str) -> str:
        """The URL of a subscriber.

        >>> WebhookSettings("https://host/hooks/{subscriber}").address("ann/7")
        'https://host/hooks/ann%2F7'
        """
        return self.url.replace("{subscriber}", quote(subscriber, safe=""))


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


class HttpAnswer(NamedTuple):
    """A status, 0 for none, with the reason; and the header `Retry-After`."""

    status: int
    reason: str = ""
    retry_after: str | None = None


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


class TokenBucket:
    """A token bucket: `rate` requests per second, up to `burst` at once.

    >>> bucket = TokenBucket(rate=2.0, burst=1)
    >>> bucket.take(10.0), bucket.take(10.0), bucket.take(12.0)
    (10.0, 10.5, 12.0)
    """

    def __init__(self, rate: float, burst: int) -> None:
        self.rate, self.burst = rate, burst
        self._free = float("-inf")  # when the bucket was, or will be, empty and one token came back

    def take(self, now: float) -> float:
        """Take a token; returns when it may be used: now, or later."""
        if self.rate <= 0:
            return now
        self._free = max(self._free, now - self.burst / self.rate) + 1 / self.rate
        return max(now, self._free)


Send = Callable[[str, bytes, Mapping[str, str], float], HttpAnswer]


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
        self.settings, self._send = settings, send
        self._buckets = {} if buckets is None else buckets
        self._now, self._today, self._sleep, self._chance = now, today, sleep, chance
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
            answer = self._post(mine[0])
            self._failures = self._failures + 1 if answer.status in UNAVAILABLE else 0
            if 200 <= answer.status < 300:
                mine.popleft()
                if mine:
                    heapq.heappush(queue, (self._next_slot(name), place, name, 1))
            elif self._should_retry(answer, tried):
                later = self._now() + self._wait(answer, tried)
                heapq.heappush(queue, (max(later, self._next_slot(name)), place, name, tried + 1))
            else:
                undelivered += _give_up(mine, answer, tried)
        return undelivered

    def _next_slot(self, subscriber: str) -> float:
        bucket = self._buckets.setdefault(subscriber, TokenBucket(self.settings.rate, self.settings.burst))
        return bucket.take(self._now())

    def _post(self, request: WebhookRequest) -> HttpAnswer:
        headers = {
            "Content-Type": "application/json",
            "Idempotency-Key": request.key,
            **self.settings.headers,
        }
        return self._send(
            self.settings.address(request.subscriber), request.body, headers, self.settings.timeout
        )

    def _should_retry(self, answer: HttpAnswer, tried: int) -> bool:
        is_down = self._failures >= DOWN * self.settings.tries
        return tried < self.settings.tries and not is_down and answer.status in RETRIED

    def _wait(self, answer: HttpAnswer, tried: int) -> float:
        wanted = _seconds(answer.retry_after, self._today())
        if wanted is not None:
            return min(wanted, self.settings.longest_wait)
        most = min(self.settings.first_wait * 2 ** (tried - 1), self.settings.longest_wait)
        return most / 2 + most / 2 * self._chance()


def _seconds(text: str | None, today: float) -> float | None:
    """The seconds to wait by `Retry-After`, which is a number or a date.

    >>> _seconds("7", 0.0), _seconds("Thu, 01 Jan 1970 00:01:00 GMT", 50.0), _seconds("soon", 0.0)
    (7.0, 10.0, None)
    """
    if text is None:
        return None
    if text.strip().isdigit():
        return float(text)
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - today)
    except (TypeError, ValueError):
        return None


def _give_up(requests: deque[WebhookRequest], answer: HttpAnswer, tried: int) -> list[Undelivered]:
    result = (
        f"answered {answer.status} {answer.reason}".strip()
        if answer.status
        else f"no answer: {answer.reason}"
    )
    first = requests[0]
    reason = result if tried == 1 else f"{result}, after {tried} tries"
    behind = [
        Undelivered(request, f"not sent: part {first.part} before it was not delivered")
        for request in list(requests)[1:]
    ]
    return [Undelivered(first, reason), *behind]


class HttpPoster:
    """POSTs over persistent connections, one per host. Does not follow redirects."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, str], http.client.HTTPConnection] = {}

    def __call__(self, url: str, body: bytes, headers: Mapping[str, str], timeout: float) -> HttpAnswer:
        parts = urlsplit(url)
        place = (parts.scheme, parts.netloc)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        reused = place in self._open
        try:
            return self._post(place, target, body, headers, timeout)
        except (OSError, http.client.HTTPException) as error:
            self._close(place)
            if not reused or isinstance(error, TimeoutError):
                return HttpAnswer(0, f"{type(error).__name__}: {error}")
        try:  # the receiver may have closed an idle connection, which is no failure
            return self._post(place, target, body, headers, timeout)
        except (OSError, http.client.HTTPException) as error:
            self._close(place)
            return HttpAnswer(0, f"{type(error).__name__}: {error}")

    def close(self) -> None:
        for place in list(self._open):
            self._close(place)

    def _post(
        self, place: tuple[str, str], target: str, body: bytes, headers: Mapping[str, str], timeout: float
    ) -> HttpAnswer:
        if place not in self._open:
            kind = http.client.HTTPSConnection if place[0] == "https" else http.client.HTTPConnection
            self._open[place] = kind(place[1], timeout=timeout)
        connection = self._open[place]
        connection.request("POST", target, body, dict(headers))
        response = connection.getresponse()
        response.read()
        return HttpAnswer(response.status, response.reason, response.headers.get("Retry-After"))

    def _close(self, place: tuple[str, str]) -> None:
        connection = self._open.pop(place, None)
        if connection is not None:
            connection.close()
