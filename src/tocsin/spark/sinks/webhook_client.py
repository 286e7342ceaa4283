"""Deltas to subscribers by HTTP: in order, no faster than agreed, tried again, never dropped in silence.

A *letter* is a part of a batch for one subscriber. A courier has the letters of some subscribers and works
by one clock: whoever may be written to first is next. So one subscriber's wait, for its rate or after a
failure, is no other's, and a subscriber's letters leave one after the other:

    ann   ●────●────●          ● a letter      ─ waits for the rate
    bob   ●~~~●~~~~~~~●        ~ waits after a failure, longer each time

An answer 2xx is a delivery. 408, 425, 429, 5xx and no answer at all are tried again, later each time, and by
chance (so that many couriers do not come back at once), or when `Retry-After` says. Any other answer is
final. A letter that was given up is *undelivered*, with the reason, and so are those behind it in the same
batch: they would arrive out of order. When very many requests on end found nobody able to answer, the others
are not tried for long either.

Nothing of Spark here; time, chance and the sending are given.
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

__all__ = ["Answer", "Bucket", "Courier", "Letter", "Poster", "Terms", "Undelivered", "letters_of"]

UNABLE = frozenset([0, 500, 502, 503, 504])  # 0 is no answer
AGAIN = UNABLE | {408, 425, 429}
DOWN = 3  # times `tries` failures on end: nobody is there, and it is not worth trying for long


@dataclass(frozen=True)
class Terms:
    """How letters are sent. Times are in seconds."""

    url: str  # may contain {subscriber}
    headers: Mapping[str, str] = field(default_factory=dict)
    deltas_per_letter: int = 500
    tries: int = 5
    first_wait: float = 0.5  # doubled with each try
    longest_wait: float = 60.0  # also of what Retry-After asks for
    timeout: float = 10.0
    rate: float = 0.0  # letters per second and subscriber; 0 for no limit
    burst: int = 1  # letters that may leave at once after a rest
    parallel: int = 4  # couriers in a task

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
            "deltas_per_letter",
            "tries",
            "burst",
            "parallel",
            "first_wait",
            "longest_wait",
            "timeout",
            "rate",
        ):
            value, whole = getattr(self, name), isinstance(getattr(Terms, name), int)
            if not isinstance(value, int if whole else int | float) or value < (1 if whole else 0):
                hint = "a whole number from 1" if whole else "a number from 0"
                raise TocsinError(f"{name} of a webhook is {value!r}", hint=hint)

    def address(self, subscriber: str) -> str:
        """Where a subscriber is written to.

        >>> Terms("https://host/hooks/{subscriber}").address("ann/7")
        'https://host/hooks/ann%2F7'
        """
        return self.url.replace("{subscriber}", quote(subscriber, safe=""))


class Letter(NamedTuple):
    """One request: its key is the same whenever the batch is run again."""

    subscriber: str
    part: int
    key: str
    body: bytes


class Undelivered(NamedTuple):
    letter: Letter
    reason: str


class Answer(NamedTuple):
    """A status, 0 for none, with the reason; and what `Retry-After` said."""

    status: int
    reason: str = ""
    retry_after: str | None = None


def letters_of(deltas: Iterable[Mapping[str, Any]], query: str, batch: int, size: int) -> list[Letter]:
    """The letters of a batch, from deltas that are in order for each subscriber.

    Deltas of subscriptions without a subscriber go to `subscription-<id>`.

    >>> delta = {"seq": 3, "subscription": 7, "subscriber": "ann", "sign": 1, "row": '{"n":1}'}
    >>> letter, _ = letters_of([delta] * 3, "q", 5, 2)
    >>> letter.key, letter.body[:60]
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
        Letter(s, n, f"{query}/{batch}/{quote(s, safe='')}/{n}", _body(query, batch, s, n, part))
        for s, found in parts.items()
        for n, part in enumerate(found)
    ]


def _body(query: str, batch: int, subscriber: str, part: int, deltas: list[Mapping[str, Any]]) -> bytes:
    head = {"query": query, "batch": batch, "subscriber": subscriber, "part": part, "deltas": None}
    # a delta's row is JSON text already, and goes in as it is
    told = ",".join(
        f'{{"seq":{d["seq"]},"subscription":{d["subscription"]},"sign":{d["sign"]},"row":{d["row"]}}}'
        for d in deltas
    )
    return json.dumps(head, separators=(",", ":")).removesuffix("null}").encode() + f"[{told}]}}".encode()


class Bucket:
    """A token bucket: `rate` letters per second, up to `burst` at once.

    >>> bucket = Bucket(rate=2.0, burst=1)
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


Send = Callable[[str, bytes, Mapping[str, str], float], Answer]


class Courier:
    """Sends the letters of some subscribers. `buckets` may outlive it: a rate holds over batches."""

    def __init__(
        self,
        terms: Terms,
        send: Send,
        *,
        buckets: dict[str, Bucket] | None = None,
        now: Callable[[], float] = time.monotonic,
        today: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.terms, self._send = terms, send
        self._buckets = {} if buckets is None else buckets
        self._now, self._today, self._sleep, self._chance = now, today, sleep, chance
        self._failed = 0  # requests on end that nobody could answer

    def deliver(self, letters: Iterable[Letter]) -> list[Undelivered]:
        """Send all; returns what could not be delivered."""
        waiting: dict[str, deque[Letter]] = {}
        for letter in letters:
            waiting.setdefault(letter.subscriber, deque()).append(letter)
        undelivered: list[Undelivered] = []
        agenda = [(self._turn(name), place, name, 1) for place, name in enumerate(waiting)]
        heapq.heapify(agenda)
        while agenda:
            due, place, name, tried = heapq.heappop(agenda)
            if due > self._now():
                self._sleep(due - self._now())
            mine = waiting[name]
            answer = self._post(mine[0])
            self._failed = self._failed + 1 if answer.status in UNABLE else 0
            if 200 <= answer.status < 300:
                mine.popleft()
                if mine:
                    heapq.heappush(agenda, (self._turn(name), place, name, 1))
            elif self._is_worth_another(answer, tried):
                later = self._now() + self._wait(answer, tried)
                heapq.heappush(agenda, (max(later, self._turn(name)), place, name, tried + 1))
            else:
                undelivered += _given_up(mine, answer, tried)
        return undelivered

    def _turn(self, subscriber: str) -> float:
        bucket = self._buckets.setdefault(subscriber, Bucket(self.terms.rate, self.terms.burst))
        return bucket.take(self._now())

    def _post(self, letter: Letter) -> Answer:
        headers = {
            "Content-Type": "application/json",
            "Idempotency-Key": letter.key,
            **self.terms.headers,
        }
        return self._send(self.terms.address(letter.subscriber), letter.body, headers, self.terms.timeout)

    def _is_worth_another(self, answer: Answer, tried: int) -> bool:
        is_down = self._failed >= DOWN * self.terms.tries
        return tried < self.terms.tries and not is_down and answer.status in AGAIN

    def _wait(self, answer: Answer, tried: int) -> float:
        asked = _seconds(answer.retry_after, self._today())
        if asked is not None:
            return min(asked, self.terms.longest_wait)
        most = min(self.terms.first_wait * 2 ** (tried - 1), self.terms.longest_wait)
        return most / 2 + most / 2 * self._chance()


def _seconds(text: str | None, today: float) -> float | None:
    """What `Retry-After` says, a number of seconds or a date.

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


def _given_up(letters: deque[Letter], answer: Answer, tried: int) -> list[Undelivered]:
    said = (
        f"answered {answer.status} {answer.reason}".strip()
        if answer.status
        else f"no answer: {answer.reason}"
    )
    first = letters[0]
    reason = said if tried == 1 else f"{said}, after {tried} tries"
    behind = [
        Undelivered(letter, f"not sent: part {first.part} before it was not delivered")
        for letter in list(letters)[1:]
    ]
    return [Undelivered(first, reason), *behind]


class Poster:
    """POSTs over connections that are kept open, one per host. Redirects are not followed."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, str], http.client.HTTPConnection] = {}

    def __call__(self, url: str, body: bytes, headers: Mapping[str, str], timeout: float) -> Answer:
        parts = urlsplit(url)
        place = (parts.scheme, parts.netloc)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        reused = place in self._open
        try:
            return self._post(place, target, body, headers, timeout)
        except (OSError, http.client.HTTPException) as error:
            self._close(place)
            if not reused or isinstance(error, TimeoutError):
                return Answer(0, f"{type(error).__name__}: {error}")
        try:  # the host may have closed a connection that was idle: that is no failure of its own
            return self._post(place, target, body, headers, timeout)
        except (OSError, http.client.HTTPException) as error:
            self._close(place)
            return Answer(0, f"{type(error).__name__}: {error}")

    def close(self) -> None:
        for place in list(self._open):
            self._close(place)

    def _post(
        self, place: tuple[str, str], target: str, body: bytes, headers: Mapping[str, str], timeout: float
    ) -> Answer:
        if place not in self._open:
            kind = http.client.HTTPSConnection if place[0] == "https" else http.client.HTTPConnection
            self._open[place] = kind(place[1], timeout=timeout)
        connection = self._open[place]
        connection.request("POST", target, body, dict(headers))
        response = connection.getresponse()
        response.read()
        return Answer(response.status, response.reason, response.headers.get("Retry-After"))

    def _close(self, place: tuple[str, str]) -> None:
        connection = self._open.pop(place, None)
        if connection is not None:
            connection.close()
