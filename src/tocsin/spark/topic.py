"""The records of a topic with a pipeline's messages, for `MessageReader.read` and `serve_sink`.

    pipeline ─► kafka:messages@broker:9092 ─► Topic ─► MessageReader
                                                    └► serve_sink ─► brokers and clients

    with Topic("messages", "broker:9092") as topic:
        reader.read(topic)

A topic is read from its beginning, in no consumer group, and no offset is stored: contents are in memory, so
who starts again reads again. The topic must keep its records (`retention.ms=-1`), as a folder keeps its
files; if its beginning is gone, `starts_late` is true.

Needs no Spark, but `confluent-kafka`, which comes with the extra `notify`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator
from importlib import import_module
from typing import Any, NamedTuple
from uuid import uuid4

from tocsin.errors import TocsinError

__all__ = ["Topic", "TopicRecord"]

_log = logging.getLogger("tocsin.kafka")
ID = "tocsin-id"  # the header that identifies a delta
MANY = 500  # records taken at once
PASSING = {
    *("_TRANSPORT", "_ALL_BROKERS_DOWN", "_TIMED_OUT", "_RESOLVE", "REQUEST_TIMED_OUT"),
    *("LEADER_NOT_AVAILABLE", "NOT_LEADER_FOR_PARTITION", "BROKER_NOT_AVAILABLE"),
}


class TopicRecord(NamedTuple):
    """A record: where it is, its value, and of a delta its id."""

    partition: int
    offset: int
    value: bytes
    id: str


class Topic:
    """All partitions that a topic has when it is opened.

    `settings` are librdkafka's (`**{"security.protocol": "SASL_SSL", ...}`). Without an answer of the brokers
    for `timeout` seconds, `read` raises; `poll` waits for nothing.
    """

    def __init__(self, name: str, servers: str, *, timeout: float = 30.0, **settings: Any) -> None:
        self.name, self.servers = name, servers
        self._timeout, self._settings = timeout, settings
        try:
            self._kafka = import_module("confluent_kafka")
        except ImportError:
            raise TocsinError(
                "confluent_kafka is not installed", hint="pip install 'tocsin[notify]'"
            ) from None
        common = {"bootstrap.servers": servers, "logger": _log, **settings}
        self._consumer = self._kafka.Consumer({
            "group.id": f"tocsin-{uuid4().hex}",  # it is required, and never used
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            **common,
        })  # fmt: skip
        admin = import_module(
            "confluent_kafka.admin"
        )  # of its own connection: a fetch would hold requests up
        self._offset_spec = admin.OffsetSpec
        self._admin = admin.AdminClient(common)
        self._closed = False
        try:
            first = self._offsets(self._partitions(), admin.OffsetSpec.earliest())
            self.starts_late = any(first.values())
            self._seek(first)
        except BaseException:
            self.close()
            raise

    def since(self, partition: int, offset: int) -> Topic:
        """The same topic, from a record of a partition on; the other partitions are left out."""
        other = Topic(self.name, self.servers, timeout=self._timeout, **self._settings)
        other._seek({partition: offset})
        return other

    def read(self) -> Iterator[TopicRecord]:
        """The records up to the end that the topic has now."""
        ends = self._offsets(self._next, self._offset_spec.latest())
        until = time.monotonic() + self._timeout
        while any(self._next[partition] < end for partition, end in ends.items()):
            found = self.poll(0.2)
            if found:
                yield from found
                until = time.monotonic() + self._timeout
            elif time.monotonic() > until:
                raise TocsinError(
                    f"the topic {self.name} at {self.servers} sent nothing for {self._timeout} s"
                )

    def poll(self, seconds: float = 0.0) -> list[TopicRecord]:
        """Records that have arrived since the last call; the first of them is waited for so long."""
        found = []
        for message in self._consumer.consume(MANY, seconds):
            if (error := message.error()) is not None:
                self._at_error(error, message)
                continue
            partition, offset = message.partition(), message.offset()
            self._next[partition] = offset + 1
            ids = dict(message.headers() or ()).get(ID) or b""
            found.append(TopicRecord(partition, offset, message.value() or b"", ids.decode()))
        return found

    def close(self) -> None:
        """Leave the topic."""
        if not self._closed:
            self._closed = True
            self._consumer.close()
            del self._admin  # it has no other end

    def __enter__(self) -> Topic:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- inside ------------------------------------------------------------------------------------

    def _partitions(self) -> list[int]:
        topic = self._answered(lambda: self._consumer.list_topics(self.name, self._timeout)).topics[self.name]
        if topic.error is not None or not topic.partitions:
            raise TocsinError(
                f"there is no topic {self.name} at {self.servers}",
                hint="the sink makes it with its first batch",
            )
        return sorted(topic.partitions)

    def _offsets(self, partitions: Iterable[int], spec: Any) -> dict[int, int]:
        """By partition: the offset of the first record, or the one after the last."""
        places = {self._kafka.TopicPartition(self.name, partition): spec for partition in partitions}
        found = self._admin.list_offsets(places, request_timeout=self._timeout)
        return {place.partition: self._answered(future.result).offset for place, future in found.items()}

    def _seek(self, first: dict[int, int]) -> None:
        """Go on with these offsets."""
        self._next = first  # by partition: the offset of the next record
        self._consumer.assign([self._kafka.TopicPartition(self.name, *place) for place in first.items()])

    def _answered(self, request: Any) -> Any:
        try:
            return request()
        except self._kafka.KafkaException as error:
            raise TocsinError(f"the brokers at {self.servers} do not answer: {error}") from None

    def _at_error(self, error: Any, message: Any) -> None:
        """The end of a partition, or a fault; librdkafka itself connects again."""
        codes = self._kafka.KafkaError
        if error.code() == codes._PARTITION_EOF:
            self._next[message.partition()] = max(self._next[message.partition()], message.offset())
        elif error.code() in (codes._AUTO_OFFSET_RESET, codes.OFFSET_OUT_OF_RANGE):
            raise TocsinError(
                f"records of the topic {self.name} were removed before they were read: {error.str()}",
                hint="set retention.ms=-1 for the topic, and start again",
            )
        elif error.name() not in PASSING:
            raise TocsinError(f"the topic {self.name} cannot be read: {error.str()}")
