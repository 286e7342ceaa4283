"""How far each key is in each sequence: the chain of events that begins last, for each node and key.

Chains that cannot end in time any more, and events and keys that no chain uses, are dropped once they may be
half of all (`Progress.prune`): what is kept is bounded by the chains that can still end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from tocsin.language.sequences import MAX_STEPS
from tocsin.model.columns import Index, Rows, Vector, longer
from tocsin.model.schema import Type
from tocsin.sequence._kernels import (
    Chains,
    Ended,
    Nodes,
    Reached,
    Undone,
    find_chain,
    follow_chains,
    place_chains,
)
from tocsin.sequence.chains import StepTree
from tocsin.sequence.events import KeptEvents
from tocsin.store.directory import GroupDirectory

__all__ = ["Progress"]

_FEW = 256
_WIDTH = MAX_STEPS - 1  # events of a chain that goes on


class _ProgressBefore(NamedTuple):
    """What a rollback needs: counts, and chains that were replaced."""

    chains: int
    events: dict[str, int]
    undone: Undone


class Progress:
    """Chains by number; events by stream, keys by their types."""

    def __init__(self) -> None:
        self.events: dict[str, KeptEvents] = {}
        self._keys: dict[tuple[Type, ...], GroupDirectory] = {}
        self.chains = _chains(_FEW)
        self._before: _ProgressBefore | None = None
        self._limit = _FEW  # prune when there are so many chains, or events

    def __len__(self) -> int:
        return int(self.chains.used[0])

    # -- keys and events ---------------------------------------------------------------------------

    def number(self, types: tuple[Type, ...], keys: Sequence[Vector]) -> Index:
        """Numbers of keys, new ones included."""
        return self._keys.setdefault(types, GroupDirectory(types)).number(keys)

    def find(self, types: tuple[Type, ...], keys: Sequence[Vector]) -> Index:
        """Numbers of keys; -1 for those that are not known."""
        return self._keys.setdefault(types, GroupDirectory(types)).find(keys)

    def keys_of(self, types: tuple[Type, ...], numbers: Index) -> list[Vector]:
        """The values of keys."""
        return self._keys[types].keys(numbers)

    def need(self, stream: str, types: Mapping[str, Type]) -> None:
        """Keep these columns of a stream's events."""
        self.events.setdefault(stream, KeptEvents({})).need(types)

    def begin(self) -> None:
        """A step begins."""
        counts = {name: kept.used for name, kept in self.events.items()}
        self._before = _ProgressBefore(len(self), counts, _undone(0))

    def keep(self, stream: str, rows: Rows, seq: Index) -> Index:
        """Keep events of the step; their places."""
        return self.events[stream].append(rows, seq)

    # -- following ---------------------------------------------------------------------------------

    def follow(self, nodes: Nodes, reached: Reached) -> Ended:
        """Follow events in order; the sequences that end."""
        assert self._before is not None
        count = len(reached.node)
        self._reserve(count)
        ended = Ended(np.empty(count, np.int64), np.empty(count, np.int64), _events(count, MAX_STEPS))
        undone = _undone(count)
        over, replaced = follow_chains(nodes, self.chains, reached, ended, undone)
        self._before = self._before._replace(undone=Undone(*(part[:replaced].copy() for part in undone)))
        return Ended(*(part[:over] for part in ended))

    def begun(self, node: int, key: int) -> int | None:
        """When the chain of a node and key began, in microseconds."""
        n = int(find_chain(self.chains, np.int64(node), np.int64(key)))
        return None if n < 0 else int(self.chains.time[n])

    def commit(self, tree: StepTree, clock: int) -> None:
        """The step is final."""
        self._before = None
        most = max([len(self), *(kept.used for kept in self.events.values())])
        if most > self._limit:
            self.prune(tree, clock)
            left = max([len(self), *(kept.used for kept in self.events.values())])
            self._limit = max(_FEW, 2 * left)

    def rollback(self) -> None:
        """The step is not made."""
        if self._before is None:
            return
        used, events, undone = self._before
        self._before = None
        back = slice(None, None, -1)
        self.chains.time[undone.number[back]] = undone.time[back]
        self.chains.event[undone.number[back]] = undone.event[back]
        for name, count in events.items():
            self.events[name].cut(count)
        self.chains.used[0] = min(used, len(self))
        self._rehash()

    # -- dropping ----------------------------------------------------------------------------------

    def prune(self, tree: StepTree, clock: int, gone: Sequence[int] = ()) -> None:
        """Drop chains that cannot end any more, or of nodes that are `gone`; and what none uses."""
        nodes, chains, count = tree.nodes, self.chains, len(self)
        node = chains.node[:count]
        stays = (nodes.span[node] >= clock - chains.time[:count]) & nodes.continues[node]
        if len(gone):
            stays &= ~np.isin(node, np.array(gone))
        self._take(np.flatnonzero(stays))
        self._drop_unused(tree)

    def _take(self, numbers: Index) -> None:
        chains, count = self.chains, len(numbers)
        fresh = _chains(max(_FEW, 3 * count // 2))
        for name in ("node", "key", "time", "event"):
            getattr(fresh, name)[:count] = getattr(chains, name)[numbers]
        fresh.used[0] = count
        self.chains = fresh
        place_chains(self.chains)

    def _drop_unused(self, tree: StepTree) -> None:
        """Drop events and keys without chains."""
        count = len(self)
        node = self.chains.node[:count]
        used: dict[str, list[tuple[Index, int]]] = {name: [] for name in self.events}
        keys: dict[tuple[Type, ...], list[Index]] = {types: [] for types in self._keys}
        for one in np.unique(node).tolist():
            mine = np.flatnonzero(node == one)
            keys[tree.steps[one].types].append(self.chains.key[mine])
            for on_path in tree.path(one):
                depth = int(tree.nodes.depth[on_path])
                used[tree.steps[on_path].stream].append((mine, depth))
        for stream, parts in used.items():
            places = [self.chains.event[mine, depth] for mine, depth in parts]
            moved = self.events[stream].keep(np.unique(np.concatenate([np.empty(0, np.int64), *places])))
            for (mine, depth), old in zip(parts, places, strict=True):
                self.chains.event[mine, depth] = moved[old]
        for types, some in keys.items():
            self._keys[types].keep(np.unique(np.concatenate([np.empty(0, np.int64), *some])))

    def _reserve(self, count: int) -> None:
        chains, needed = self.chains, len(self) + count
        if needed > len(chains.node):
            size = max(needed, 3 * len(chains.node) // 2)
            event = _events(size, _WIDTH)
            event[: len(chains.event)] = chains.event
            node, key, time = (longer(part, size) for part in (chains.node, chains.key, chains.time))
            self.chains = Chains(_table(2 * size), node, key, time, event, chains.used)
            place_chains(self.chains)

    def _rehash(self) -> None:
        self.chains.place[:] = -1
        place_chains(self.chains)

    def load(self, node: Index, key: Index, time: Index, event: Index) -> None:
        """Chains that were saved."""
        self._reserve(len(node))
        count = len(self)
        for name, part in (("node", node), ("key", key), ("time", time), ("event", event)):
            getattr(self.chains, name)[count : count + len(node)] = part
        self.chains.used[0] = count + len(node)
        self._rehash()

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays; texts are not in them."""
        own = sum(array.nbytes for array in self.chains)
        own += sum(kept.nbytes for kept in self.events.values())
        return own + sum(keys.nbytes for keys in self._keys.values())

    def _check(self, tree: StepTree) -> None:
        assert self._before is None
        count = len(self)
        node, key = self.chains.node[:count], self.chains.key[:count]
        assert all(one in tree.steps and tree.nodes.continues[one] for one in np.unique(node).tolist())
        for n in range(count):
            assert find_chain(self.chains, node[n], key[n]) == n
        assert np.count_nonzero(self.chains.place >= 0) == count
        for one in np.unique(node).tolist():
            for on_path in tree.path(one):
                kept = self.events[tree.steps[on_path].stream]
                places = self.chains.event[:count][node == one, tree.nodes.depth[on_path]]
                assert np.all((places >= 0) & (places < kept.used))
        for keys in self._keys.values():
            keys._check()


def _table(size: int) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    return np.full(1 << (size - 1).bit_length(), -1, np.int32)


def _events(count: int, width: int) -> Index:
    return np.zeros((count, width), np.int64)


def _chains(size: int) -> Chains:
    node, key, time = (np.zeros(size, np.int64) for _ in range(3))
    return Chains(_table(2 * size), node, key, time, _events(size, _WIDTH), np.zeros(1, np.int64))


def _undone(count: int) -> Undone:
    return Undone(np.zeros(count, np.int64), np.zeros(count, np.int64), _events(count, _WIDTH))
