"""Sequences on disk: chains by the text of their node, their keys and events; subscriptions by id.

members          id, since
chains           node, time, key; where the events are
keys/<types>     the values of keys, by number
events/<stream>  seq, columns
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tocsin.model.columns import Index, Rows, Vector
from tocsin.model.schema import Type

if TYPE_CHECKING:
    from tocsin.sequence.room import SequenceRoom

__all__ = ["read_back", "written"]

_SEQ = "_seq"
_COMMA = re.compile(r",(?![^(]*\))")  # between types, not within DECIMAL(8,2)


def written(room: SequenceRoom, ids: Index) -> dict[str, Any]:
    """What is not in subscriptions, as pyarrow tables by name."""
    if not room.ends:
        return {}
    tree, progress = room.tree, room.progress
    progress.prune(tree, room.clock)
    slots = np.array(sorted(room.since), np.int64)
    since = np.array([room.since[slot] for slot in slots.tolist()], np.int64)
    members = pa.table({"id": ids[slots], "since": since})
    count = len(progress)
    node, key = progress.chains.node[:count], progress.chains.key[:count]
    names = sorted({*node.tolist()})
    state = {"clock": room.clock, "nodes": {str(one): tree.name(one) for one in names}}
    columns = {"node": node, "key": key, "time": progress.chains.time[:count]}
    columns |= {f"event{n}": progress.chains.event[:count, n] for n in range(progress.chains.event.shape[1])}
    out = {
        "members": members,
        "chains": pa.table(columns).replace_schema_metadata({"state": json.dumps(state)}),
    }
    for types in {tree.steps[one].types for one in names}:
        own = [one for one in names if tree.steps[one].types == types]
        numbers = np.unique(key[np.isin(node, own)])
        values = {f"k{n}": v.arrow for n, v in enumerate(progress.keys_of(types, numbers))}
        out["keys/" + ",".join(types)] = pa.table({"number": numbers, **values})
    for stream, kept in progress.events.items():
        places = np.arange(kept.used)
        values = {name: kept.take(name, places).arrow for name in kept.types}
        out[f"events/{stream}"] = pa.table({_SEQ: kept.seq[: kept.used], **values})
    return out


def read_back(
    room: SequenceRoom, tables: Mapping[str, Any], find: Callable[[Index], NDArray[np.int32]], last_seq: int
) -> None:
    """Go on with what `written` returned, after the same subscriptions were registered."""
    room.last_seq = room._next_seq = last_seq
    if "members" not in tables:
        return
    slots = find(np.asarray(tables["members"]["id"]))
    for slot, since in zip(slots.tolist(), tables["members"]["since"].to_pylist(), strict=True):
        if slot in room.since:
            room.since[slot] = since
    chains, tree, progress = tables["chains"], room.tree, room.progress
    state = json.loads(chains.schema.metadata[b"state"])
    room.clock = room._next_clock = state["clock"]
    now = {tree.name(node): node for node in tree.steps}
    renamed = {int(old): now[name] for old, name in state["nodes"].items() if name in now}
    for stream, kept in progress.events.items():
        if (saved := tables.get(f"events/{stream}")) is not None:
            known = [(n, t) for n, t in kept.types.items() if n in saved.column_names]
            vectors = [(n, Vector.from_arrow(t, saved[n].combine_chunks())) for n, t in known]
            kept.append(Rows(vectors, saved.num_rows), np.asarray(saved[_SEQ]))
    node = np.asarray(chains["node"])
    event = np.stack([np.asarray(chains[n]) for n in chains.column_names if n.startswith("event")], axis=1)
    for name in tables:
        if not name.startswith("keys/"):
            continue
        types = tuple(map(Type, _COMMA.split(name.removeprefix("keys/"))))
        keys = [
            Vector.from_arrow(type, tables[name][f"k{n}"].combine_chunks()) for n, type in enumerate(types)
        ]
        fresh = progress.number(types, keys)
        saved = np.asarray(tables[name]["number"])
        own = [old for old, one in renamed.items() if tree.steps[one].types == types]
        mine = np.flatnonzero(np.isin(node, own))
        key = fresh[np.searchsorted(saved, np.asarray(chains["key"])[mine])]
        numbers = np.array([renamed[old] for old in node[mine].tolist()], np.int64)
        progress.load(numbers, key, np.asarray(chains["time"])[mine], event[mine])
