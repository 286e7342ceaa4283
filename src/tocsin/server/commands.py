"""Commands: everything that changes an engine, as plain values that the log stores and replays.

A command names all that it decides (ids, times), so that replaying it has the same effect. Tables of a bulk
are bytes in Arrow's stream format.

>>> decode(encode(Remove([3, 4])))
Remove(ids=[3, 4])
"""

from __future__ import annotations

import io
from typing import Any, Literal, TypeAlias

import msgspec
import pyarrow as pa

__all__ = [
    "ApplyChanges",
    "BulkSubscribe",
    "Command",
    "Define",
    "Pause",
    "Refresh",
    "Remove",
    "Replace",
    "ResumeSubscriptions",
    "Subscribe",
    "Tick",
    "arrow_bytes",
    "arrow_table",
    "decode",
    "encode",
]

Form: TypeAlias = Literal["object", "lines", "arrow"]
BulkForm: TypeAlias = Literal["texts", "template", "predicates"]


class _Command(msgspec.Struct, tag_field="do", omit_defaults=True):
    """The base of all."""


class Define(_Command, tag="define"):
    """CREATE and DROP statements."""

    text: str


class Subscribe(_Command, tag="subscribe"):
    """One query; times are in ISO form."""

    id: int
    sql: str
    subscriber: str | None = None
    valid_from: str | None = None
    valid_to: str | None = None
    backfill: bool = False


class Replace(Subscribe, tag="replace"):
    """Another query (or the same, with other times) under the id of a subscription."""


class BulkSubscribe(_Command, tag="bulk"):
    """Many queries: a table of texts, of parameters of a template, or of predicates on a relation."""

    form: BulkForm
    of: str
    table: bytes
    backfill: bool = False


class Remove(_Command, tag="remove"):
    """Unregister subscriptions."""

    ids: list[int]


class Pause(_Command, tag="pause"):
    """Subscriptions rest: they stay known and receive nothing."""

    ids: list[int]


class ResumeSubscriptions(_Command, tag="resume"):
    """Paused subscriptions go on, with the answer as it is then."""

    ids: list[int]


class ApplyChanges(_Command, tag="change"):
    """Events of a stream or changes of a table; `op` is that of rows without `_op`.

    With `skip`, bad rows are left out; otherwise one bad row rejects all.
    """

    relation: str
    form: Form
    body: bytes
    op: str | None = None
    skip: bool = False


class Refresh(_Command, tag="refresh"):
    """Deferred answers brought up to date, as somebody read them."""

    ids: list[int]


class Tick(_Command, tag="tick"):
    """What was due by the clock."""


Command: TypeAlias = (
    Define
    | Subscribe
    | Replace
    | BulkSubscribe
    | Remove
    | Pause
    | ResumeSubscriptions
    | ApplyChanges
    | Refresh
    | Tick
)

_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Command)


def encode(command: Command) -> bytes:
    """A command as the log stores it."""
    return _ENCODER.encode(command)


def decode(data: bytes) -> Command:
    """A command of the log."""
    return _DECODER.decode(data)


def arrow_bytes(table: Any) -> bytes:
    """A table in Arrow's stream format."""
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def arrow_table(data: bytes) -> Any:
    """The table of a stream."""
    return pa.ipc.open_stream(pa.py_buffer(data)).read_all()
