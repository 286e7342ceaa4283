"""The queries of an engine as messages: what a server sends instead of deltas.

    engine ─ on_step ─► DescribedQueries ─► MessageBatch ─► Root ─► brokers ─► clients
                         forms (`forms.py`, `ranked_forms.py`, `split_forms.py`), chosen by `form_choice.py`

A client requests a query by SQL. The server places it: one or several forms, and a point in each. A change
becomes messages of the forms; the client receives those whose regions contain its points, and keeps rows or
values from which it evaluates the query itself (`holdings.py`, `answers.py`).

Who wants the messages without a network has them from `describe`:

>>> engine = Engine()
>>> engine.execute("CREATE TABLE stocks (symbol STRING, per DOUBLE, PRIMARY KEY (symbol))")
>>> described = describe(engine)
>>> followed = described.follow("SELECT MIN(per) FROM stocks WHERE per > 10")
>>> _ = engine.insert("stocks", {"symbol": "GOOG", "per": 17.5})
>>> seq, batch = described.described()
>>> seq, batch.body(0), batch.messages.regions.contain(followed.points[0]).tolist()
(1, b'{"min(per)":17.5}', [True])

A step is described change by change, in order of seq. J08, sections 3 and 4; K12; T07, chapter 5.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from hmac import compare_digest
from itertools import count
from time import monotonic
from typing import Any, NamedTuple

import msgspec
import numpy as np

from tocsin.engine import Engine
from tocsin.errors import SubscriptionError, TocsinError, UsageError
from tocsin.join.signature import Numbering, Signature
from tocsin.language.algebra import Query
from tocsin.language.shape import Plan
from tocsin.model.message import Messages
from tocsin.model.texts import TextNumbers
from tocsin.network.batches import MessageBatch
from tocsin.network.form_choice import FormKey, PlacedPart, can_be_followed, decomposition_of, parts_of
from tocsin.network.forms import EventsForm, EventsKey, Form, JoinForm, JoinKey, Point, RowsForm, RowsKey
from tocsin.network.holdings import Part, Snapshot
from tocsin.network.ranked_forms import FirstForm, FirstKey, SetForm, SetKey, ValueForm, ValueKey
from tocsin.network.root import Reply
from tocsin.network.routing import NO_BOXES, points_as_boxes
from tocsin.network.rows import RowIds, TableChanges
from tocsin.network.split_forms import SplitForm
from tocsin.network.wire import FormBoxes
from tocsin.reformulate.decompose import Decomposition
from tocsin.reformulate.joins import (
    DescribedScheme,
    RelaxedSelections,
    SemijoinsByClusters,
    SemijoinsByRanges,
    SemijoinsByTuples,
    SemijoinsFewest,
    SemijoinsMerged,
)
from tocsin.store.step import Step
from tocsin.store.tables import TableStore

__all__ = [
    *("LEASE", "SCHEMES", "DescribedQueries", "FollowRequest", "FollowedQuery", "Numbers"),
    *("TokenScope", "describe", "encoded_request"),
]

SCHEMES: dict[str, type[DescribedScheme] | None] = {
    made.name: made
    for made in (
        *(SemijoinsMerged, SemijoinsByTuples, SemijoinsByRanges, SemijoinsByClusters, SemijoinsFewest),
    )
} | {RelaxedSelections.name: None}
"""How joins are described; None: by the rows that one range selects, as everything else is then."""
LEASE = 60.0
"""Seconds of silence after which a client is removed."""
_MAX_CONDITIONAL = 64  # forms with a condition: each costs an evaluation of every changed row


class FollowRequest(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """A client's request to follow a query, under a key of its own, so that repeating it changes nothing.

    The key is that of the client, a slash, and a name. Without SQL the subscription of the key ends; with a
    key that ends in a slash, all subscriptions of the client are kept for another lease.
    """

    token: str
    key: str
    sql: str


def encoded_request(token: str, key: str, sql: str) -> bytes:
    """A request as bytes."""
    return msgspec.msgpack.encode(FollowRequest(token, key, sql))


@dataclass(frozen=True)
class TokenScope:
    """What a token allows: tables and streams that it may read, None for all.

    With `private`, whoever has the token receives messages that show nothing but rows of its own answers.
    """

    tables: Collection[str] | None = None
    private: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.tables, str):
            raise UsageError(f"the tables of a token are {self.tables!r}", hint=f"a list: [{self.tables!r}]")

    @classmethod
    def of(cls, given: TokenScope | Collection[str] | None) -> TokenScope:
        return given if isinstance(given, TokenScope) else cls(given)


class FollowedQuery(NamedTuple):
    """A query that is described: its number, the form of each of its points, and its content as it begins."""

    number: int
    forms: tuple[int, ...]
    points: tuple[Point, ...]
    snapshot: Snapshot


class _Known(NamedTuple):
    """A subscription of a client."""

    parts: list[tuple[Form, int]]  # with a slot in each form; none: it can never have an answer
    query: Query
    key: str  # of the client, which nobody else knows


class Numbers:
    """How forms, rows of tables and keys that are texts are numbered: as they come."""

    def __init__(self) -> None:
        self._forms = count()

    def form(self, key: FormKey) -> int:
        """The number of a new form."""
        return next(self._forms)

    def rows(self, store: TableStore) -> RowIds:
        """The numbers of a table's rows."""
        return RowIds(store)

    def keys(self) -> dict[Numbering, TextNumbers]:
        """The numbers of a new form's keys."""
        return {}


class DescribedQueries:
    """The queries of an engine that are followed over a network; a `Service` of `root.py`.

    `lease`: after so many seconds without a word a client's subscriptions end; None: never.
    """

    def __init__(
        self,
        engine: Engine,
        scopes: Mapping[str, TokenScope | Collection[str] | None] | None = None,
        scheme: str = SemijoinsMerged.name,
        *,
        lease: float | None = LEASE,
        clock: Callable[[], float] = monotonic,
        numbers: Numbers | None = None,
    ) -> None:
        if lease is not None and not lease > 0:
            raise UsageError(f"a lease of {lease} seconds", hint="None keeps subscriptions for ever")
        if scheme not in SCHEMES:
            raise UsageError(
                f"there is no scheme {scheme!r} for clients", hint=f"one of {', '.join(SCHEMES)}"
            )
        self._engine, self._scheme = engine, SCHEMES[scheme]
        self._scopes = None if scopes is None else {t: TokenScope.of(given) for t, given in scopes.items()}
        self._forms: dict[FormKey, Form] = {}
        self._chosen: dict[Signature, Decomposition] = {}
        self._ids: dict[str, RowIds] = {}
        self._known: dict[int, _Known] = {}  # by number
        self._numbers: dict[str, int] = {}  # by key of a client
        self._next = count()
        self._slots = count()  # of forms
        self._free: list[int] = []
        self._described: list[MessageBatch] = []
        self._numbering = numbers or Numbers()
        self._lease, self._clock = lease, clock
        self._last_request: dict[str, float] = {}  # by client, when its last request came
        self._of_client: dict[str, set[str]] = {}  # by client, its keys
        self._stop = engine.on_step(self._step, self._users)

    def close(self) -> None:
        """Describe no further steps."""
        self._stop()

    # -- for users without a network -----------------------------------------------------------------

    def follow(self, sql: str) -> FollowedQuery:
        """Describe a query from now on; a TocsinError if it cannot be."""
        with self._engine.lock:
            number = self._subscribe(FollowRequest("", "", sql), TokenScope())
            snapshot = self._snapshot(number, self._engine.last_seq)
            forms, points = ([getattr(part, name) for part in snapshot.parts] for name in ("form", "point"))
            return FollowedQuery(number, tuple(forms), tuple(points), snapshot)

    def unfollow(self, followed: FollowedQuery) -> None:
        """Describe it no more."""
        with self._engine.lock:
            self._remove(followed.number)

    # -- service -----------------------------------------------------------------------------------

    def frozen(self) -> AbstractContextManager[Any]:
        return self._engine.lock

    def described(self) -> tuple[int, MessageBatch]:
        """The last seq, and the messages up to it that were not returned before."""
        with self._engine.lock:
            batch, self._described = MessageBatch.concat(self._described), []
            return self._engine.last_seq, batch

    def reply(self, body: bytes, seq: int) -> Reply:
        try:
            request = msgspec.msgpack.decode(body, type=FollowRequest)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise TocsinError(f"a request cannot be read: {error}") from None
        client, _, name = request.key.rpartition("/")
        with self._engine.lock:
            if not name:
                self._renew(client)
                return Reply(NO_BOXES, b"")
            number = self._numbers.get(request.key)
            if not request.sql:
                self._unsubscribe(request.key)
                return Reply(NO_BOXES, b"")
            if number is None:
                number = self._subscribe(request, self._scope(request.token))
                self._numbers[request.key] = number
                self._of_client.setdefault(client, set()).add(request.key)
            self._last_request[client] = self._clock()
            snapshot = msgspec.msgpack.encode(self._snapshot(number, seq))
            return Reply(self._wanted_by(self._known[number]), snapshot)

    def wanted(self, key: str, subscriptions: Sequence[int]) -> tuple[list[int], FormBoxes]:
        with self._engine.lock:
            own = {
                number: known
                for number in subscriptions
                if (known := self._known.get(number)) is not None
                and compare_digest(known.key.rpartition("/")[0].encode(), key.encode())
            }
            if own:
                self._last_request[key] = self._clock()
            found = [self._wanted_by(known) for known in own.values()]
        forms, boxes = zip(*found, strict=True) if found else ([NO_BOXES[0]], [NO_BOXES[1]])
        return list(own), (np.concatenate(forms), np.concatenate(boxes))

    @staticmethod
    def _wanted_by(known: _Known) -> FormBoxes:
        if not known.parts:
            return NO_BOXES
        points = points_as_boxes([form.points[slot] for form, slot in known.parts])
        return np.array([form.number for form, _ in known.parts], np.int64), points

    def snapshots(self, subscriptions: Sequence[int], seq: int) -> list[bytes]:
        with self._engine.lock:
            return [
                msgspec.msgpack.encode(self._snapshot(number, seq)) if number in self._known else b""
                for number in subscriptions
            ]

    def expire(self) -> int:
        """Remove clients whose lease has run out; returns how many subscriptions ended."""
        if self._lease is None:
            return 0
        with self._engine.lock:
            late = [client for client, at in self._last_request.items() if self._clock() - at > self._lease]
            keys = [key for client in late for key in self._of_client.get(client, ())]
            for key in keys:
                self._unsubscribe(key)
            for client in late:
                self._last_request.pop(client, None)
            return len(keys)

    def _renew(self, client: str) -> None:
        if client not in self._last_request:
            raise SubscriptionError("the lease of this client has run out", hint="resume")
        self._last_request[client] = self._clock()

    # -- subscriptions -----------------------------------------------------------------------------

    def _subscribe(self, request: FollowRequest, scope: TokenScope) -> int:
        plan = self._engine.plan(request.sql)
        for table in plan.query.tables:
            if scope.tables is not None and table.name not in scope.tables:
                raise SubscriptionError(
                    f"the token does not allow to read {table.name}", hint="tokens={token: tables} of serve"
                )
        can_be_followed(plan)
        self._discard_dropped(self._engine.step().tables)
        parts = self._parts(plan, private=scope.private or self._scheme is None)
        number = next(self._next)
        self._enter(number, plan.query, parts, request.key)
        return number

    def _enter(self, number: int, query: Query, parts: Iterable[PlacedPart], key: str = "") -> None:
        """Have a subscription under a number that is not in use."""
        entered: list[tuple[Form, int]] = []
        for part in parts:
            form = self._form(part.key)
            slot = self._free.pop() if self._free else next(self._slots)
            form.add(slot, part.point)
            entered.append((form, slot))
        self._known[number] = _Known(entered, query, key)

    def _parts(self, plan: Plan, *, private: bool) -> list[PlacedPart]:
        """The parts of a query; by rows alone if there are too many forms with a condition."""

        def placed(private: bool) -> list[PlacedPart]:
            return parts_of(plan, self._engine.schema, self._decomposition, private=private)

        parts = placed(private)
        fresh = [part.key for part in parts if _is_conditional(part.key) and part.key not in self._forms]
        if fresh and sum(map(_is_conditional, self._forms)) + len(fresh) > _MAX_CONDITIONAL:
            self._drop_unused()
            if sum(map(_is_conditional, self._forms)) + len(fresh) > _MAX_CONDITIONAL:
                return placed(True)
        return parts

    def _decomposition(self, signature: Signature) -> Decomposition:
        if signature not in self._chosen:
            self._chosen[signature] = decomposition_of(signature, self._engine.step().tables)
        return self._chosen[signature]

    def _scope(self, token: str) -> TokenScope:
        if self._scopes is None:
            return TokenScope()
        found = [
            scope for known, scope in self._scopes.items() if compare_digest(known.encode(), token.encode())
        ]
        if not found:
            raise SubscriptionError("the token is unknown", hint="ask the owner of the server for one")
        return found[0]

    def _unsubscribe(self, key: str) -> None:
        number = self._numbers.pop(key, None)
        if number is None:
            return
        client = key.rpartition("/")[0]
        self._of_client[client].discard(key)
        if not self._of_client[client]:
            del self._of_client[client]
            self._last_request.pop(client, None)
        self._remove(number)

    def _remove(self, number: int) -> None:
        for form, slot in self._known.pop(number).parts:
            form.remove(slot)
            self._free.append(slot)

    def _users(self) -> Counter[str]:
        """How many subscriptions use each table."""
        return Counter(
            name for known in self._known.values() for name in {table.name for table in known.query.tables}
        )

    # -- forms -------------------------------------------------------------------------------------

    def _discard_dropped(self, tables: Mapping[str, Any]) -> None:
        """Discard tables that are not there any more, or are others of the same name; nobody follows them."""
        dropped = {
            name
            for name, ids in self._ids.items()
            if name not in tables or tables[name].schema is not ids.schema
        }
        if dropped:
            self._ids = {name: ids for name, ids in self._ids.items() if name not in dropped}
            self._forms = {
                key: form for key, form in self._forms.items() if not dropped.intersection(key.relations)
            }
            self._chosen.clear()

    def _drop_unused(self) -> None:
        """Drop forms without subscriptions, and tables without forms."""
        self._forms = {key: form for key, form in self._forms.items() if form.points}
        used = {name for key in self._forms for name in key.relations}
        self._ids = {name: ids for name, ids in self._ids.items() if name in used}

    def _form(self, key: FormKey) -> Form:
        form = self._forms.get(key)
        if form is None:
            form = self._forms[key] = self._made(key)
            step = self._engine.step()
            for table in key.relations:
                if table not in self._ids and table in step.tables:
                    self._ids[table] = self._numbering.rows(step.tables[table])
            form.load(step, self._ids)
        return form

    def _made(self, key: FormKey) -> Form:
        number = self._numbering.form(key)
        if isinstance(key, JoinKey):
            assert self._scheme is not None
            return JoinForm(number, key, self._scheme, self._numbering.keys())
        if isinstance(key, RowsKey):
            return SplitForm(number, key) if key.payload else RowsForm(number, key)
        if isinstance(key, EventsKey):
            return EventsForm(number, key)
        if isinstance(key, FirstKey):
            return FirstForm(number, key, self._engine.schema(key.table).key)
        return ValueForm(number, key) if isinstance(key, ValueKey) else SetForm(number, key)

    def _snapshot(self, number: int, seq: int) -> Snapshot:
        known, step = self._known[number], self._engine.step()
        names = {table.name for table in known.query.tables}
        parts = [self._part(form, slot, step) for form, slot in known.parts]
        definitions = {name: str(self._engine.schema(name)) for name in names}
        return Snapshot(number, seq, definitions, parts, self._lease or 0.0)

    def _part(self, form: Form, slot: int, step: Step) -> Part:
        limit = form.key.k if isinstance(form, FirstForm) else 0
        held = form.held(slot, step, self._ids)
        return Part(form.number, form.kind, form.tables, form.points[slot], limit, held)

    # -- steps -------------------------------------------------------------------------------------

    def _step(self, step: Step) -> None:
        """Describe a step that is about to be committed."""
        self._discard_dropped(step.tables)
        changes = {}
        for table, ids in self._ids.items():
            if table in step.changed:
                position, old, new = step.changed[table]
                changes[table] = TableChanges(position, old, new, ids.advance(old, new))
        for key, form in self._forms.items():
            if isinstance(form, EventsForm):
                if form.points and form.key.stream in step.events:
                    self._say(form, form.describe(step, changes, self._ids), None)
            elif any(table in changes for table in key.relations):
                self._say(form, form.describe(step, changes, self._ids), step.seq)
        for table, mine in changes.items():
            self._ids[table].discard(mine.new, mine.ids)

    def _say(self, form: Form, description: tuple[Messages, list[bytes]] | None, seq: Any) -> None:
        if description is None or not form.points:
            return
        messages, texts = description
        numbered = messages if seq is None else replace(messages, seq=seq[messages.seq])
        self._described.append(MessageBatch.of(numbered, form.number, texts))

    def stats(self) -> dict[str, Any]:
        """How many subscriptions and forms there are."""
        return {"subscriptions": len(self._known), "forms": len(self._forms)}

    def _check(self) -> None:
        tables = self._engine.step().tables
        for form in self._forms.values():
            form._check()
            mine = [slot for known in self._known.values() for other, slot in known.parts if other is form]
            assert sorted(form.points) == sorted(mine)
        for table, ids in self._ids.items():
            ids._check(tables[table])
        assert set(self._last_request) == set(self._of_client)


def _is_conditional(key: FormKey) -> bool:
    return isinstance(key, FirstKey | ValueKey | SetKey) and not key.condition.always


def describe(engine: Engine, *, scheme: str = SemijoinsMerged.name) -> DescribedQueries:
    """The server's side without a network: follow queries, and take the messages that changes become.

    `follow` gives a query's points and its content, `described` the messages of all changes since the last
    call; `tocsin.network.holdings` keeps contents from them. Close it at the end.
    """
    return DescribedQueries(engine, scheme=scheme, lease=None)
