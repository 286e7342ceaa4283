"""`tocsin stats`: what a saved engine, a pipeline or a file of subscriptions holds, and how it is indexed.

a saved engine          the folder that Engine.save wrote
a pipeline              its `state` folder: the newest version of its subscriptions
subscriptions, events   a file of subscriptions, and optionally a file of events to apply first
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tocsin.commands.data import is_saved_engine
from tocsin.commands.progress import Display
from tocsin.commands.replay import EventReplay, prepare
from tocsin.engine import Engine
from tocsin.errors import UsageError
from tocsin.language.shape import Shape

__all__ = ["Stats", "stats"]


@dataclass(frozen=True)
class Stats:
    """Counts of subscriptions, rows and indexes."""

    source: str
    what: str  # "saved engine", "pipeline" or "subscriptions"
    subscriptions: int
    by_shape: dict[str, int]
    by_relation: dict[str, int]  # a join counts for each table it reads
    bytes: int | None = None  # of indexes, or of files for a pipeline
    version: int | None = None  # of a pipeline's subscriptions
    rows: dict[str, int] = field(default_factory=dict)  # of each table
    events: int = 0  # applied
    paths: dict[str, dict[str, int]] = field(default_factory=dict)  # how each relation's filters are indexed
    warnings: tuple[str, ...] = ()
    details: dict[str, Any] = field(default_factory=dict)  # Engine.stats()

    @property
    def ok(self) -> bool:
        return True

    def to_dict(self) -> dict[str, Any]:
        return {"ok": self.ok, **vars(self)}

    def lines(self) -> Iterator[str]:
        """The printed summary."""
        version = "" if self.version is None else f", version {self.version}"
        yield f"{self.source} ({self.what}{version}): {self.subscriptions:,} subscriptions"
        yield from _counts("by shape", self.by_shape)
        yield from _counts("by stream or table", self.by_relation)
        yield from _counts("rows", self.rows)
        if self.events:
            yield f"events applied: {self.events:,}"
        for name, paths in self.paths.items():
            listed = ", ".join(f"{path} {count:,}" for path, count in paths.items() if count)
            yield f"index of {name}: {listed or 'empty'}"
        if self.bytes is not None:
            size = f"{self.bytes / 1e6:,.1f} MB" if self.bytes >= 1e6 else f"{self.bytes / 1e3:,.1f} kB"
            yield f"{'files' if self.version is not None else 'indexes'}: {size}"
        yield from (f"warning: {warning}" for warning in self.warnings)


def _counts(title: str, counts: dict[str, int]) -> Iterator[str]:
    if counts:
        yield f"{title}: {', '.join(f'{name} {count:,}' for name, count in counts.items())}"


def stats(source: Path, events: Path | None = None, *, schema: Path | None = None) -> Stats:
    """Statistics of a saved engine, a pipeline's folder, or a file of subscriptions."""
    if source.is_dir():
        if events is not None or schema is not None:
            raise UsageError("events and a schema go with a file of subscriptions", hint="leave them out")
        if is_saved_engine(source):
            with Display("reading the engine"):
                return _of_engine(Engine.load(source), str(source), "saved engine")
        with Display("reading the subscriptions"):
            return _of_pipeline(source)
    engine = prepare(source, schema)
    warnings: list[str] = []
    applied = 0
    if events is not None:
        replay = EventReplay(engine, events, None, "stats")
        for _ in replay:
            pass
        applied, warnings = replay.events, replay.warnings()
    with Display("counting"):
        return _of_engine(engine, str(source), "subscriptions", applied, warnings)


def _of_engine(
    engine: Engine, source: str, what: str, events: int = 0, warnings: list[str] | None = None
) -> Stats:
    found = engine.stats()
    relations = Counter({name: counters["subscriptions"] for name, counters in found["match"].items()})
    for subscription in engine.subscriptions():
        if subscription.shape is not Shape.FILTER:
            relations.update({table.name for table in engine.query(subscription).tables})
    noted = [str(warning) for warning in found.get("warnings", ()) or ()]
    return Stats(
        source=source,
        what=what,
        subscriptions=found["subscriptions"],
        by_shape=dict(found["by_shape"]),
        by_relation={name: count for name, count in relations.most_common() if count},
        bytes=_bytes(found),
        rows=found["rows"],
        events=events,
        paths={name: counters.get("paths", {}) for name, counters in found.get("match", {}).items()},
        warnings=tuple(dict.fromkeys([*noted, *(warnings or [])])),
        details=found,
    )


def _of_pipeline(state: Path) -> Stats:
    from tocsin.commands.subscriptions import versions_of

    versions = versions_of(state)
    version = versions.newest()
    shapes: Counter[str] = Counter()
    relations: Counter[str] = Counter()
    for key, part in version.subscriptions.by_shard_key().items():
        shapes[str(key.shape)] += len(part)
        for name in set(key.tables):
            relations[name] += len(part)
    return Stats(
        source=str(state),
        what="pipeline",
        subscriptions=len(version.subscriptions),
        by_shape=dict(shapes),
        by_relation=dict(relations.most_common()),
        bytes=versions.store.size(),
        version=version.number,
    )


def _bytes(counters: Any) -> int:
    """The sum of all `bytes` in nested counters."""
    if isinstance(counters, dict):
        own = counters["bytes"] if isinstance(counters.get("bytes"), int) else 0
        return own + sum(_bytes(value) for name, value in counters.items() if name != "bytes")
    return sum(map(_bytes, counters)) if isinstance(counters, list | tuple) else 0
