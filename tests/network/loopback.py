"""Server, brokers and clients in one process: links are queues of bytes that tests deliver, delay and cut."""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Sequence
from contextlib import nullcontext
from itertools import count

import msgspec
import numpy as np

from tests.reformulate.worlds import World, as_change, join, ranges_of
from tocsin.network.batches import EMPTY, MessageBatch
from tocsin.network.follower import ClientNode, Snapshot
from tocsin.network.node import Node
from tocsin.network.payloads import PayloadCache
from tocsin.network.root import MessageLog, Reply, Root
from tocsin.network.routing import points_as_boxes
from tocsin.network.wire import Fetch, Frame, decode, encode
from tocsin.reformulate.base import Scheme

SERVER = 0
FORM = 3


class WorldService:
    """Subscriptions of a random world, described by a scheme; a client asks for them by number."""

    def __init__(self, world: World, made: type[Scheme]) -> None:
        self.world, self.scheme = world, made()
        self.known: set[int] = set()

    def frozen(self):
        return nullcontext()

    def described(self) -> tuple[int, MessageBatch]:
        return -1, EMPTY

    def ask(self, body: bytes, seq: int) -> Reply:
        number = int(body)
        if number not in self.known:
            self.known.add(number)
            self.scheme.subscribe(np.array([number]), ranges_of([self.world.subscriptions[number]]))
        wanted = np.array([FORM]), points_as_boxes([self.scheme.point(number)])
        return Reply(wanted, self.snapshots([number], seq)[0])

    def wanted(self, key: str, subscriptions: Sequence[int]):
        own = [number for number in subscriptions if number in self.known and str(100 + number % 8) == key]
        points = [self.scheme.point(number) for number in own]
        return own, (np.full(len(own), FORM, np.int64), points_as_boxes(points))

    def snapshots(self, subscriptions: Sequence[int], seq: int) -> list[bytes]:
        bodies = {side: {id: _body(row) for id, row in table.items()} for side, table in self.rows().items()}
        return [
            msgspec.msgpack.encode(Snapshot.of(number, seq, self.scheme.contents(number, bodies)))
            if number in self.known
            else b""
            for number in subscriptions
        ]

    def rows(self):
        return dict(enumerate(self.world.tables))

    def change(self, seq: int) -> MessageBatch:
        """A random change as messages."""
        side, old, new = self.world.change()
        messages = self.scheme.describe(as_change(side, old, new), seq)
        tables = self.rows()
        bodies = [
            _body(row) if (row := tables[side].get(id)) is not None else b""
            for side, id in zip(messages.side.tolist(), messages.row.tolist(), strict=True)
        ]
        return MessageBatch.of(messages, FORM, bodies)


def _body(row) -> bytes:
    return f"{row.id},{row.payload}".encode()


class Loopback:
    """A tree of nodes with faults. Contents are compared whenever a client's watermark moves."""

    def __init__(
        self,
        seed: int,
        made: type[Scheme],
        *,
        log_bytes: int,
        brokers: int,
        boxes: int,
        repository: int | None = None,
    ) -> None:
        """`repository`: bytes of payloads kept by the server and by about half of the brokers."""
        self.random = random.Random(seed)
        self.repository = repository
        self.bytes = self.fetches = 0  # sent over links; frames that fetch
        self.world = World(seed)
        self.service = WorldService(self.world, made)
        self.seq = 0
        self.states: dict[int, list[Counter]] = {}
        self.boxes, self.log_bytes = boxes, log_bytes
        self.starts = count(1)
        self.nodes: dict[int, Node] = {SERVER: self._root()}
        self.clients: dict[int, ClientNode] = {}
        self.links: dict[int, tuple[int, int]] = {}  # by link: who is below, who is above
        self.queues: dict[tuple[int, int], deque[bytes]] = {}  # by link and receiver
        self.numbers = count(1)
        self.compared = 0
        self._note()
        for name in range(1, brokers + 1):
            self.nodes[name] = self._node()
            self.attach(name, self.random.randrange(name))
        for number in range(len(self.world.subscriptions)):
            name = 100 + number % 8
            if name not in self.clients:
                self.clients[name] = ClientNode(str(name))
                self.attach(name, self.random.choice(list(self.nodes)))
            self.send(name, self._up(name), self.clients[name].subscribe(number, str(number).encode()))

    def _root(self) -> Root:
        log = MessageLog(self.log_bytes)
        root = Root(f"server {next(self.starts)}", self.service, log, digest_boxes=self.boxes)
        root.payloads = None if self.repository is None else PayloadCache(self.repository)
        return root

    def _node(self) -> Node:
        repository = self.repository if self.random.random() < 0.6 else None
        return Node(digest_boxes=self.boxes, repository=repository)

    def _note(self) -> None:
        self.states[self.seq] = [_as_bodies(s, self.world) for s in self.world.subscriptions]

    # -- links -------------------------------------------------------------------------------------

    def _up(self, name: int) -> int | None:
        return next((link for link, (below, _) in self.links.items() if below == name), None)

    def attach(self, name: int, above: int) -> None:
        link = next(self.numbers)
        self.links[link] = name, above
        self.queues[link, name], self.queues[link, above] = deque(), deque()
        is_client = name in self.clients
        incarnation = "" if is_client else self.nodes[name].incarnation
        self.nodes[above].add_child(link, is_client=is_client, incarnation=incarnation)
        server = self.nodes[above].server or self.nodes[SERVER].server
        if is_client:
            self.send(name, link, self.clients[name].connected(server))
        else:
            self.send_all(name, self.nodes[name].set_parent(link, server))

    def cut(self, link: int) -> int:
        """Close a link; who was below it."""
        below, above = self.links.pop(link)
        del self.queues[link, below], self.queues[link, above]
        if below in self.clients:
            self.clients[below].disconnected()
        elif below in self.nodes:
            self.nodes[below].drop_parent()
        if above in self.nodes:
            self.send_all(above, self.nodes[above].drop_child(link))
        return below

    def send(self, sender: int, link: int | None, frames: Sequence[Frame]) -> None:
        for frame in frames:
            if link in self.links:
                below, above = self.links[link]
                self.queues[link, above if sender == below else below].append(encode(frame))
                self.bytes += len(encode(frame))
                self.fetches += isinstance(frame, Fetch)

    def send_all(self, sender: int, sends) -> None:
        for link, frame in sends:
            self.send(sender, link, [frame])

    def _parents_for(self, name: int) -> list[int]:
        """Nodes from which the server is reached without passing `name`."""
        good = [SERVER]
        for node in self.nodes:
            at, seen = node, set()
            while at != SERVER and at not in seen and at != name:
                seen.add(at)
                link = self._up(at)
                at = self.links[link][1] if link is not None else -1
            if at == SERVER and node != name:
                good.append(node)
        return good

    def reattach(self, name: int) -> None:
        self.attach(name, self.random.choice(self._parents_for(name)))

    # -- steps -------------------------------------------------------------------------------------

    def deliver(self, link: int, receiver: int) -> None:
        """One frame of a queue."""
        queue = self.queues.get((link, receiver))
        if not queue:
            return
        frame = decode(queue.popleft()[4:])
        if receiver in self.nodes:
            self.send_all(receiver, self.nodes[receiver].take(link, frame))
        else:
            follower = self.clients[receiver]
            self.send(receiver, link, follower.take(frame))
            self.compare(follower)

    def compare(self, follower: ClientNode) -> None:
        for name, followed in follower.followed.items():
            if followed.contents is not None:
                assert followed.contents.content() == self.states[followed.seq][name], (name, followed.seq)
                self.compared += 1

    def change(self) -> None:
        self.seq += 1
        batch = self.service.change(self.seq)
        self._note()
        root = self.nodes[SERVER]
        assert isinstance(root, Root)
        self.send_all(SERVER, root.publish(self.seq, batch))

    def come_or_go(self) -> None:
        """A client drops a subscription, or takes up one that it had dropped."""
        number = self.random.randrange(len(self.world.subscriptions))
        name = 100 + number % 8
        client = self.clients[name]
        if number in client.followed:
            frames = client.unsubscribe(number)
        else:
            frames = client.subscribe(number, str(number).encode())
        self.send(name, self._up(name), frames)

    def fault(self) -> None:
        """A link is cut, or a broker is killed and comes back empty."""
        brokers = [name for name in self.nodes if name != SERVER]
        if brokers and self.random.random() < 0.5:
            name = self.random.choice(brokers)
            self.nodes[name] = self._node()
            orphans = [self.cut(link) for link, ends in list(self.links.items()) if name in ends]
            self.nodes[name] = self._node()
            for orphan in {*orphans, name}:
                self.reattach(orphan)
        elif self.links:
            self.reattach(self.cut(self.random.choice(list(self.links))))

    def restart_server(self) -> None:
        """Another server with the same tables; nothing of the first one's log."""
        orphans = [self.cut(link) for link, (_, above) in list(self.links.items()) if above == SERVER]
        root = self._root()
        root.watermark = root.log.first = self.seq
        self.nodes[SERVER] = root
        self.service.scheme = type(self.service.scheme)()
        for side, table in enumerate(self.world.tables):
            there = [row for row in table.values() if row.is_there]
            columns = [[getattr(row, name) for row in there] for name in ("id", "key", "value")]
            self.service.scheme.load(side, *columns)
        self.service.known.clear()
        for orphan in orphans:
            self.reattach(orphan)

    def tick(self) -> None:
        for name, node in self.nodes.items():
            self.send_all(name, node.tick())

    def remind(self) -> None:
        for name, node in self.nodes.items():
            self.send_all(name, node.remind())
        for name, client in self.clients.items():
            self.send(name, self._up(name), client.remind())

    def run(self, most: int) -> None:
        """Deliver some frames of each queue."""
        for link, receiver in self.random.sample(list(self.queues), len(self.queues)):
            for _ in range(self.random.randint(0, most)):
                self.deliver(link, receiver)

    def settle(self) -> None:
        """Deliver all, and ask again, until everybody has everything."""
        for _ in range(10):  # a watermark passes one node by tick
            while any(self.queues.values()):
                self.run(5)
            self.tick()
            self.remind()
        while any(self.queues.values()):
            self.run(5)
        for follower in self.clients.values():
            assert not follower.is_resuming
            for name, followed in follower.followed.items():
                assert followed.is_ready and followed.seq == self.seq, (name, followed.seq, self.seq)
                assert followed.contents.content() == self.states[self.seq][name]
            follower._check()
        for node in self.nodes.values():
            node._check()


def _as_bodies(subscription, world: World) -> Counter:
    return Counter({(_body(r), _body(s)): n for (r, s), n in join(subscription, world.tables).items()})
