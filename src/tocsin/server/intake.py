"""Bodies of requests as commands: JSON, NDJSON, Arrow, CloudEvents.

    application/json                        one object, or an array of objects
    application/x-ndjson                    one object per line
    application/vnd.apache.arrow.stream     columns
    application/cloudevents+json            one event; its `data` is the row
    application/cloudevents-batch+json      several
    any, with ce-* headers                  a CloudEvent in binary mode: the body is its data

>>> change_of("hits", b'[{"n": 1}, {"n": 2}]', "application/json", {}).body
b'{"n": 1}\\n{"n": 2}'
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import msgspec
import pyarrow as pa

from tocsin.errors import ChangeError, TocsinError
from tocsin.server.commands import ApplyChanges, BulkSubscribe, arrow_bytes, arrow_table
from tocsin.server.problems import MALFORMED, Problem

__all__ = ["ARROW", "BULK_TYPES", "CHANGE_TYPES", "bulk_of", "change_of", "digest_of", "event_key"]

JSON, NDJSON, ARROW = "application/json", "application/x-ndjson", "application/vnd.apache.arrow.stream"
EVENT, EVENTS = "application/cloudevents+json", "application/cloudevents-batch+json"
CHANGE_TYPES = (JSON, NDJSON, ARROW, EVENT, EVENTS)
BULK_TYPES = (JSON, NDJSON, ARROW)
_ALIASES = {"application/jsonl": NDJSON, "application/ndjson": NDJSON, "text/json": JSON, "": JSON}
_RAW_LIST = msgspec.json.Decoder(list[msgspec.Raw])


class CloudEvent(msgspec.Struct):
    """What is read of a CloudEvent."""

    specversion: str
    id: str
    source: str
    type: str
    data: msgspec.Raw = msgspec.Raw(b"")


_EVENT = msgspec.json.Decoder(CloudEvent)
_EVENTS = msgspec.json.Decoder(list[CloudEvent])


def change_of(
    relation: str, body: bytes, content_type: str, headers: Mapping[str, str], *, op: str | None = None,
    skip: bool = False,
) -> ApplyChanges:  # fmt: skip
    """The changes in a body."""
    kind = _kind(content_type, CHANGE_TYPES)
    try:
        if kind == ARROW:
            return ApplyChanges(relation, "arrow", checked_arrow(body), op, skip)
        if kind == EVENT:
            return ApplyChanges(relation, "object", _data(_EVENT.decode(body)), op, skip)
        if kind == EVENTS:
            return ApplyChanges(relation, "lines", b"\n".join(map(_data, _EVENTS.decode(body))), op, skip)
        text = body.strip(b" \t\r\n")
        if not text:
            raise ChangeError("the body is empty", hint="send a JSON object, or several")
        if kind == NDJSON:
            return ApplyChanges(relation, "lines", body, op, skip)
        if text[:1] == b"[":
            rows = _RAW_LIST.decode(text)
            return ApplyChanges(relation, "lines", b"\n".join(_line(bytes(row)) for row in rows), op, skip)
        if b"\n" in text:
            msgspec.json.decode(text, type=msgspec.Raw)
        return ApplyChanges(relation, "object", _line(text), op, skip)
    except MALFORMED as error:
        raise ChangeError(f"the body is malformed: {error}", hint=_hint(kind)) from None


def event_key(body: bytes, content_type: str, headers: Mapping[str, str]) -> str | None:
    """The identity of a single CloudEvent, its source and id: sent again, it is the same event."""
    if "ce-id" in headers:
        return f"ce {headers.get('ce-source', '')} {headers['ce-id']}"
    if content_type.partition(";")[0].strip().lower() != EVENT:
        return None
    try:
        found = _EVENT.decode(body)
    except MALFORMED:
        return None
    return f"ce {found.source} {found.id}"


def bulk_of(body: bytes, content_type: str, form: Any, of: str, backfill: bool) -> BulkSubscribe:
    """Many subscriptions: the rows of a body as an Arrow table."""
    kind = _kind(content_type, BULK_TYPES)
    if kind == ARROW:
        return BulkSubscribe(form, of, checked_arrow(body), backfill)
    try:
        if kind == NDJSON:
            rows = [msgspec.json.decode(line) for line in body.splitlines() if line.strip()]
        else:
            rows = msgspec.json.decode(body, type=list[Any])
        return BulkSubscribe(form, of, arrow_bytes(rows_table(rows)), backfill)
    except MALFORMED as error:
        raise TocsinError(f"the body is malformed: {error}", hint=_hint(kind)) from None


def rows_table(rows: list[Any]) -> Any:
    """JSON objects as an Arrow table; a key that a row lacks is NULL."""
    wrong = next((n for n, row in enumerate(rows) if not isinstance(row, dict)), None)
    if wrong is not None:
        raise TocsinError(f"row {wrong} is not an object", hint="one JSON object for each subscription")
    names = dict.fromkeys(name for row in rows for name in row)
    try:
        return pa.table({name: pa.array([row.get(name) for row in rows]) for name in names})
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        raise TocsinError(f"the rows are not columns: {error}", hint="a column has one type") from None


def digest_of(path: str, body: bytes) -> bytes:
    """What an Idempotency-Key stands for."""
    return blake2b(body, digest_size=16, key=path.encode()[:64]).digest()


def checked_arrow(body: bytes) -> bytes:
    """The bytes, if they are a well-formed stream."""
    try:
        arrow_table(body).validate(full=True)
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        raise TocsinError(
            f"the body is not an Arrow stream: {str(error).splitlines()[0][:200]}",
            hint="write it with pyarrow.ipc.new_stream",
        ) from None
    return body


def _kind(content_type: str, known: tuple[str, ...]) -> str:
    kind = content_type.partition(";")[0].strip().lower()
    kind = _ALIASES.get(kind, kind)
    if kind not in known:
        raise Problem(415, f"the content type {kind!r} is not known here", hint=f"send {', '.join(known)}")
    return kind


def _data(event: CloudEvent) -> bytes:
    if event.specversion != "1.0":
        raise ChangeError(f"CloudEvents {event.specversion} are not known", hint="specversion is 1.0")
    if not event.data:
        raise ChangeError("the event has no data", hint="data is a JSON object; data_base64 is not read")
    return _line(bytes(event.data))


def _line(row: bytes) -> bytes:
    """A JSON text in one line: inside a JSON text, line breaks are only between tokens."""
    return row.replace(b"\n", b" ").replace(b"\r", b" ") if b"\n" in row or b"\r" in row else row


def _hint(kind: str) -> str:
    return {
        JSON: "application/json is one object or one array; several lines are application/x-ndjson",
        NDJSON: "one JSON object per line",
    }.get(kind, f"{kind} is JSON with specversion, id, source, type and data")
