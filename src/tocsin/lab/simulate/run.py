"""One scheme after the other: events become messages, the network delivers them, bytes are counted.

    workload ─► Scheme.describe ─► Messages ─► Network.deliver ─► hops, bytes by link
                                                     └─► clients of a sample ─► compared with brute force

Bytes of a message: 16 for its header, 8 per attribute, the payload of each row, and its description: 16 per
point (X, Y) of a skyline, 8 per point (c, c), 24 for the neighbours of an exposed row. All schemes see the
same subscriptions, rows, zones and brokers. Rows that leave the window of R send nothing: clients know when.

J08, section 6, figures 5 to 12 and 17. Sizes are NETWORK.md's: the paper prints none.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tocsin.errors import TocsinError
from tocsin.lab.discover import implementations
from tocsin.lab.simulate.check import SampledClients
from tocsin.lab.simulate.enumerate import Affected, count_affected
from tocsin.lab.simulate.networks import SimulateSetting, make_network
from tocsin.lab.simulate.topology import draw_topology
from tocsin.lab.simulate.workload import Workload, draw_workload
from tocsin.model.columns import Index
from tocsin.model.message import MessageKind, Messages, Regions
from tocsin.network.base import Delivery, Network, has_bit
from tocsin.network.cnplus import PayloadNetwork
from tocsin.reformulate._kernels.joins import RowChanges
from tocsin.reformulate.base import Scheme, row_changes
from tocsin.reformulate.joins import (
    EnumeratedJoins,
    SelectedJoinedRows,
    SemijoinsMerged,
    with_recipients,
)
from tocsin.stab.groups import Ranges

__all__ = ["PAPER", "SCHEMES", "SchemeResult", "Simulation", "message_bytes"]

_FOUND: list[type[Scheme]] = implementations(Scheme, "tocsin.reformulate")
SCHEMES = {scheme.name: scheme for scheme in _FOUND}
PAPER = [
    *("enum-j", "enum-sj", "rel-sel", "ref-j", "ref-j+"),
    *("ref-sj-tup", "ref-sj-sub", "ref-sj-clu", "ref-sj-clu+"),
]
HEADER, ATTRIBUTE, NEIGHBOURS = 16, 8, 24  # bytes
POINT = {"ref-sj-tup": 8, "ref-sj-clu": 8, "ref-sj-sub": 16, "ref-sj-clu+": 16, "ref-sj-min": 16}
BATCH, TIMED = 100, 20  # events per batch, and those of an enumeration that are timed
SAMPLE, COMPARED = 6, 10  # clients, and how often their contents are compared
OTHER_SEED = 1_000_000  # added for the draw of `training="other"`
_ROW, _EXPOSE, _JOINED = MessageKind.ROW, MessageKind.EXPOSE, MessageKind.JOINED

Say = Callable[[str], None]


@dataclass
class SchemeResult:
    """One scheme, per event."""

    scheme: str
    traffic_bytes_per_event: float = 0.0
    hops_per_event: float = 0.0
    server_stress_bytes_per_event: float = 0.0
    hop_latency: float = 0.0
    description_bytes_per_event: float = 0.0
    server_us_per_event: float = 0.0
    messages_per_event: float = 0.0
    ip_bytes_per_event: float = 0.0
    node_stress_bytes_per_event: float = 0.0
    fetches_per_event: float = 0.0
    checked: bool = False
    links: NDArray[np.float64] | None = field(default=None, repr=False)  # bytes by sender and receiver

    def to_dict(self) -> dict[str, Any]:
        found = asdict(self)
        del found["links"]
        return {name: round(value, 3) if isinstance(value, float) else value for name, value in found.items()}


def message_bytes(messages: Messages, scheme: str, payload: int) -> tuple[Index, Index]:
    """The bytes of each message, and those of its description among them."""
    kind = messages.kind
    row = 2 * ATTRIBUTE + payload
    body = np.select([(kind == _ROW) | (kind == _EXPOSE), kind == _JOINED], [row, 2 * row], 2 * ATTRIBUTE)
    points = np.diff(messages.regions.start) * POINT.get(scheme, 0)
    description = np.where(kind == _EXPOSE, NEIGHBOURS, points)
    return HEADER + body + description, description


class Simulation:
    """A workload over a network; schemes are run one by one."""

    def __init__(
        self, setting: SimulateSetting, say: Say = lambda _: None, work: Workload | None = None
    ) -> None:
        """`work`: of the sizes of the setting, instead of the one it names."""
        if work is None:
            say(f"drawing {setting.subscriptions:,} subscriptions and {setting.events:,} events")
            sizes = setting.subscriptions, setting.events, setting.seed, setting.rows
            work = draw_workload(setting.workload, *sizes)
        self.work = work
        say("indexing the subscriptions")
        self._first = SemijoinsMerged()
        (a, c), slots = np.moveaxis(self.work.points, 1, 0), np.arange(setting.subscriptions)
        columns = (c[:, 0], c[:, 1], a[:, 0], a[:, 1])
        self._first.subscribe(slots, Ranges(*(np.ascontiguousarray(column) for column in columns)))
        self._first.load(1, np.arange(len(self.work.s_key)), self.work.s_key, self.work.s_value)
        say(f"a network of {setting.brokers:,} brokers, {setting.network}")
        self.use(setting)
        say(f"a topology of {setting.nodes:,} nodes")
        self.topology = draw_topology(setting.nodes, setting.brokers, setting.seed)
        rng = np.random.default_rng(setting.seed)
        self._sample = rng.choice(setting.subscriptions, min(SAMPLE, setting.subscriptions), replace=False)

    def use(self, setting: SimulateSetting) -> None:
        """Go on with another network, over the same workload and topology."""
        self.setting = setting
        self._affected: Affected | None = None
        past = self._training() if setting.zones == "traffic" else None
        self.network = make_network(setting, self.work, past)

    def _training(self) -> Regions:
        """Regions of messages that were sent before, by which zones are split.

        clu+    ref-sj-clu+ over the same table S: knows the rows that events will join, and favours clu+
        all     as many messages of each scheme that describes, over the same table S
        other   ref-sj-clu+ over another draw of S and of the past: knows the distribution alone
        """
        setting, work = self.setting, self.work
        if setting.training == "other":
            seed = setting.seed + OTHER_SEED
            work = draw_workload(setting.workload, 1, 1, seed, 10, len(work.s_key))
        past, schemes = _inserts(0, work.past_key, work.past_value), [SemijoinsMerged.name]
        if setting.training == "all":
            schemes = [name for name in PAPER if not SCHEMES[name].unicast]
        parts = []
        for name in schemes:
            scheme = self._prepared(SCHEMES[name])
            scheme.load(1, np.arange(len(work.s_key)), work.s_key, work.s_value)
            messages = scheme.describe(past, 0)
            if setting.training != "all":
                messages = messages.take(messages.kind == _ROW)
            count = min(len(messages), len(past.row))
            parts.append(messages.regions.take(np.linspace(0, len(messages) - 1, count).astype(np.int64)))
        self._first.load(1, np.arange(len(self.work.s_key)), self.work.s_key, self.work.s_value)
        return Regions.concat(parts)

    def _prepared(self, made: type[Scheme]) -> Scheme:
        """A scheme over the common index of subscriptions, with the rows of the beginning."""
        scheme = made()
        scheme.storage, scheme.index = self._first.storage, self._first.index
        scheme.load(0, np.arange(len(self.work.r_key)), self.work.r_key, self.work.r_value)
        return scheme

    def run(self, name: str, show: Callable[[int], None] = lambda _: None) -> SchemeResult:
        """All events of one scheme; contents of a sample are compared ten times."""
        made = SCHEMES[name]
        if made.unicast:
            return self._run_unicast(name, show)
        result = SchemeResult(name)
        if isinstance(self.network, PayloadNetwork):
            self.network.restart_all()
        run = _Run(self.network, self.setting.brokers)
        for messages in self._batches(self._prepared(made), result, show):
            sizes, description = message_bytes(messages, name, self.setting.payload)
            result.description_bytes_per_event += float(description.sum())
            run.deliver(messages, sizes, self._clients)
        result.links = run.links
        result.hops_per_event, result.hop_latency = run.hops, run.depths / max(1, run.gateways)
        result.traffic_bytes_per_event = run.bytes
        result.ip_bytes_per_event = float((run.links * self.topology.distance).sum())
        sent = run.links.sum(axis=1)
        result.server_stress_bytes_per_event = float(sent[self.network.server])
        result.node_stress_bytes_per_event = float(sent.max())
        if isinstance(self.network, PayloadNetwork):
            result.fetches_per_event = float(self.network.fetches)
        return self._finished(result)

    def _batches(self, scheme: Scheme, result: SchemeResult, show: Callable[[int], None]) -> Any:
        """Messages of batches of events; rows leave the window after each, and contents are compared."""
        work, rows, events = self.work, len(self.work.r_key), self.setting.events
        self._clients = SampledClients(scheme, work, self._sample)
        step = max(1, min(BATCH, rows // 10))
        first, seconds, every = 0, 0.0, max(1, events // step // COMPARED)
        for begin in range(0, events, step):
            end = min(events, begin + step)
            show(begin)
            changes = _inserts(rows + begin, work.event_key[begin:end], work.event_value[begin:end])
            began = time.perf_counter()
            messages = scheme.describe(changes, begin)
            if begin or events <= step:  # kernels are compiled in the first batch
                seconds += time.perf_counter() - began
            result.messages_per_event += len(messages)
            yield messages
            if end == events or (begin // step) % every == 0:
                self._clients.compare(first, rows + end)
            first += self._expire(scheme, first, end - begin)
        result.server_us_per_event = 1e6 * seconds * events / max(1, events - (step if events > step else 0))

    def _expire(self, scheme: Scheme, first: int, count: int) -> int:
        """The oldest rows leave R."""
        keys, values = self.work.all_rows()
        leaving = np.arange(first, first + count)
        for row in leaving.tolist():
            scheme.storage.tables[0].delete(int(keys[row]), int(values[row]), row)
        self._clients.expire(leaving)
        return count

    # -- enumeration --------------------------------------------------------------------------------

    def _run_unicast(self, name: str, show: Callable[[int], None]) -> SchemeResult:
        """Packets from the server to the gateway of each affected subscription."""
        result, joins = SchemeResult(name), name == EnumeratedJoins.name
        row = 2 * ATTRIBUTE + self.setting.payload
        distance = self.topology.distance[self.network.server][self.network.placement.broker].astype(np.int64)
        if self._affected is None:
            self._affected = count_affected(self.work, distance)
        affected = self._affected
        bytes_, far = affected.subscriptions * (HEADER + row), affected.far * (HEADER + row)
        if joins:
            bytes_ = affected.subscriptions * HEADER + affected.rows * 2 * row
            far = affected.far * HEADER + affected.rows_far * 2 * row
        self._compare_counts(name, affected)
        exposed = exposed_far = 0
        scheme = self._prepared(SelectedJoinedRows if joins else SemijoinsMerged)
        for messages in self._batches(scheme, result, show):
            for slot in self._clients.clients:
                self._clients.apply(slot, messages)
            if not joins:
                found = with_recipients(scheme, messages.take(messages.kind == _EXPOSE)).recipients
                slots = found.slot if found is not None else np.zeros(0, np.int64)
                exposed += len(slots) * row
                exposed_far += int(distance[slots].sum()) * row
        result.traffic_bytes_per_event = float(bytes_.sum() + exposed)
        result.ip_bytes_per_event = float(far.sum() + exposed_far)
        result.hops_per_event, result.hop_latency = float(affected.subscriptions.sum()), 1.0
        result.server_stress_bytes_per_event = result.traffic_bytes_per_event
        result.node_stress_bytes_per_event = result.traffic_bytes_per_event
        self._time_unicast(name, result)
        return self._finished(result)

    def _compare_counts(self, name: str, affected: Affected) -> None:
        """Enumerate the first events, and compare with what was counted."""
        scheme = self._prepared(SCHEMES[name])
        rows = len(self.work.r_key)
        for i in range(min(3, self.setting.events)):
            messages = scheme.describe(
                _inserts(rows + i, self.work.event_key[i : i + 1], self.work.event_value[i : i + 1]), i
            )
            recipients = messages.recipients
            assert recipients is not None
            slots = recipients.slot[messages.kind[recipients.message] != _EXPOSE]
            counted = affected.rows[i] if name == EnumeratedJoins.name else affected.subscriptions[i]
            if len(slots) != counted or len(np.unique(slots)) != affected.subscriptions[i]:
                raise TocsinError(f"{name}: event {i} affects {len(slots):,}, not {counted:,}")

    def _time_unicast(self, name: str, result: SchemeResult) -> None:
        """Enumeration itself is timed on a few events."""
        scheme, rows = self._prepared(SCHEMES[name]), len(self.work.r_key)
        count = min(TIMED, self.setting.events)
        began = time.perf_counter()
        for i in range(count):
            one = slice(i, i + 1)
            scheme.describe(_inserts(rows + i, self.work.event_key[one], self.work.event_value[one]), i)
        result.server_us_per_event = 1e6 * (time.perf_counter() - began) / count * self.setting.events

    def _finished(self, result: SchemeResult) -> SchemeResult:
        """Sums become means per event."""
        for name, value in vars(result).items():
            if name.endswith("_per_event"):
                setattr(result, name, value / self.setting.events)
        if result.links is not None:
            result.links = result.links / self.setting.events
        result.checked = self._clients.compared > 0
        return result


class _Run:
    """Sums over the batches of a scheme."""

    def __init__(self, network: Network, brokers: int) -> None:
        self.network = network
        self.links = np.zeros((brokers, brokers))
        self.hops = self.bytes = self.depths = self.gateways = 0.0

    def deliver(self, messages: Messages, sizes: Index, clients: SampledClients) -> None:
        """Deliver a batch, to the sampled clients too."""
        delivery: Delivery = self.network.deliver(messages, sizes)
        for slot in clients.clients:
            gateway = int(self.network.placement.broker[slot])
            arrived = has_bit(delivery.reached, np.arange(len(messages)), gateway)
            clients.apply(slot, messages.take(np.flatnonzero(arrived)))
        self.hops += float(delivery.hops.sum())
        self.bytes += float(delivery.links.bytes.sum())
        self.depths += float(delivery.depths.sum())
        self.gateways += float(delivery.gateways.sum())
        np.add.at(self.links, (delivery.links.sender, delivery.links.receiver), delivery.links.bytes)


def _inserts(first: int, keys: Index, values: Index) -> RowChanges:
    """Rows that enter R, with ids from `first` on."""
    count = len(keys)
    new = np.stack([np.ones(count, np.int64), keys, values], axis=1)
    return row_changes(np.zeros(count), first + np.arange(count), np.zeros((count, 3)), new)
