"""What a delivery is, and its messages: JSON for programs, a few lines of text for people.

{"type": "tocsin.deltas", "timestamp": "2024-05-01T10:00:00+00:00",
 "data": {"delivery": "pager", "subscriber": "ann", "token": "a1b2c3d4-17",
          "deltas": [{"seq": 5, "subscription": 7, "sign": 1, "row": {...}}], "resolved": [9]}}
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from tocsin.delivery.repeats import SendTiming, TimedDelta
from tocsin.delivery.signing import message_id
from tocsin.delivery.targets import Outgoing, Retries, has_lanes
from tocsin.errors import TocsinError
from tocsin.language.spans import BadAmount, read_span

__all__ = ["DeliveryRule", "messages_of"]

MOST_IN_MESSAGE = 500  # deltas
MOST_LINES = 20  # of a text
Span = Annotated[str, Meta(max_length=40, description="A time span, as `5 minutes`.")]


class DeliveryRule(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, frozen=True):
    """Where the deltas of some subscriptions, of a subscriber, or of all (neither) are sent, and when."""

    name: Annotated[str, Meta(min_length=1, max_length=100, pattern=r"^[\w.-]+$")]
    to: Annotated[str, Meta(min_length=1, max_length=2000)]
    subscriptions: Annotated[list[int], Meta(min_length=1, max_length=100_000)] | None = None
    subscriber: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
    secret: Annotated[str, Meta(max_length=1000)] = ""
    digest: Span | None = None
    suppress: Span | None = None
    by: Annotated[list[str], Meta(max_length=100)] | None = None
    resolved: bool = True
    tries: Annotated[int, Meta(ge=1, le=100)] = 12
    first_wait: Annotated[float, Meta(ge=0.0, le=3600.0)] = 1.0
    longest_wait: Annotated[float, Meta(ge=0.0, le=86400.0)] = 3600.0
    timeout: Annotated[float, Meta(gt=0.0, le=60.0)] = 10.0

    def timing(self) -> SendTiming:
        """When things are sent; an error if a time span is none."""
        if self.subscriptions is not None and self.subscriber is not None:
            hint = "give one of them, or none for all"
            raise TocsinError("subscriptions and subscriber are two ways to choose", hint=hint)
        if self.by is not None and self.suppress is None:
            raise TocsinError("by tells repeats apart", hint="give suppress, too: '10 minutes'")
        by = None if self.by is None else tuple(self.by)
        return SendTiming(
            _seconds("digest", self.digest), _seconds("suppress", self.suppress), by, self.resolved
        )

    def retries(self) -> Retries:
        """How often a message is tried."""
        return Retries(self.tries, self.first_wait, self.longest_wait, self.timeout)

    def lane(self, change: TimedDelta) -> str:
        """Messages of one lane leave one after the other; lanes do not wait for each other."""
        if not has_lanes(self.to):
            return ""
        return change.subscriber or f"subscription-{change.subscription}"

    def shown(self) -> dict[str, Any]:
        """As it is listed: without secrets."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        found["secret"] = "whsec_..." if self.secret else ""
        head, at, host = self.to.rpartition("@")
        found["to"] = f"{head.partition('://')[0]}://...@{host}" if at else self.to
        return found


def _seconds(name: str, text: str | None) -> float:
    if text is None:
        return 0.0
    try:
        return read_span(text).total_seconds()
    except BadAmount as error:
        raise TocsinError(f"{name}: {error.fact}", hint=error.hint or "write 5 minutes") from None


def messages_of(
    delivery: DeliveryRule,
    changes: Sequence[TimedDelta],
    resolved: Iterable[int],
    token: str,
    made: int,
    dropped: int = 0,
) -> list[Outgoing]:
    """The messages of deltas that leave together, lane by lane; `made` counts those made before."""
    lanes: dict[str, list[TimedDelta]] = {}
    for change in changes:
        lanes.setdefault(delivery.lane(change), []).append(change)
    over = set(resolved)
    out: list[Outgoing] = []
    for lane, mine in lanes.items():
        for start in range(0, len(mine), MOST_IN_MESSAGE):
            some = mine[start : start + MOST_IN_MESSAGE]
            is_last = start + len(some) == len(mine)
            ended = sorted(over & {c.subscription for c in mine}) if is_last else []
            id = message_id(delivery.name, token, made + len(out))  # not of an earlier one of this name
            body = _body(delivery, lane, some, ended, token, dropped)
            out.append(Outgoing(id, lane, body, *_text(delivery, some, ended)))
    return out


def _body(
    delivery: DeliveryRule,
    lane: str,
    changes: Sequence[TimedDelta],
    resolved: list[int],
    token: str,
    dropped: int,
) -> bytes:
    at = datetime.fromtimestamp(max(change.at for change in changes), UTC).isoformat()
    data: dict[str, Any] = {"delivery": delivery.name, "token": token, "resolved": resolved}
    if lane:
        data["subscriber"] = lane
    if dropped:
        data["suppressed"] = dropped
    head = json.dumps({"type": "tocsin.deltas", "timestamp": at, "data": {**data, "deltas": None}})
    deltas = b",".join(
        b'{"seq":%d,"subscription":%d,"sign":%d,"row":%b%b}'
        % (c.seq, c.subscription, c.sign, c.row, _whose(c.subscriber))
        for c in changes
    )
    return head.removesuffix("null}}").encode() + b"[" + deltas + b"]}}"


def _whose(subscriber: str | None) -> bytes:
    return b"" if subscriber is None else b',"subscriber":%b' % json.dumps(subscriber).encode()


def _text(delivery: DeliveryRule, changes: Sequence[TimedDelta], resolved: list[int]) -> tuple[str, str]:
    """A title and some lines."""
    ids = sorted({change.subscription for change in changes})
    shown = ", ".join(map(str, ids[:5])) + (", ..." if len(ids) > 5 else "")
    title = f"{delivery.name}: subscription{'s' * (len(ids) > 1)} {shown}"
    lines = [f"{'+' if c.sign > 0 else '-'} {_line(c.row)}" for c in changes[:MOST_LINES]]
    if len(changes) > MOST_LINES:
        lines.append(f"... and {len(changes) - MOST_LINES} more")
    lines += [f"resolved: subscription {id} has no rows any more" for id in resolved]
    if resolved == ids:
        title += " resolved"
    return title, "\n".join(lines)


def _line(row: bytes) -> str:
    values: dict[str, Any] = msgspec.json.decode(row)
    return ", ".join(f"{name}: {'NULL' if value is None else value}" for name, value in values.items())
