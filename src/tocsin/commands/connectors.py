"""Sources and sinks of a pipeline in a config: where changes come from, and where deltas go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tocsin.commands.config_values import ConfigError, decimal, number, read_format, text, texts

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
    """Where changes come from, and how many files, offsets or rows a batch reads at most."""

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
    options: Mapping[str, Any] = field(default_factory=dict)  # of Kafka, or of a webhook

    def __str__(self) -> str:
        if self.format == "kafka":
            return f"kafka:{self.topic}@{self.servers}"
        if self.format == "webhook":
            return f"webhook:{self.url}"
        return self.format if self.path is None else f"{self.format}:{self.path}"


def read_source(values: Mapping[str, Any], folder: Path) -> SourceConfig:
    """The section [source]."""
    form, where = read_format(values, "source", _SOURCE), "source"
    if form == "rate":
        rows = number(values, "rows_per_batch", where, 100)
        return SourceConfig(form, None, 1, rows, text(values, "table", where), text(values, "row", where))
    if form == "kafka":
        seq = text(values, "seq", where, "value")
        if seq not in ("value", "offset"):
            raise ConfigError(
                f"seq in [{where}] is {seq!r}", hint='"value", or "offset" for a topic of one partition'
            )
        return SourceConfig(
            form,
            servers=text(values, "servers", where),
            topic=text(values, "topic", where),
            seq=seq,
            max_offsets_per_trigger=number(values, "max_offsets_per_trigger", where, None),
            options=texts(values, "options", where),
        )
    return SourceConfig(
        form, folder / text(values, "path", where), number(values, "files_per_batch", where, 1)
    )


def read_sink(values: Mapping[str, Any], where: str, folder: Path, *, dead: bool = False) -> SinkConfig:
    """A section [sink], or [dead_letters]."""
    formats = {form: keys for form, keys in _SINK.items() if not dead or form != "webhook"}
    form = read_format(values, where, formats)
    if form == "console":
        return SinkConfig(form)
    if form == "kafka":
        return SinkConfig(
            form,
            servers=text(values, "servers", where),
            topic=text(values, "topic", where),
            options=texts(values, "options", where),
        )
    if form == "webhook":
        options: dict[str, Any] = {key: number(values, key, where) for key in _WHOLE if key in values}
        options |= {key: decimal(values, key, where) for key in _DECIMAL if key in values}
        if "undelivered" in values:
            options["undelivered"] = folder / text(values, "undelivered", where)
        return SinkConfig(
            form,
            url=text(values, "url", where),
            options={**options, "headers": texts(values, "headers", where)},
        )
    return SinkConfig(form, folder / text(values, "path", where))
