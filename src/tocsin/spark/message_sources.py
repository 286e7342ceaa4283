"""Where a server finds a pipeline's messages, batch by batch: the folder of a file sink, or a topic.

    new(after)           whole batches after one, as far as they are there now
    again(first, last)   batches that `new` has returned before, for contents that begin later

A batch of a topic is there when one attempt at it is complete; `again` reads it from the topic once more,
from its first part on.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

from tocsin.errors import TocsinError
from tocsin.spark.messages import BatchAssembly, OutputPart, decoded, is_delta, parts_in, ready_batches
from tocsin.spark.topic import Topic, TopicRecord

__all__ = ["FolderBatches", "MessageSource", "SinkBatch", "TopicBatches", "source_of"]


class SinkBatch(NamedTuple):
    """A batch that is described, with all its parts in order."""

    number: int
    parts: list[OutputPart]


class MessageSource(Protocol):
    """Batches that are described, in order."""

    def new(self, after: int) -> Iterator[SinkBatch]:
        """The batches after a number; those up to it are not needed any more."""

    def again(self, first: int, last: int) -> Iterator[SinkBatch]:
        """Some batches that were there before."""

    def close(self) -> None:
        """Leave it."""


class FolderBatches:
    """The batches in the folder of a file sink."""

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)

    def new(self, after: int) -> Iterator[SinkBatch]:
        for number in ready_batches(self._folder, after):
            yield SinkBatch(number, parts_in(self._folder / f"batch={number}"))

    def again(self, first: int, last: int) -> Iterator[SinkBatch]:
        for number in ready_batches(self._folder, first - 1):
            if number > last:
                break
            yield SinkBatch(number, parts_in(self._folder / f"batch={number}"))

    def close(self) -> None:
        """Nothing is open."""


class TopicBatches:
    """The batches of a topic."""

    def __init__(self, topic: Topic) -> None:
        if topic.starts_late:
            raise TocsinError(
                f"the beginning of the topic {topic.name} is gone: contents cannot be made from the rest",
                hint="set retention.ms=-1 for the topic before the pipeline starts",
            )
        self._topic = topic
        self._assembly = BatchAssembly()
        self._first: dict[str, tuple[int, int]] = {}  # by attempt: partition and offset of its first part
        self._kept: deque[SinkBatch] = deque()
        self._numbers, self._partitions, self._offsets = array("q"), array("q"), array("q")
        self._is_new = True

    def new(self, after: int) -> Iterator[SinkBatch]:
        records = self._topic.read() if self._is_new else iter(self._topic.poll())
        self._is_new = False
        for record in records:
            self._add(record)
        while self._kept and self._kept[0].number <= after:
            self._kept.popleft()
        yield from list(self._kept)

    def again(self, first: int, last: int) -> Iterator[SinkBatch]:
        at = bisect_left(self._numbers, first)
        if at == len(self._numbers) or first > last:
            return
        assembly = BatchAssembly()
        with self._topic.since(self._partitions[at], self._offsets[at]) as topic:
            for record in topic.read():
                parts = None if is_delta(record.value) else assembly.add(decoded(record.value))
                if parts is None:
                    continue
                if parts[0].batch > last:
                    return
                yield SinkBatch(parts[0].batch, parts)

    def close(self) -> None:
        self._topic.close()

    def _add(self, record: TopicRecord) -> None:
        if is_delta(record.value):
            return
        part = decoded(record.value)
        place = self._first.setdefault(part.attempt, (record.partition, record.offset))
        parts = self._assembly.add(part)
        if parts is None:
            return
        self._first.clear()
        self._numbers.append(part.batch)
        self._partitions.append(place[0])
        self._offsets.append(place[1])
        self._kept.append(SinkBatch(part.batch, parts))


def source_of(place: str | Path | Topic) -> MessageSource:
    """The batches at a place: a folder, or a topic."""
    return TopicBatches(place) if isinstance(place, Topic) else FolderBatches(place)
