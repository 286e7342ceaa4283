"""Quotas at work: rates as buckets that fill with time, and bounds that a request must not exceed.

A bucket holds two seconds of its rate. A request is admitted while there is something in it, and then pays
for all it had, so that a large batch is followed by a pause of its length.

>>> bucket = Bucket()
>>> bucket.wait(10.0, now=0.0), bucket.pay(35, 10.0, now=0.0), bucket.wait(10.0, now=0.0)
(0.0, None, 1.5)
"""

from __future__ import annotations

from time import monotonic

from tocsin.server.access import Quota
from tocsin.server.core import Core
from tocsin.server.problems import Problem

__all__ = ["Bucket", "TenantQuota"]

_SECONDS = 2.0  # that a bucket holds


class Bucket:
    """A rate; negative while it is in debt."""

    def __init__(self) -> None:
        self._level: float | None = None
        self._at = 0.0

    def wait(self, rate: float, now: float) -> float:
        """Seconds until something is in it."""
        most = _SECONDS * rate
        level = most if self._level is None else min(most, self._level + rate * (now - self._at))
        self._level, self._at = level, now
        return 0.0 if level > 0 else -level / rate

    def pay(self, count: float, rate: float, now: float) -> None:
        """Take so much out."""
        self.wait(rate, now)
        assert self._level is not None
        self._level -= count


class TenantQuota:
    """The quota of one tenant; `quota` is replaced when the file changes."""

    def __init__(self, quota: Quota) -> None:
        self.quota = quota
        self._changes, self._bytes = Bucket(), Bucket()

    def admit_body(self, size: int) -> None:
        """A body of so many bytes has come."""
        rate = self.quota.bytes_per_second
        if rate is not None:
            self._admit(self._bytes, rate, "bytes")
            self._bytes.pay(size, rate, monotonic())

    def admit_changes(self, core: Core) -> None:
        """A request has changes; `count_changes` says afterwards how many."""
        if (rate := self.quota.changes_per_second) is not None:
            self._admit(self._changes, rate, "changes")
        most, stored = self.quota.stored_bytes, core.stored_bytes
        if most is not None and stored >= most:
            raise _exceeded(f"{stored} bytes are stored; the quota is {most}", "remove rows or subscriptions")

    def count_changes(self, count: int) -> None:
        """So many changes were applied."""
        if (rate := self.quota.changes_per_second) is not None:
            self._changes.pay(count, rate, monotonic())

    def admit_subscriptions(self, core: Core, count: int) -> None:
        """A request registers so many subscriptions."""
        most, there = self.quota.subscriptions, core.subscription_count
        if most is not None and there + count > most:
            fact = f"{there} subscriptions and {count} more exceed the quota of {most}"
            raise _exceeded(fact, "remove some")
        cost = self.quota.cost_us
        if cost is not None and core.cost_us > cost:
            fact = f"the subscriptions cost {core.cost_us:.0f} µs per changed row; the quota is {cost:.0f}"
            raise _exceeded(fact, "GET /v1/subscriptions?sort=cost lists the dearest first")

    def admit_follower(self, followers: int) -> None:
        """Somebody wants to follow."""
        most = self.quota.followers
        if most is not None and followers >= most:
            raise _exceeded(f"there are {followers} followers; the quota is {most}", "close some")

    def _admit(self, bucket: Bucket, rate: float, what: str) -> None:
        if (seconds := bucket.wait(rate, monotonic())) > 0:
            wait = str(max(1, round(seconds + 0.5)))
            raise Problem(
                429, f"more than {rate:g} {what} per second", hint=f"send again in {wait} s", retry_after=wait
            )


def _exceeded(fact: str, hint: str) -> Problem:
    return Problem(403, fact, hint=hint)
