"""Words in one trie, each with the patterns that look for it.

>>> words = WordFinder([WordUse("disk", 0, 0), WordUse("full", 1, AT_END)])
>>> texts = TextBytes(np.frombuffer(b"disk full", np.uint8), np.array([0, 9]), np.array([-1]))
>>> words.find_in(texts).tolist()
[[0, 0, 0], [0, 1, 2]]
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol

import numpy as np

from tocsin.model.columns import Index
from tocsin.predicate._kernels import (
    AT_END,
    SECOND,
    VERIFY,
    TextBytes,
    WordTrie,
    WordUses,
    build_trie,
    find_words,
)

__all__ = ["AT_END", "ListArrays", "OneFinder", "WordFinder", "WordUse", "column_of", "rarest"]

_MOST_GRAMS = 1 << 23  # bits
_MOST_GROUPS = 1 << 18  # bytes that say which groups of texts words are meant for
MOST_CHAINED = 8  # words that may end at the same position
POPULAR = 32  # regexes that share words: words of more are no second condition


class TextData(Protocol):
    """Texts: text i is `data[offsets[i]:offsets[i + 1]]`, and of the groups that are bits of `groups[i]`."""

    data: Any
    offsets: Index
    groups: Index


class WordUse(NamedTuple):
    """A word that pattern `number` looks for, and what else it needs where the word is found."""

    word: str
    number: int
    need: int
    group: int = -1


class WordFinder:
    """Words in one trie, each with the patterns that look for it."""

    def __init__(self, uses: list[WordUse]) -> None:
        representative = _unchained({use.word for use in uses})
        uses = [
            use if representative[use.word] == use.word else use._replace(need=use.need & SECOND | VERIFY)
            for use in uses
        ]
        numbers: dict[str, int] = {}
        word = column_of(numbers.setdefault(representative[use.word], len(numbers)) for use in uses)
        self.words = [text.encode() for text in numbers]
        order = np.argsort(word, kind="stable")
        self.uses = ListArrays.of(word, len(numbers), column_of(use.number for use in uses))
        self.needs = column_of(use.need for use in uses)[order]
        groups = column_of(use.group for use in uses)[order]
        of_words = np.zeros(len(numbers), np.int64)
        np.bitwise_or.at(of_words, word, column_of(use.group for use in uses))
        self.trie = _trie(self.words, of_words)
        self.groups = int(np.bitwise_or.reduce(of_words)) if self.words else 0  # of texts, for any word
        self.word_uses = WordUses(self.uses.starts, self.uses.values, self.needs, groups, of_words)

    def find(self, batch: TextData) -> tuple[Index, Index, Index]:
        """(text, pattern, its needs) where a word is found at the right position; each once for each word."""
        out = self.find_in(TextBytes(np.frombuffer(batch.data, np.uint8), batch.offsets, batch.groups))
        return out[:, 0], out[:, 1], out[:, 2]

    def find_in(self, texts: TextBytes) -> Index:
        """The same as rows of text, pattern and need."""
        out = np.empty((64 + 4 * len(texts.offset), 3), np.int64)
        if not self.words:
            return out[:0]
        found = self._find(texts, out)
        if found > len(out):
            out = np.empty((found, 3), np.int64)
            self._find(texts, out)
        return out[:found]

    def _find(self, texts: TextBytes, out: Index) -> int:
        last = np.full(len(self.needs), -1, np.int64)
        return int(find_words(self.trie, texts, self.word_uses, last, 0, out))


class OneFinder:
    """Finds the words of one text after another, without allocating; for one thread."""

    def __init__(self, words: WordFinder) -> None:
        self._words, self.groups = words, words.groups
        self._last = np.full(len(words.needs), -1, np.int64)
        self._ends, self._group = np.zeros(2, np.int64), np.full(1, -1, np.int64)
        self._turn = 0
        self._run: Any = None
        self._enlarge(256, 64)

    def find(self, text: bytes, group: int = -1) -> Index:
        """Rows of text, pattern and need, until the next call."""
        size = len(text)
        if size > self._capacity:
            self._enlarge(2 * size, len(self._out))
        self._memory[:size] = text
        self._ends[1], self._group[0] = size, group
        self._turn += 1
        args = *self._args, self._turn, self._out
        if self._run is not None:
            found = self._run(*args)
        else:
            found = find_words(*args)
            self._run = find_words.entry_point(args)
        if found > len(self._out):
            self._enlarge(self._capacity, 2 * found)
            return self.find(text, group)
        return self._out[:found]

    def _enlarge(self, capacity: int, most: int) -> None:
        """Make space for texts of so many bytes and so many matches."""
        data, self._capacity = np.empty(capacity, np.uint8), capacity
        self._memory, self._out = data.data, np.empty((most, 3), np.int64)
        text = data.view()
        text.flags.writeable = False  # as arrays over bytes are
        words = self._words
        self._args = words.trie, TextBytes(text, self._ends, self._group), words.word_uses, self._last


def _trie(words: list[bytes], groups: Index) -> WordTrie:
    start = np.zeros(len(words) + 1, np.int64)
    np.cumsum([len(word) for word in words], out=start[1:])
    data, size = np.frombuffer(b"".join(words), np.uint8), int(start[-1])
    places = 1 << (2 * size + 1).bit_length()
    edges = np.full(places, -1, np.int64), np.zeros(places, np.int32)
    bits = min(max(1 << 12, 1 << (32 * len(words)).bit_length()), _MOST_GRAMS)
    nodes = np.full(256 + size, -1, np.int32), np.zeros(256 + size, np.uint8)
    marks = (
        np.zeros(8192, np.uint8),
        np.zeros(bits >> 3, np.uint8),
        np.zeros(min(bits, _MOST_GROUPS), np.uint8),
    )
    trie = WordTrie(np.zeros((256, 256), np.int32), *edges, *nodes, *marks)
    build_trie(start, data, groups, trie)
    return trie


def _unchained(words: set[str]) -> dict[str, str]:
    """A representative of each word: itself, or a suffix of it if many of its suffixes are words.

    Otherwise a text of a's would report each of 'a', 'aa', 'aaa', ... at each position.
    """
    out: dict[str, str] = {}
    for word in sorted(words, key=len):
        suffixes = [word[cut:] for cut in range(1, len(word)) if out.get(word[cut:]) == word[cut:]]
        out[word] = suffixes[0] if len(suffixes) >= MOST_CHAINED else word
    return out


def rarest(options: dict[int, list[frozenset[str]]]) -> list[WordUse]:
    """For each regex one requirement, of long words that few others need; and a second, if it is rare."""
    popular = Counter(word for sets in options.values() for words in sets for word in words)

    def cost(words: Iterable[str]) -> tuple[int, int]:
        return -min(6, *map(len, words)), sum(popular[word] for word in words)

    uses: list[WordUse] = []
    for number, sets in options.items():
        best, *others = sorted(sets, key=cost)
        uses += [WordUse(word, number, VERIFY) for word in sorted(best)]
        if others and cost(others[0])[1] <= POPULAR:
            uses += [WordUse(word, number, VERIFY | SECOND) for word in sorted(others[0])]
    return uses


# -- arrays ---------------------------------------------------------------------------------------------


def column_of(numbers: Iterable[int]) -> Index:
    return np.fromiter(numbers, np.int64)


class ListArrays(NamedTuple):
    """Lists in one array: list i is `values[starts[i]:starts[i + 1]]`."""

    starts: Index
    values: Index

    @classmethod
    def of(cls, owner: Index, count: int, values: Index | None = None) -> ListArrays:
        """List i holds, in order, the values (by default: the positions) where `owner` is i."""
        starts = np.zeros(count + 1, np.int64)
        np.cumsum(np.bincount(owner, minlength=count), out=starts[1:])
        order = np.argsort(owner, kind="stable")
        return cls(starts, order if values is None else values[order])

    def ranges(self, key: Index, which: Index) -> tuple[Index, Index]:
        """Each key repeated for the length of list `which`, and the positions of that list's values."""
        lengths = (self.starts[1:] - self.starts[:-1])[which]
        shift = np.repeat(self.starts[which] - np.cumsum(lengths) + lengths, lengths)
        return np.repeat(key, lengths), shift + np.arange(len(shift))

    def expand(self, key: Index, which: Index) -> tuple[Index, Index]:
        """Each key paired with each value of list `which`."""
        keys, at = self.ranges(key, which)
        return keys, self.values[at]
