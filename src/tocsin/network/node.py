"""What a broker does, without I/O: frames in, frames out.

                 parent                 Update, Answer, Replay, Again      down
                   |
                 Node    RoutingTable   ClientRequest, Resume, NewDigest, Leave   up
                 /    \\
            broker    client            a number by link, never used again

A node has soft state alone: a digest by link, and how far it is (`watermark`). It may be killed and started
again at any time; whoever loses its parent takes another and *resumes*:

- The link brings frames in order while it lives. An Update has messages and a watermark; the node passes a
  watermark on only after the messages before it.
- Resume(watermark, boxes) goes up to the server. Every node on the way enters the boxes for the link it came
  by, so that messages after the answer find their way; the server answers with what its log has since. What
  a client may receive is not its own word: the server grants it, from above (Grant), before it answers.
- Until the answer is there, the node passes messages on, but no watermark of its new parent.
- An answer goes back over the very connections that the request came by, never over a later one to the same
  node: `_forwarded` has the link of each request, and drops it with the link.
- Requests and answers may be lost with a link; they are repeated after a while (`remind`), and at once where
  a node has found a parent again (`_unanswered`).

- A node with a repository (`payloads.py`) may get the id of a payload instead of the payload. If it has
  dropped it and somebody below needs it, frames of the parent wait until it has come (`_held`).

A subscription enters the digests on its way in the same manner: with the Answer, from the server downwards,
before any message that counts on it. NETWORK.md, section 10.6.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from tocsin.network.batches import MessageBatch
from tocsin.network.fanout import split
from tocsin.network.payloads import PayloadCache, ids_in, light_bits, payload_id
from tocsin.network.routing import Routed, RoutingTable, are_inside, digest_of, distance_of
from tocsin.network.wire import (
    MAX_PIECE,
    Again,
    Answer,
    ClientRequest,
    Fetch,
    FormBoxes,
    Frame,
    FrameError,
    Grant,
    Have,
    Leave,
    NewDigest,
    PackedBatch,
    Payloads,
    Place,
    Replay,
    Resume,
    Update,
    Where,
    read_boxes,
    write_boxes,
)

__all__ = ["DIGEST_BOXES", "MAX_POINTS", "Node", "Send"]

DIGEST_BOXES = 64  # of each form, of a link to a broker
FEW_SUBSCRIPTIONS = 16  # that a broker may have more than twice its share
MAX_POINTS = 100_000  # boxes that a peer may send at once


class Send(NamedTuple):
    """A frame for a link."""

    link: int
    frame: Frame


@dataclass
class _Child:
    """A link to a broker or client below."""

    is_client: bool
    incarnation: str = ""  # of a broker with a repository
    address: str = ""  # of a broker to which clients may be sent
    answers: int = 0
    watermark: int = -1  # the last one sent


class Node:
    """A broker: a parent, links below, and a table of what they want."""

    def __init__(self, *, digest_boxes: int = DIGEST_BOXES, repository: int | None = None) -> None:
        """`repository`: how many bytes of payloads it keeps; None: it gets and sends payloads each time."""
        self.watermark = 0
        self.server = ""  # whose watermarks these are
        self.table = RoutingTable()
        self.parent: int | None = None
        self.children: dict[int, _Child] = {}
        self._most = digest_boxes
        self._numbers = count(1)  # of requests
        self._forwarded: dict[int, tuple[int, int]] = {}  # by request passed up: link and number there
        self._unanswered: set[int] = set()  # links below whose requests were lost with the parent
        self._resumes: set[int] = set()  # own requests over this connection to the parent
        self._last_answer = 0  # of the parent
        self._entered = self._left = 0  # subscriptions below
        self.payloads = None if repository is None else PayloadCache(repository)
        self.incarnation = uuid4().hex if repository is not None else ""
        self._held: deque[Frame] = deque()  # from the parent, until payloads have come for the first
        self._fetchers: dict[bytes, set[int]] = {}  # by requested payload: the links that want it
        self._handlers: dict[type[Frame], Callable[[int, Any], list[Send]]] = {
            ClientRequest: self._client_request,
            Resume: self._resume,
            NewDigest: self._digest,
            Leave: self._leave,
            Have: self._have,
            Fetch: self._fetch,
            Where: self._where,
        }
        self._from_parent: dict[type[Frame], Callable[[Any], list[Send]]] = {
            Update: self._update,
            Answer: self._answer,
            Grant: self._grant,
            Replay: self._replay,
            Again: self._again,
            Payloads: self._fetched,
        }

    # -- links -------------------------------------------------------------------------------------

    def add_child(self, link: int, *, is_client: bool, incarnation: str = "", address: str = "") -> None:
        """A link to a client or broker below; with a repository it has an incarnation."""
        self.children[link] = _Child(is_client) if is_client else _Child(False, incarnation, address)

    def drop_child(self, link: int) -> list[Send]:
        """A link below is closed."""
        if self.children.pop(link, None) is None:
            return []
        self._unanswered.discard(link)
        self._forwarded = {own: origin for own, origin in self._forwarded.items() if origin[0] != link}
        return self._less(self.table.remove(link))

    def set_parent(self, link: int, server: str) -> list[Send]:
        """A link to a new parent, which belongs to a server."""
        self.drop_parent()
        self.parent = link
        if not self.server:
            self.server = server
        again = [Send(link, Again()) for link in sorted(self._unanswered)]
        self._unanswered.clear()
        return self._request_resume() + again

    def drop_parent(self) -> None:
        """The link to the parent is closed; requests over it will not be answered."""
        self.parent = None
        self._unanswered.update(link for link, _ in self._forwarded.values())
        self._forwarded.clear()
        self._resumes.clear()
        self._last_answer = 0
        self._held.clear()
        self._fetchers.clear()
        if self.payloads is not None:
            self.payloads.drop_frame()

    @property
    def is_resuming(self) -> bool:
        """Whether watermarks of the parent do not count yet."""
        return bool(self._resumes)

    # -- frames ------------------------------------------------------------------------------------

    def take(self, link: int, frame: Frame) -> list[Send]:
        """The frames to send because of one that came; FrameError if it has no place here."""
        if link == self.parent:
            if handler := self._from_parent.get(type(frame)):
                if self._held and not isinstance(frame, Payloads):
                    self._held.append(frame)
                    return []
                return handler(frame)
        elif link in self.children and (other := self._handlers.get(type(frame))):
            return other(link, frame)
        raise FrameError(f"a {type(frame).__name__} has no place on this connection")

    def tick(self) -> list[Send]:
        """Watermarks for links that had no message lately."""
        late = [link for link, child in self.children.items() if child.watermark < self.watermark]
        return [self._update_for(link, PackedBatch()) for link in late]

    def remind(self) -> list[Send]:
        """Repeat requests, if the answer may be lost."""
        return (self._request_resume() if self.is_resuming else []) + self._request_payloads()

    # -- from above --------------------------------------------------------------------------------

    def _update(self, update: Update) -> list[Send]:
        batch = update.batch.open()
        light = light_bits(update.light, batch)
        if light.any():
            if self.payloads is None:
                raise FrameError("ids of payloads, and there is no repository")
            self.payloads.open(batch, light, self.table.routed(batch), self._incarnations())
            if self.payloads.missing:
                self._held.append(update)
                return self._request_payloads()
        if not self.is_resuming:
            self.watermark = max(self.watermark, update.watermark)
        return self.send_down(batch, light)

    def send_down(self, batch: MessageBatch, light: NDArray[np.bool_] | None = None) -> list[Send]:
        """Messages to the links that want them, with the watermark."""
        if not len(batch):
            return []
        routed, incarnations = self.table.routed(batch), self._incarnations()
        if self.payloads is not None and (self.incarnation or incarnations):
            return self._send_payloads(self.payloads, batch, light, routed, incarnations)
        parts = zip(routed.links.tolist(), split(batch, routed, MAX_PIECE), strict=True)
        return [send for link, pieces in parts for send in self._updates_for(link, pieces)]

    def _updates_for(self, link: int, pieces: list[PackedBatch]) -> list[Send]:
        """Messages in as many frames as they need; the last one has the watermark."""
        *first, last = pieces
        before = self.children[link].watermark
        return [*(Send(link, Update(before, piece)) for piece in first), self._update_for(link, last)]

    def _update_for(self, link: int, batch: PackedBatch) -> Send:
        self.children[link].watermark = self.watermark
        return Send(link, Update(self.watermark, batch))

    # -- payloads ----------------------------------------------------------------------------------

    def _incarnations(self) -> dict[int, str]:
        """Of links to brokers with a repository."""
        return {link: child.incarnation for link, child in self.children.items() if child.incarnation}

    def _send_payloads(
        self,
        cache: PayloadCache,
        batch: MessageBatch,
        light: NDArray[np.bool_] | None,
        routed: Routed,
        incarnations: dict[int, str],
    ) -> list[Send]:
        """As `send_down`, with ids for payloads that brokers below have; acknowledges those that came."""
        bits = np.zeros(len(batch), np.bool_) if light is None else light
        opened, idents, payloads, came = cache.open(batch, bits, routed, incarnations)
        assert not cache.missing
        cache.drop_frame()
        sent = cache.lightened(idents, payloads)
        sends = [Send(self.parent, Have(came))] if came and self.incarnation and self.parent else []
        for i, link in enumerate(routed.links.tolist()):
            mine = routed.message[routed.start[i] : routed.start[i + 1]]
            if link not in incarnations:
                pieces = [PackedBatch.of(piece) for piece in opened.take(mine).pieces(MAX_PIECE)]
                sends += self._updates_for(link, pieces)
                continue
            number, before = cache.number_of(incarnations[link]), self.children[link].watermark
            parts = [cache.packed(opened, part, idents, sent, number) for part in _pieces(opened, mine)]
            self.children[link].watermark = self.watermark
            marks = [before] * (len(parts) - 1) + [self.watermark]
            sends += [Send(link, Update(mark, *part)) for mark, part in zip(marks, parts, strict=True)]
        return sends

    def _have(self, link: int, have: Have) -> list[Send]:
        ids = ids_in(have.ids)
        if self.payloads is not None and (incarnation := self.children[link].incarnation):
            self.payloads.acknowledged(incarnation, ids)
        return []

    def _fetch(self, link: int, fetch: Fetch) -> list[Send]:
        """Payloads that a broker below lacks: from the repository, else from above."""
        incarnation = self.children[link].incarnation
        if not incarnation:
            raise FrameError("only a broker with a repository fetches payloads")
        found: list[tuple[bytes, bytes | None]] = []
        unknown = []
        for ident in ids_in(fetch.ids):
            payload = None if self.payloads is None else self.payloads.found(incarnation, ident)
            if payload is not None or self.is_top:
                found.append((ident, payload))
            else:
                self._fetchers.setdefault(ident, set()).add(link)
                unknown.append(ident)
        sends = _payloads_to(link, found)
        if unknown and self.parent is not None:  # else they repeat the request
            sends.append(Send(self.parent, Fetch(b"".join(unknown))))
        return sends

    @property
    def is_top(self) -> bool:
        """Whether there is never a parent to request from."""
        return False

    def _request_payloads(self) -> list[Send]:
        if not self._held or self.parent is None or self.payloads is None:
            return []
        return [Send(self.parent, Fetch(b"".join(sorted(self.payloads.missing))))]

    def _fetched(self, frame: Payloads) -> list[Send]:
        """Payloads for links below that requested them, and for the frame that waits."""
        sends, by_link = [], {}  # type: list[Send], dict[int, list[tuple[bytes, bytes | None]]]
        gone = set()
        for ident, payload in frame.found:
            if payload is not None and payload_id(payload) != ident:
                raise FrameError("a payload has another id")
            for link in self._fetchers.pop(ident, ()):
                by_link.setdefault(link, []).append((ident, payload))
            if self.payloads is not None and ident in self.payloads.missing:
                self.payloads.missing.remove(ident)
                if payload is None:
                    gone.add(ident)
                else:
                    self.payloads.fetched[ident] = payload
        for link, found in by_link.items():
            if link in self.children:
                sends += _payloads_to(link, found)
        if gone:
            self._held[0] = _without(self._held[0], gone)
            sends += self._request_resume()  # the log has them
        return sends + self._release()

    def _release(self) -> list[Send]:
        """Take the frames that have waited, up to one that must wait again."""
        sends: list[Send] = []
        if self._held and self.payloads is not None and not self.payloads.missing:
            held, self._held = self._held, deque()
            assert self.parent is not None
            while held and not self._held:
                sends += self.take(self.parent, held.popleft())
            self._held.extend(held)
        return sends

    # -- answers from above ------------------------------------------------------------------------

    def _answer(self, answer: Answer) -> list[Send]:
        self._last_answer = max(self._last_answer, answer.number)
        origin = self._forwarded.pop(answer.request, None)
        return [] if origin is None else self.answer(*origin, answer)

    def answer(self, link: int, request: int, answer: Answer) -> list[Send]:
        """Pass an answer down, and enter what it says for the link."""
        child = self.children[link]
        wanted = read_boxes(answer.forms, MAX_POINTS)
        self._enter(link, wanted)
        self._entered += len(wanted[0])
        child.answers += 1
        # a client takes up a snapshot when its watermark has come that far
        sends = [self._update_for(link, PackedBatch())] if child.watermark < self.watermark else []
        return [*sends, Send(link, Answer(request, child.answers, answer.forms, answer.failure, answer.body))]

    def _grant(self, grant: Grant) -> list[Send]:
        self._last_answer = max(self._last_answer, grant.number)
        origin = self._forwarded.get(grant.request)  # the Replay is still to come
        return [] if origin is None else self.grant(*origin, grant.forms)

    def grant(self, link: int, request: int, forms: bytes) -> list[Send]:
        """Enter for a link what a client that resumes may receive, and pass it down."""
        child = self.children[link]
        self._enter(link, read_boxes(forms, MAX_POINTS))
        child.answers += 1
        return [Send(link, Grant(request, child.answers, forms))]

    def _replay(self, replay: Replay) -> list[Send]:
        if replay.request not in self._resumes:
            origin = self._forwarded.pop(replay.request, None)
            if origin is None:
                return []
            link, request = origin
            passed = (replay.upto, replay.server, replay.snapshots, replay.is_complete, replay.batch)
            return [Send(link, Replay(request, *passed))]
        self._resumes.clear()
        if not replay.is_complete or replay.server != self.server:
            self.server, self.watermark = replay.server, replay.upto
            for child in self.children.values():
                child.watermark = -1
            return [Send(link, Again()) for link in self.children]
        self.watermark = max(self.watermark, replay.upto)
        return self.send_down(replay.batch.open())

    def _again(self, again: Again) -> list[Send]:
        return self._request_resume()

    def _request_resume(self) -> list[Send]:
        if self.parent is None:
            return []
        request = next(self._numbers)
        self._resumes.add(request)
        boxes = write_boxes(*self._all_below())
        return [Send(self.parent, Resume(request, self.server, self.watermark, boxes, "", []))]

    # -- from below --------------------------------------------------------------------------------

    def _client_request(self, link: int, request: ClientRequest) -> list[Send]:
        return self._pass_up(link, request.request, lambda own: ClientRequest(own, request.body))

    def _resume(self, link: int, resume: Resume) -> list[Send]:
        boxes = b"" if self.children[link].is_client else resume.boxes  # clients: what they are granted
        self._enter(link, read_boxes(boxes, MAX_POINTS))
        passed = (resume.server, resume.watermark, boxes, resume.key, resume.subscriptions)
        return self._pass_up(link, resume.request, lambda own: Resume(own, *passed))

    def _pass_up(self, link: int, request: int, made: Callable[[int], Frame]) -> list[Send]:
        if self.parent is None:
            self._unanswered.add(link)
            return []
        own = next(self._numbers)
        self._forwarded[own] = link, request
        return [Send(self.parent, made(own))]

    def _leave(self, link: int, leave: Leave) -> list[Send]:
        """A client does not want some points any more; passed over as below."""
        boxes = read_boxes(leave.boxes, MAX_POINTS)
        if not self.children[link].is_client or leave.upto != self.children[link].answers:
            return []
        return self._less(self.table.remove_points(link, *boxes))

    def _digest(self, link: int, digest: NewDigest) -> list[Send]:
        """Less is wanted below a link; passed over if another answer was on its way to the sender."""
        boxes = read_boxes(digest.boxes, MAX_POINTS)
        if self.children[link].is_client or digest.upto != self.children[link].answers:
            return []
        self.table.remove(link)
        self._enter(link, boxes)
        return self._less(self._entered)

    def _less(self, left: int) -> list[Send]:
        """Send the parent a new digest, once a quarter of the subscriptions below has left since."""
        self._left += left
        if self.parent is None or not left or 4 * self._left < self._entered:
            return []
        self._entered, self._left = max(0, self._entered - self._left), 0
        return [Send(self.parent, NewDigest(self._last_answer, write_boxes(*self._all_below())))]

    def _where(self, link: int, where: Where) -> list[Send]:
        """Which broker below is nearest to a client's points: its digest grows least with them.

        One that has more than twice its share of the subscriptions is passed over.
        """
        wanted = read_boxes(where.boxes, MAX_POINTS)
        others = [(other, child) for other, child in self.children.items() if child.address]
        most = 2 * sum(child.answers for _, child in others) / max(1, len(others)) + FEW_SUBSCRIPTIONS
        free = [
            (distance_of(wanted, self.table.boxes_of([other])), child.answers, child.address)
            for other, child in others
            if child.answers < most
        ]
        return [Send(link, Place(min(free)[2] if free else ""))]

    def _all_below(self) -> FormBoxes:
        return digest_of(*self.table.boxes_of(), self._most)

    def _enter(self, link: int, wanted: FormBoxes) -> None:
        """Enter boxes for a link, besides what it has: as they are for a client, in a digest for a broker.

        Nothing is taken away: a question may be older than an answer that is on its way to the asker.
        """
        before = self.table.boxes_of([link])
        new = ~are_inside(wanted, before)
        forms, boxes = wanted[0][new], wanted[1][new]
        if len(forms) and not self.children[link].is_client:
            both = np.concatenate([before[0], forms]), np.concatenate([before[1], boxes])
            forms, boxes = digest_of(*both, self._most)
            self.table.remove(link)
        self.table.enter(link, forms, boxes)

    def _check(self) -> None:
        self.table._check()
        assert all(origin[0] in self.children for origin in self._forwarded.values())
        assert self._unanswered <= set(self.children)
        if self.payloads is not None:
            self.payloads._check()
            assert bool(self._held) == bool(self.payloads.missing), "frames wait for payloads alone"


def _pieces(batch: MessageBatch, mine: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """Numbers of messages whose frames are short enough."""
    at = 0
    for piece in batch.take(mine).pieces(MAX_PIECE):
        yield mine[at : at + len(piece)]
        at += len(piece)


def _payloads_to(link: int, found: Sequence[tuple[bytes, bytes | None]]) -> list[Send]:
    """In as many frames as they need."""
    sends: list[Send] = []
    size = MAX_PIECE
    for ident, payload in found:
        size += len(payload or b"") + 32
        if size > MAX_PIECE:
            sends.append(Send(link, Payloads([])))
            size = 0
        frame = sends[-1].frame
        assert isinstance(frame, Payloads)
        frame.found.append((ident, payload))
    return sends


def _without(frame: Frame, gone: set[bytes]) -> Update:
    """An Update without the messages whose payloads nobody has."""
    assert isinstance(frame, Update)
    batch = frame.batch.open()
    light = light_bits(frame.light, batch)
    kept = np.array([not is_light or batch.body(m) not in gone for m, is_light in enumerate(light.tolist())])
    return Update(frame.watermark, PackedBatch.of(batch.take(kept)), np.packbits(light[kept]).tobytes())
