"""Kept rows of joins of streams, on disk: Arrow tables that a new engine goes on with, deciding alike.

    family     name, counts, clocks, columns, and the models (pickled), in one row
    side0, side1     kept rows: code of the key, seq, time, weight, columns
    keys       keys by code; codes that are free, in order
    dropped    the log of dropped rows

Pickles are read by a reader that knows the classes of scores, of models and of NumPy's arrays, and nothing
else.
"""

from __future__ import annotations

import io
import json
import pickle
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from tocsin.errors import TocsinError
from tocsin.limits._kernels.joining import FREE, FREED, LIVE, USED
from tocsin.limits.stream_family import JoinCounts, StreamFamily
from tocsin.model.columns import Vector
from tocsin.model.schema import Type

__all__ = ["read_family", "write_family"]

_OWN = ("tocsin.limits.scores", "tocsin.limits.models")
_NUMPY = {
    ("numpy", "dtype"), ("numpy", "ndarray"), ("numpy", "float64"), ("numpy", "int64"), ("numpy", "float32"),
    ("numpy._core.multiarray", "_reconstruct"), ("numpy._core.multiarray", "scalar"),
    ("numpy._core.numeric", "_frombuffer"), ("collections", "deque"), ("collections", "OrderedDict"),
    ("collections", "defaultdict"), ("builtins", "set"), ("builtins", "frozenset"), ("builtins", "slice"),
}  # fmt: skip


class _ModelUnpickler(pickle.Unpickler):
    """Reads objects of known classes."""

    def find_class(self, module: str, name: str) -> Any:
        known = (module, name) in _NUMPY or any(module == own or module.startswith(f"{own}.") for own in _OWN)
        if not known or "." in name:
            raise TocsinError(f"a saved model has a {module}.{name}", hint="save the engine again")
        return super().find_class(module, name)


def write_family(name: str, family: StreamFamily) -> dict[str, Any]:
    """The tables of a family."""
    rows, keys = family.rows, family.rows.keys.arrays
    used = rows.keys.used
    types = [{} if b is None else {n: c.type.value for n, c in b.columns.items()} for b in rows.buffers]
    about = {
        "name": name,
        "counts": vars(family.counts),
        "latest": family.latest,
        "last_seq": family.last_seq,
        "clock": rows.clock,
        "evicted": rows.evicted,
        "since_purge": rows._since_purge,
        "halvings": rows.dropped.halvings,
        "columns": types,
        "time_columns": family.time_columns,
        "table": len(keys.table),  # its bytes count, so it is to be as large again
        "free": keys.free[: keys.state[FREE]].tolist(),
    }
    model = pickle.dumps(rows.score)
    out = {"family": pa.table({"about": [json.dumps(about)], "model": pa.array([model], pa.large_binary())})}
    for side, buffer in enumerate(rows.buffers):
        if buffer is not None:
            every = np.arange(buffer.count)
            own = {f: getattr(buffer, f)[: buffer.count] for f in ("code", "seq", "time", "weight")}
            cells = {f"column {n}": buffer.take(n, every).arrow for n in buffer.columns}
            out[f"side{side}"] = pa.table({**own, **cells})
    out["keys"] = pa.table({"key": keys.key[:used]})
    log, count = rows.dropped, rows.dropped.count
    out["dropped"] = pa.table({f: getattr(log, f)[:count] for f in ("side", "code", "expires", "draw")})
    return out


def read_family(tables: Mapping[str, Any], families: Mapping[str, StreamFamily]) -> None:
    """Fill the family of that name, if it has subscriptions."""
    about = json.loads(tables["family"]["about"][0].as_py())
    family = families.get(about["name"])
    if family is None:
        return
    rows = family.rows
    rows.score = _ModelUnpickler(io.BytesIO(tables["family"]["model"][0].as_py())).load()
    family.counts = JoinCounts(**about["counts"])
    family.latest, family.last_seq = about["latest"], about["last_seq"]
    family.time_columns = list(about["time_columns"])
    rows.clock, rows.evicted, rows._since_purge = about["clock"], about["evicted"], about["since_purge"]
    _read_keys(family, tables["keys"], about["free"], about["table"])
    for side, columns in enumerate(about["columns"]):
        if f"side{side}" in tables:
            _read_side(family, side, tables[f"side{side}"], {n: Type(t) for n, t in columns.items()})
    log, saved = rows.dropped, tables["dropped"]
    log.halvings = about["halvings"]
    log.load(rows.keys, *(np.asarray(saved[name]) for name in ("side", "code", "expires", "draw")))


def _read_keys(family: StreamFamily, saved: Any, free: list[int], table: int) -> None:
    keys = family.rows.keys
    used = len(saved)
    keys._reserve(used)
    arrays = keys.arrays
    arrays.key[:used] = np.asarray(saved["key"])
    arrays.heads[:, :used], arrays.gone[:, :used] = -1, 0
    arrays.heads[0, free] = FREED
    arrays.free[: len(free)] = free
    arrays.state[USED], arrays.state[FREE], arrays.state[LIVE] = used, len(free), used - len(free)
    keys.replace_table(table)


def _read_side(family: StreamFamily, side: int, saved: Any, columns: dict[str, Type]) -> None:
    buffer = family.rows.open(side, columns)
    vectors = {
        name: Vector.from_arrow(type, saved[f"column {name}"].combine_chunks())
        for name, type in columns.items()
    }
    code, seq, time, weight = (np.asarray(saved[name]) for name in ("code", "seq", "time", "weight"))
    buffer.append(np.arange(len(saved)), code, seq, time, weight, vectors)
    buffer.link(family.rows.keys.arrays.heads[side])
    family.rows._first[side] = buffer.count
