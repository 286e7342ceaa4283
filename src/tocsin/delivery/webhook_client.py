"""One try of a webhook and what follows from its answer: delivered, another try after a wait, or given up.

An answer 2xx is a delivery. 408, 425, 429, 5xx and no answer at all are retried, after a wait that doubles
each time and has a random part (so that many senders do not come back at once), or after `Retry-After`. Any
other answer is final. Requests carry `Idempotency-Key` and the headers of the Standard Webhooks scheme, which
are the same in each try but for its time.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import NamedTuple
from urllib.parse import quote, urlsplit

from tocsin.delivery.http import HttpAnswer, Send
from tocsin.delivery.signing import check_secret, message_id, signed
from tocsin.errors import TocsinError

__all__ = ["UNAVAILABLE", "TokenBucket", "Verdict", "WebhookClient", "WebhookSettings", "back_off"]

UNAVAILABLE = frozenset([0, 500, 502, 503, 504])  # 0 is no answer
RETRIED = UNAVAILABLE | {408, 425, 429}


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
    secret: str = ""  # signs requests; several with spaces between, while secrets are exchanged

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
        for secret in self.secrets:
            check_secret(secret)

    @property
    def secrets(self) -> list[str]:
        return self.secret.split()

    def address(self, subscriber: str) -> str:
        """The URL of a subscriber.

        >>> WebhookSettings("https://host/hooks/{subscriber}").address("ann/7")
        'https://host/hooks/ann%2F7'
        """
        return self.url.replace("{subscriber}", quote(subscriber, safe=""))


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


class Verdict(NamedTuple):
    """What follows from a try: delivered, or another one after `wait` seconds; neither: it is given up."""

    delivered: bool
    reason: str = ""
    wait: float | None = None


class WebhookClient:
    """Posts messages to the address of a webhook and judges the answers. It keeps no state."""

    def __init__(
        self,
        settings: WebhookSettings,
        send: Send,
        *,
        today: Callable[[], float] = time.time,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.settings, self._send, self._today, self._chance = settings, send, today, chance

    def post(self, subscriber: str, key: str, body: bytes, id: str | None = None) -> HttpAnswer:
        """One try. The message is known by its key, and by an id that is made of it unless it is given."""
        settings = self.settings
        headers: Mapping[str, str] = {
            "Content-Type": "application/json",
            "Idempotency-Key": key,
            **signed(settings.secrets, id or message_id(key), int(self._today()), body),
            **settings.headers,
        }
        return self._send(settings.address(subscriber), body, headers, settings.timeout)

    def judge(self, answer: HttpAnswer, tried: int) -> Verdict:
        """What follows from the answer to try number `tried`, counted from 1."""
        if 200 <= answer.status < 300:
            return Verdict(True)
        if answer.status in RETRIED and tried < self.settings.tries:
            return Verdict(False, describe(answer, tried), self._wait(answer, tried))
        return Verdict(False, describe(answer, tried))

    def _wait(self, answer: HttpAnswer, tried: int) -> float:
        wanted = _seconds(answer.retry_after, self._today())
        if wanted is not None:
            return min(wanted, self.settings.longest_wait)
        return back_off(tried, self.settings.first_wait, self.settings.longest_wait, self._chance)


def back_off(tried: int, first: float, longest: float, chance: Callable[[], float]) -> float:
    """The seconds to wait after try number `tried`: doubled each time, half of it by chance."""
    most = min(first * 2.0 ** min(tried - 1, 60), longest)
    return most / 2 + most / 2 * chance()


def describe(answer: HttpAnswer, tried: int) -> str:
    """An answer that is no delivery, as a reason."""
    what = (
        f"answered {answer.status} {answer.reason}".strip()
        if answer.status
        else f"no answer: {answer.reason}"
    )
    return what if tried == 1 else f"{what}, after {tried} tries"


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
