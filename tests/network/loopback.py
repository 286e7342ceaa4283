"""Server, brokers and clients in one process: links are queues of bytes that tests deliver, delay and cut."""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable, Sequence
from itertools import count

from tests.network.histories import TABLES, bag, change
from tocsin.engine import Engine
from tocsin.network.answers import Answers
from tocsin.network.described import DescribedQueries, encoded_request
from tocsin.network.follower import ClientNode
from tocsin.network.node import Node
from tocsin.network.payloads import PayloadCache
from tocsin.network.root import MessageLog, Root
from tocsin.network.wire import Fetch, Frame, decode, encode

SERVER = 0


class Loopback:
    """A tree of nodes with faults. Contents are compared whenever a client's watermark moves."""

    def __init__(
        self,
        seed: int,
        query: Callable[[random.Random], str],
        *,
        scheme: str,
        log_bytes: int,
        brokers: int,
        boxes: int,
        queries: int = 10,
        repository: int | None = None,
    ) -> None:
        """`repository`: bytes of payloads kept by the server and by about half of the brokers."""
        self.random = random.Random(seed)
        self.repository = repository
        self.bytes = self.fetches = 0  # sent over links; frames that fetch
        self.engine, self.scheme = Engine(), scheme
        self.engine.execute(TABLES)
        for _ in range(self.random.randint(0, 12)):
            change(self.random, self.engine)
        self.queries = [query(self.random) for _ in range(queries)]
        self.subscriptions = [self.engine.subscribe(sql) for sql in self.queries]
        self.now = 0.0
        self.service = self._service()
        self.states: dict[int, list[Counter]] = {}
        self.answers: dict[int, Answers] = {}
        self.deltas: dict[tuple[int, int], Counter] = {}  # by client and subscription: as deltas make it
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
        for number in range(len(self.queries)):
            name = 100 + number % 4
            if name not in self.clients:
                self.answers[name] = Answers()
                self.clients[name] = ClientNode(str(name), self.answers[name], lambda: self.now)
                self.attach(name, self.random.choice(list(self.nodes)))
            self.subscribe(number)

    def _service(self) -> DescribedQueries:
        return DescribedQueries(self.engine, scheme=self.scheme, clock=lambda: self.now)

    def _root(self) -> Root:
        name, log = f"server {next(self.starts)}", MessageLog(self.log_bytes)
        root = Root(name, self.service, log, digest_boxes=self.boxes)
        root.payloads = None if self.repository is None else PayloadCache(self.repository)
        root.watermark = log.first = self.engine.last_seq
        return root

    def _node(self) -> Node:
        repository = self.repository if self.random.random() < 0.6 else None
        return Node(digest_boxes=self.boxes, repository=repository)

    @property
    def seq(self) -> int:
        return self.engine.last_seq

    def _note(self) -> None:
        self.states[self.seq] = [bag(self.engine.content(one)) for one in self.subscriptions]

    def subscribe(self, number: int) -> None:
        name = 100 + number % 4
        self.answers[name].sql[number] = self.queries[number]
        body = encoded_request("", f"{name}/{number}", self.queries[number])
        self.send(name, self._up(name), self.clients[name].subscribe(number, body))

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
            self.send(receiver, link, self.clients[receiver].take(frame))
            self.compare(receiver)

    def compare(self, client: int) -> None:
        follower, answers = self.clients[client], self.answers[client]
        for name, deltas in answers.flush(follower.watermark):
            for delta in deltas:
                if (client, name) in self.deltas:
                    self.deltas[client, name][next(iter(bag([delta.row])))] += delta.sign
        for name, followed in follower.followed.items():
            if followed.is_ready:
                expected = self.states[follower.watermark][name]
                assert bag(answers.content(name)) == expected, (self.queries[name], follower.watermark)
                known = self.deltas.setdefault((client, name), Counter(expected))
                assert +known == expected, ("deltas", self.queries[name], follower.watermark)
                self.compared += 1

    def change(self) -> None:
        before = self.seq
        change(self.random, self.engine)
        if self.seq > before:
            self._note()
            root = self.nodes[SERVER]
            assert isinstance(root, Root)
            self.send_all(SERVER, root.flush())

    def come_or_go(self) -> None:
        """A client drops a subscription, or takes up one that it had dropped."""
        number = self.random.randrange(len(self.queries))
        name = 100 + number % 4
        client = self.clients[name]
        if number in client.followed:
            forget = encoded_request("", f"{name}/{number}", "") if self.random.random() < 0.8 else b""
            self.send(name, self._up(name), client.unsubscribe(number, forget))
            self.deltas.pop((name, number), None)
        else:
            self.subscribe(number)

    def fall_silent(self) -> None:
        """Time passes in which the server has had no request: all leases run out."""
        self.now += 1000.0
        for name, node in self.nodes.items():
            self.send_all(name, node.remind())

    def renew(self) -> None:
        for name, client in self.clients.items():
            self.send(name, self._up(name), client.renew(encoded_request("", f"{name}/", "")))

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
        self.service.close()
        self.service = self._service()
        self.nodes[SERVER] = self._root()
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
        """Deliver all, and repeat requests, until everybody has everything."""
        for _ in range(10):  # a watermark passes one node by tick
            while any(self.queues.values()):
                self.run(5)
            self.tick()
            self.renew()
            self.remind()
        while any(self.queues.values()):
            self.run(5)
        for client, follower in self.clients.items():
            assert not follower.is_resuming and follower.watermark == self.seq
            assert all(followed.is_ready for followed in follower.followed.values())
            self.compare(client)
            follower._check()
            self.answers[client]._check()
        for node in self.nodes.values():
            node._check()
        self.service._check()
