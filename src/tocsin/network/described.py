"""The joins of an engine as messages: what a server sends instead of deltas.

    engine ─ on_step ─► DescribedJoins ─► MessageBatch ─► Root ─► brokers ─► clients
                         a form by signature and attributes, each with a scheme (`reformulate/joins.py`)

A client asks for a join of two tables by SQL. Of the conditions on each table one range routes, as in the
join room (`predicate/verify.py`); the client verifies the rest: it receives the rows of both tables that the
ranges select and that have a partner, and evaluates the query over them itself. Rows have a number as long
as they live, whatever their key is.

A step is described change by change, in order of seq. J08, sections 3 and 4.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from hmac import compare_digest
from itertools import count
from typing import Any, NamedTuple

import msgspec
import numpy as np

from tocsin.engine import Engine
from tocsin.errors import SubscriptionError, TocsinError, UsageError
from tocsin.join.signature import KeySpec, Numbering, Signature
from tocsin.join.tables import key_codes
from tocsin.language.shape import Plan, Shape
from tocsin.model.columns import Index, Mask, Rows, column_codes, longer
from tocsin.model.json_rows import to_json
from tocsin.model.message import GREATEST, LEAST, MessageKind, Messages
from tocsin.model.schema import Type
from tocsin.model.texts import TextNumbers, laid_out
from tocsin.network.batches import MessageBatch
from tocsin.network.follower import Snapshot
from tocsin.network.root import Reply
from tocsin.network.routing import NO_BOXES, points_as_boxes
from tocsin.network.wire import FormBoxes
from tocsin.predicate.codes import text_hashes
from tocsin.predicate.compile import flatten
from tocsin.predicate.verify import selections
from tocsin.reformulate._kernels.joins import RowChanges
from tocsin.reformulate.base import Scheme
from tocsin.reformulate.contents import Bodies, SelectionContents
from tocsin.reformulate.joins import (
    RelaxedSelections,
    SemijoinsByClusters,
    SemijoinsByRanges,
    SemijoinsByTuples,
    SemijoinsFewest,
    SemijoinsMerged,
)
from tocsin.stab.groups import Ranges
from tocsin.store.step import Step
from tocsin.store.tables import TableStore

__all__ = ["SCHEMES", "DescribedJoins", "FollowRequest", "JoinForm", "RowIds", "encoded_request"]

SCHEMES: dict[str, type[Scheme]] = {
    made.name: made
    for made in (
        *(SemijoinsMerged, SemijoinsByTuples, SemijoinsByRanges, SemijoinsByClusters, SemijoinsFewest),
        RelaxedSelections,
    )
}
"""Those whose clients hold rows of both tables."""
_HINT = "two tables that are joined by equality can be followed over a network; use an engine's deltas"


class FollowRequest(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """What a client asks: follow a query, under a key of its own, so that asking twice is asking once."""

    token: str
    key: str
    sql: str


def encoded_request(token: str, key: str, sql: str) -> bytes:
    """A request as bytes; without SQL it ends the subscription of the key."""
    return msgspec.msgpack.encode(FollowRequest(token, key, sql))


class _Ranges(NamedTuple):
    """A subscription: by side an attribute, or None, and the range of its codes."""

    attributes: tuple[str | None, str | None]
    ends: tuple[tuple[int, int], tuple[int, int]]


class RowIds:
    """The number of each row of a table by slot; a version of a row has the number of the one before."""

    def __init__(self, store: TableStore) -> None:
        self.schema = store.schema
        present = np.flatnonzero(store.present())
        self._id = np.full(len(store.born), -1, np.int64)
        self._id[present] = np.arange(len(present))
        self._slot = dict(enumerate(present.tolist()))
        self._next = len(present)

    def of(self, slots: Index) -> Index:
        return self._id[slots]

    def slots(self, ids: Index) -> Index:
        """The slots of the last versions."""
        return np.array([self._slot[id] for id in ids.tolist()], np.int64)

    def advance(self, old: Index, new: Index) -> Index:
        """The numbers of changed rows, from their slots before and after, -1 for none."""
        self._id = longer(self._id, int(max(new.max(initial=-1), len(self._id) - 1)) + 1)
        ids = np.empty(len(old), np.int64)
        for i, (before, after) in enumerate(zip(old.tolist(), new.tolist(), strict=True)):
            if before < 0:
                ids[i], self._next = self._next, self._next + 1
            else:
                ids[i] = self._id[before]
            if after >= 0:
                self._id[after] = ids[i]
                self._slot[int(ids[i])] = after
        return ids

    def forget(self, new: Index, ids: Index) -> None:
        """Drop the numbers of rows that a step has deleted."""
        last = dict(zip(ids.tolist(), new.tolist(), strict=True))
        for id, slot in last.items():
            if slot < 0:
                self._slot.pop(id, None)


class _TableChanges(NamedTuple):
    """Of one table in a step: by change its position, slots and row."""

    position: Index
    old: Index
    new: Index
    ids: Index


class JoinForm:
    """The subscriptions of one signature that select by the same attributes."""

    def __init__(
        self,
        number: int,
        signature: Signature,
        attributes: tuple[str | None, str | None],
        scheme: Callable[[], Scheme],
    ) -> None:
        self.number, self.signature, self.attributes = number, signature, attributes
        self.scheme = scheme()
        self._numbers: dict[Numbering, TextNumbers] = {}

    @property
    def key(self) -> tuple[KeySpec, KeySpec]:
        (edge,) = self.signature.edges
        return edge.keys

    def load(self, stores: Sequence[TableStore], ids: Sequence[RowIds]) -> None:
        """Start with the rows of both tables."""
        for side in (0, 1):
            present = np.flatnonzero(stores[side].present())
            key, value, valid = self._codes(side, stores[side].rows.take(present))
            rows = ids[side].of(present)
            self.scheme.load(side, rows[valid], key[valid], value[valid])

    def _codes(self, side: int, rows: Rows) -> tuple[Index, Index, Mask]:
        """Key and value of each row, and which rows have both."""
        key, valid = key_codes(self.key[side], rows, self._numbers)
        name = self.attributes[side]
        if name is None:
            return key, np.zeros(len(rows), np.int64), valid
        vector = rows.vectors(name)[0]
        if vector.type is Type.STRING:  # hashes: equality alone routes by them
            return key, text_hashes(*laid_out(vector.values)), valid & vector.valid
        return key, column_codes(vector), valid & vector.valid

    def describe(self, changes: Mapping[str, _TableChanges], stores: Sequence[TableStore]) -> Messages:
        """The messages of a step; `seq` is the position of the change, `step` numbers those of a position."""
        parts = []
        for side, table in enumerate(self.signature.tables):
            if table in changes:
                mine = changes[table]
                old, new = (self._versions(side, stores[side], slots) for slots in (mine.old, mine.new))
                parts.append((mine.position, np.full(len(mine.ids), side, np.int64), mine.ids, *old, *new))
        columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
        there = columns[3] | columns[6]  # before or after
        order = np.flatnonzero(there)[np.argsort(columns[0][there], kind="stable")]
        position, *rest = (column[order] for column in columns)
        messages = self.scheme.describe(RowChanges(*rest), seq=0)
        at = position[messages.seq]
        return replace(messages, seq=at, step=np.arange(len(at)) - np.searchsorted(at, at))

    def _versions(self, side: int, store: TableStore, slots: Index) -> tuple[Mask, Index, Index]:
        """Whether the versions in some slots are there, their keys and values; slot -1 is none."""
        there = slots >= 0
        found = np.zeros((3, len(slots)), np.int64)
        key, value, valid = self._codes(side, store.rows.take(slots[there]))
        found[:, there] = valid, np.where(valid, key, 0), np.where(valid, value, 0)
        return found[0] != 0, found[1], found[2]

    def _check(self) -> None:
        self.scheme._check()


class _Known(NamedTuple):
    """A subscription of a client."""

    form: JoinForm | None  # None: it can never have an answer
    slot: int
    plan: Plan
    key: str  # of the client, which nobody else knows


class DescribedJoins:
    """The joins of an engine that are followed over a network; a `Service` of `root.py`."""

    def __init__(
        self,
        engine: Engine,
        scopes: Mapping[str, Collection[str] | None] | None = None,
        scheme: str = SemijoinsMerged.name,
    ) -> None:
        if scheme not in SCHEMES:
            raise UsageError(
                f"there is no scheme {scheme!r} for clients", hint=f"one of {', '.join(SCHEMES)}"
            )
        self._engine, self._scheme = engine, SCHEMES[scheme]
        self._scopes = scopes  # by token the tables that it may read, None for all; None: no token is needed
        self._forms: dict[tuple[Signature, tuple[str | None, str | None]], JoinForm] = {}
        self._ids: dict[str, RowIds] = {}
        self._known: list[_Known | None] = []  # by number
        self._numbers: dict[str, int] = {}  # by key of a client
        self._described: list[MessageBatch] = []
        self._form_numbers = count()
        self._stop = engine.on_step(self._step, self._users)

    def close(self) -> None:
        """Describe no further steps."""
        self._stop()

    # -- service -----------------------------------------------------------------------------------

    def frozen(self) -> AbstractContextManager[Any]:
        return self._engine.lock

    def described(self) -> tuple[int, MessageBatch]:
        with self._engine.lock:
            batch, self._described = MessageBatch.concat(self._described), []
            return self._engine.last_seq, batch

    def ask(self, body: bytes, seq: int) -> Reply:
        try:
            request = msgspec.msgpack.decode(body, type=FollowRequest)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise TocsinError(f"a request cannot be read: {error}") from None
        with self._engine.lock:
            number = self._numbers.get(request.key)
            if not request.sql:
                self._forget(request.key)
                return Reply(NO_BOXES, b"")
            if number is None:
                number = self._numbers[request.key] = self._subscribe(request)
            known = self._known[number]
            assert known is not None
            return Reply(self._wanted_by(known), self.snapshots([number], seq)[0])

    def wanted(self, key: str, subscriptions: Sequence[int]) -> tuple[list[int], FormBoxes]:
        with self._engine.lock:
            own = {
                number: known
                for number in subscriptions
                if 0 <= number < len(self._known)
                and (known := self._known[number]) is not None
                and compare_digest(known.key.rpartition("/")[0].encode(), key.encode())
            }
            found = [self._wanted_by(known) for known in own.values()]
        forms, boxes = zip(*found, strict=True) if found else ([NO_BOXES[0]], [NO_BOXES[1]])
        return list(own), (np.concatenate(forms), np.concatenate(boxes))

    @staticmethod
    def _wanted_by(known: _Known) -> FormBoxes:
        if known.form is None:
            return NO_BOXES
        point = points_as_boxes([known.form.scheme.point(known.slot)])
        return np.array([known.form.number], np.int64), point

    def snapshots(self, subscriptions: Sequence[int], seq: int) -> list[bytes]:
        with self._engine.lock:
            return [self._snapshot(number, seq) for number in subscriptions]

    # -- subscriptions -----------------------------------------------------------------------------

    def _subscribe(self, request: FollowRequest) -> int:
        plan = self._engine.plan(request.sql)
        self._authorize(request.token, plan)
        if plan.shape not in (Shape.JOIN, Shape.BAND) or not (signature := Signature.of(plan.query)).edges:
            raise SubscriptionError(f"a {plan.shape} cannot be followed over a network", hint=_HINT)
        number = len(self._known)
        ranges = _ranges_of(plan)
        if ranges is None:
            self._known.append(_Known(None, 0, plan, request.key))
            return number
        form = self._form(signature, ranges.attributes)
        (own_low, own_high), (low, high) = ranges.ends
        columns = np.array([[low], [high], [own_low], [own_high]], np.int64)
        form.scheme.subscribe(np.array([number]), Ranges(*columns))
        self._known.append(_Known(form, number, plan, request.key))
        return number

    def _authorize(self, token: str, plan: Plan) -> None:
        if self._scopes is None:
            return
        allowed: list[Collection[str] | None] = [
            tables for known, tables in self._scopes.items() if compare_digest(known.encode(), token.encode())
        ]
        if not allowed:
            raise SubscriptionError("the token is unknown", hint="ask the owner of the server for one")
        for table in plan.query.tables:
            if allowed[0] is not None and table.name not in allowed[0]:
                raise SubscriptionError(f"the token does not allow to read {table.name}")

    def _forget(self, key: str) -> None:
        number = self._numbers.pop(key, None)
        known = self._known[number] if number is not None else None
        if number is None or known is None:
            return
        self._known[number] = None
        if known.form is not None:
            known.form.scheme.unsubscribe(np.array([known.slot]))

    def _users(self) -> Counter[str]:
        """How many subscriptions use each table."""
        return Counter(
            name
            for known in self._known
            if known is not None
            for name in {table.name for table in known.plan.query.tables}
        )

    def _forget_dropped(self, tables: Mapping[str, TableStore]) -> None:
        """Forget tables that are not there any more, or are others of the same name; nobody follows them."""
        dropped = {
            name
            for name, ids in self._ids.items()
            if name not in tables or tables[name].schema is not ids.schema
        }
        if dropped:
            self._ids = {name: ids for name, ids in self._ids.items() if name not in dropped}
            self._forms = {
                key: form for key, form in self._forms.items() if not dropped & {*form.signature.tables}
            }

    def _form(self, signature: Signature, attributes: tuple[str | None, str | None]) -> JoinForm:
        self._forget_dropped(self._engine.step().tables)
        form = self._forms.get((signature, attributes))
        if form is None:
            form = self._forms[signature, attributes] = JoinForm(
                next(self._form_numbers), signature, attributes, self._scheme
            )
            stores = self._stores(form)
            for table, store in zip(signature.tables, stores, strict=True):
                if table not in self._ids:
                    self._ids[table] = RowIds(store)
            form.load(stores, [self._ids[table] for table in signature.tables])
        return form

    def _stores(self, form: JoinForm) -> list[TableStore]:
        tables = self._engine.step().tables
        return [tables[table] for table in form.signature.tables]

    def _snapshot(self, number: int, seq: int) -> bytes:
        known = self._known[number] if 0 <= number < len(self._known) else None
        if known is None:
            return b""
        names = tuple(table.name for table in known.plan.query.tables)
        text = "; ".join(sorted({str(self._engine.schema(name)) for name in names}))
        contents = SelectionContents(({}, {}))
        if known.form is not None:
            made = known.form.scheme.contents(known.slot, _SAME)
            assert isinstance(made, SelectionContents)
            contents = made
            for side, store in enumerate(self._stores(known.form)):
                held = contents.held[side]
                slots = self._ids[names[side]].slots(np.fromiter(held, np.int64, len(held)))
                texts = to_json(store.rows, slots).to_pylist() if len(slots) else []
                for (row, (key, _)), body in zip(list(held.items()), texts, strict=True):
                    held[row] = key, body.encode()
        return msgspec.msgpack.encode(Snapshot.of(number, seq, contents, text, names))

    # -- steps -------------------------------------------------------------------------------------

    def _step(self, step: Step) -> None:
        """Describe a step that is about to be committed."""
        self._forget_dropped(step.tables)
        changes = {}
        for table, ids in self._ids.items():
            if table in step.changed:
                position, old, new = step.changed[table]
                changes[table] = _TableChanges(position, old, new, ids.advance(old, new))
        for form in self._forms.values() if changes else ():
            if any(table in changes for table in form.signature.tables):
                stores = [step.tables[table] for table in form.signature.tables]
                messages = form.describe(changes, stores)
                if len(messages):
                    bodies = self._bodies(form, messages, changes, stores)
                    numbered = replace(messages, seq=step.seq[messages.seq])
                    self._described.append(MessageBatch.of(numbered, form.number, bodies))
        for table, mine in changes.items():
            self._ids[table].forget(mine.new, mine.ids)

    def _bodies(
        self,
        form: JoinForm,
        messages: Messages,
        changes: Mapping[str, _TableChanges],
        stores: Sequence[TableStore],
    ) -> list[bytes]:
        """The row of each message that brings one, in the version after its change."""
        bodies = [b""] * len(messages)
        comes = np.isin(messages.kind, (MessageKind.ROW, MessageKind.EXPOSE))
        for side, table in enumerate(form.signature.tables):
            mine = np.flatnonzero(comes & (messages.side == side))
            if len(mine):
                ids, position = messages.row[mine], messages.seq[mine]
                slots = _version_slots(self._ids[table], changes.get(table), ids, position)
                for i, text in zip(mine.tolist(), to_json(stores[side].rows, slots).to_pylist(), strict=True):
                    bodies[i] = text.encode()
        return bodies

    def stats(self) -> dict[str, Any]:
        """How many subscriptions and forms there are."""
        return {"subscriptions": len(self._numbers), "forms": len(self._forms)}

    def _check(self) -> None:
        for form in self._forms.values():
            form._check()
        for table, ids in self._ids.items():
            store = self._engine.step().tables[table]
            present = np.flatnonzero(store.present())
            assert np.array_equal(ids.slots(ids.of(present)), present), "numbers and slots agree"


class _Same(Mapping[int, Any]):
    """Ids as the bodies of rows: they are replaced later, all at once."""

    def __getitem__(self, id: int) -> Any:
        return id

    def __iter__(self) -> Iterator[int]:
        return iter(())

    def __len__(self) -> int:
        return 0


_SAME: Bodies = {0: _Same(), 1: _Same()}


def _ranges_of(plan: Plan) -> _Ranges | None:
    """By side the attribute and range that route; None if the query never has an answer."""
    attributes: list[str | None] = []
    ends = []
    for filter in plan.filters:
        found = selections(flatten([filter]))
        attribute = int(found.attribute[0])
        low, high = (int(found.low[0]), int(found.high[0])) if attribute >= 0 else (LEAST, GREATEST)
        if plan.never or found.never[0] or low > high:
            return None
        attributes.append(found.names[attribute] if attribute >= 0 else None)
        ends.append((low, high))
    return _Ranges((attributes[0], attributes[1]), (ends[0], ends[1]))


def _version_slots(rows: RowIds, changes: _TableChanges | None, ids: Index, position: Index) -> Index:
    """The slots of versions of rows after the change at a position."""
    if changes is None:
        return rows.slots(ids)
    order = np.lexsort((changes.position, changes.ids))
    known, at = changes.ids[order], changes.position[order]
    width = int(max(at.max(), position.max())) + 1
    place = np.searchsorted(known * width + at, ids * width + position, side="right")
    before, after = np.maximum(place - 1, 0), np.minimum(place, len(known) - 1)
    slots = np.where(known[before] == ids, changes.new[order][before], -1)
    slots = np.where((slots < 0) & (known[after] == ids), changes.old[order][after], slots)
    rest = slots < 0
    slots[rest] = rows.slots(ids[rest])
    return slots
