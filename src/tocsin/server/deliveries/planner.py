"""From blocks to messages: each delivery picks its deltas, its flow says what leaves when.

The planner has no thread and no clock of its own; `service.py` drives it. What it makes of some blocks is
stored in one transaction with the position, so a crash repeats the planning and not the messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

from tocsin.delivery.repeats import Flow, FlowState, TimedDelta
from tocsin.server.blocks import Block
from tocsin.server.deliveries.definitions import DeliveryRule, messages_of
from tocsin.server.deliveries.outbox import Outbox, PlannedMessages, Stored
from tocsin.server.hub import Wanted

__all__ = ["BlockLog", "Planner", "wanted_by"]


class BlockLog(Protocol):
    """What the planner reads: `tocsin.server.log.Log`."""

    epoch: str
    position: int

    def blocks(self, after: int, limit: int = ...) -> list[Block]: ...


class _Active(NamedTuple):
    definition: DeliveryRule
    wanted: Wanted
    flow: Flow
    start: int


def wanted_by(delivery: DeliveryRule) -> Wanted:
    """What a delivery follows."""
    ids = delivery.subscriptions
    return Wanted(None if ids is None else tuple(dict.fromkeys(ids)), delivery.subscriber)


class Planner:
    """The flows of all deliveries. One thread calls it at a time."""

    def __init__(self, log: BlockLog, outbox: Outbox, has_content: Callable[[int], bool]) -> None:
        self._log, self._outbox, self._has_content = log, outbox, has_content
        self._active: dict[str, _Active] = {}
        self._has_failed = False
        for name, stored in outbox.stored().items():
            self._enter(name, stored)
        found = outbox.position
        self.position = log.position if found is None else found

    def __len__(self) -> int:
        return len(self._active)

    def enter(self, delivery: DeliveryRule, counts: dict[int, int], start: int) -> None:
        """A new delivery of all that comes after `start`, where answers have so many rows.

        Others may be planned further already: what they had since `start` is its own too.
        """
        before = self._active.get(delivery.name)
        state = FlowState(counts=counts, made=before.flow.state.made if before is not None else 0)
        flow, wanted, at = Flow(delivery.timing(), self._has_content, state), wanted_by(delivery), start
        while at < self.position and (blocks := self._log.blocks(at)):
            for block in blocks:
                if block.position <= self.position and (numbers := wanted.of(block)):
                    flow.add(_changes(block, numbers))
            at = blocks[-1].position
        at = max(start, self.position)
        self._outbox.add(delivery, flow.state, at)
        self._active[delivery.name] = _Active(delivery, wanted, flow, at)

    def leave(self, name: str) -> None:
        """A delivery ends."""
        self._active.pop(name, None)

    def step(self, now: float) -> list[tuple[str, str]]:
        """Plan the next blocks and what is due; returns the lanes that have new messages.

        If it fails, flows are again as they are stored, and the next step begins with the same blocks.
        """
        if self._has_failed:
            self._active.clear()
            for name, stored in self._outbox.stored().items():
                self._enter(name, stored)
        self._has_failed = True
        lanes = self._step(now)
        self._has_failed = False
        return lanes

    def _step(self, now: float) -> list[tuple[str, str]]:
        end = max(self.position, self._log.position)  # before: blocks may be committed while they are read
        blocks = self._log.blocks(self.position) if self._active else []
        for block in blocks:
            for each in self._active.values():
                if block.position > each.start and (numbers := each.wanted.of(block)):
                    each.flow.add(_changes(block, numbers))
        position = blocks[-1].position if blocks else end
        changed = self._planned(now, position, touched=bool(blocks))
        if blocks or changed:
            self._outbox.plan(position, changed, now)
        self.position = position
        return sorted({(each.name, message.lane) for each in changed for message in each.messages})

    @property
    def due(self) -> float | None:
        """When `step` has something to do though no block comes."""
        return min((d for each in self._active.values() if (d := each.flow.due) is not None), default=None)

    def _planned(self, now: float, position: int, touched: bool) -> list[PlannedMessages]:
        token = f"{self._log.epoch}-{position}"
        out = []
        for name, each in self._active.items():
            due = each.flow.due
            if due is None:
                continue
            messages = []
            for notice in each.flow.take(now):
                state = each.flow.state
                messages += messages_of(
                    each.definition, notice.changes, notice.resolved, token, state.made, notice.dropped
                )
                state.made += len(messages)
            if touched or messages or due <= now:
                out.append(PlannedMessages(name, each.flow.state, messages))
        return out

    def _enter(self, name: str, stored: Stored) -> None:
        flow = Flow(stored.definition.timing(), self._has_content, stored.state)
        self._active[name] = _Active(stored.definition, wanted_by(stored.definition), flow, stored.start)


def _changes(block: Block, numbers: Sequence[int]) -> Iterable[TimedDelta]:
    at = block.at / 1e6
    for n in numbers:
        who = block.whose[n]
        yield TimedDelta(
            at, int(block.seq[n]), int(block.subscription[n]), int(block.sign[n]),
            block.texts[block.row[n]], None if who < 0 else block.names[who],
        )  # fmt: skip
