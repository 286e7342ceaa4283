"""The two ends of a pipeline in a config: where changes come from, and where deltas go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tocsin.commands.config_values import ConfigError, decimal, format_of, number, text, texts

__all__ = ["SinkConfig", "SourceConfig", "read_sink", "read_source"]

_SOURCE = {
    "json": ("path", "files_per_batch"),
    "parquet": ("path", "files_per_batch"),
    "kafka": ("servers", "topic", "seq", "max_offsets_per_trigger", "options"),
    "rate": ("rows_per_batch", "table", "row"),
}
_WHOLE = ("deltas_per_request", "tries", "burst", "parallel")
_DECIMAL = ("first_wait", "longest_wait", "timeout", "rate")
_SINK = {
    "parquet": ("path",),
    "json": ("path",),
    "console": (),
    "kafka": ("servers", "topic", "options"),
    "webhook": ("url", "headers", "undelivered", *_WHOLE, *_DECIMAL),
}


@dataclass(frozen=True)
class SourceConfig:
    """Where changes come from. At most so many files, offsets or rows are taken into one batch."""

    format: str
    path: Path | None = None
    files_per_batch: int = 1
    rows_per_batch: int = 100
    table: str = ""
    row: str = ""
    servers: str = ""
    topic: str = ""
    seq: str = "value"
    max_offsets_per_trigger: int | None = None
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class SinkConfig:
    """Where deltas or dead letters go."""

    format: str
    path: Path | None = None
    servers: str = ""
    topic: str = ""
    url: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)  # Kafka's, or the terms of a webhook

    def __str__(self) -> str:
        if self.format == "kafka":
            return f"kafka:{self.topic}@{self.servers}"
        if self.format == "webhook":
            return f"webhook:{self.url}"
        return self.format if self.path is None else f"{self.format}:{self.path}"


def read_source(said: Mapping[str, Any], folder: Path) -> SourceConfig:
    """The section [source]."""
    form, where = format_of(said, "source", _SOURCE), "source"
    if form == "rate":
        rows = number(said, "rows_per_batch", where, 100)
        return SourceConfig(form, None, 1, rows, text(said, "table", where), text(said, "row", where))
    if form == "kafka":
        seq = text(said, "seq", where, "value")
        if seq not in ("value", "offset"):
            raise ConfigError(
                f"seq in [{where}] is {seq!r}", hint='"value", or "offset" for a topic of one partition'
            )
        return SourceConfig(
            form,
            servers=text(said, "servers", where),
            topic=text(said, "topic", where),
            seq=seq,
            max_offsets_per_trigger=number(said, "max_offsets_per_trigger", where, None),
            options=texts(said, "options", where),
        )
    return SourceConfig(form, folder / text(said, "path", where), number(said, "files_per_batch", where, 1))


def read_sink(said: Mapping[str, Any], where: str, folder: Path, *, dead: bool = False) -> SinkConfig:
    """A section [sink], or [dead_letters]."""
    formats = {form: keys for form, keys in _SINK.items() if not dead or form != "webhook"}
    form = format_of(said, where, formats)
    if form == "console":
        return SinkConfig(form)
    if form == "kafka":
        return SinkConfig(
            form,
            servers=text(said, "servers", where),
            topic=text(said, "topic", where),
            options=texts(said, "options", where),
        )
    if form == "webhook":
        terms: dict[str, Any] = {key: number(said, key, where) for key in _WHOLE if key in said}
        terms |= {key: decimal(said, key, where) for key in _DECIMAL if key in said}
        if "undelivered" in said:
            terms["undelivered"] = folder / text(said, "undelivered", where)
        return SinkConfig(
            form, url=text(said, "url", where), options={**terms, "headers": texts(said, "headers", where)}
        )
    return SinkConfig(form, folder / text(said, "path", where))
