"""Many LIKE and RLIKE patterns, asked of many texts at once.

Asked one by one, ten thousand patterns read every text ten thousand times. Here a text is read a few
times, whatever the number of patterns:

    '%disk%'  'disk%'  '%disk'  'disk'     their words go into one Aho-Corasick automaton; where a word
                                           is found, its place says which of the four hold
    'error [0-9]+ in (disk|net)'           a word it needs goes into the same automaton (`regexes.py`);
                                           texts with the word (or with two, if there is another
                                           rare one) are candidates, and RE2 verifies them
    '(?i)disk full'                        the same over folded texts, in a second automaton
    '[0-9]{4}-[0-9]{2}'                    needs no word: RE2 sets, which run some regexes together

RE2 takes time linear in the text whatever the regex, so no pattern can stall a batch. Its sets, though,
may run out of memory and then answer as if nothing matched; so each set also holds the empty regex, which
matches always: if it is missing from an answer, the set's regexes are asked one by one.

Cost per batch: O(bytes of its distinct texts + places where words are found); for texts of 200
characters, less than 1 µs per candidate and some 4 µs per text and 32 regexes without a word. Only
distinct texts count, and distinct patterns.

>>> patterns = Patterns([("like", "%disk%"), ("rlike", "[0-9]+ errors?$"), ("like", "%"), ("like", "d_sk")])
>>> text, pattern = patterns.match(pa.array(["disk", None, "12 errors", ""]))
>>> list(zip(text.tolist(), pattern.tolist()))
[(0, 0), (0, 2), (0, 3), (2, 1), (2, 2), (3, 2)]

Aho and Corasick, Communications of the ACM 18 (1975), for the automaton.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, lru_cache
from itertools import chain, pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from ahocorasick_rs import BytesAhoCorasick

from tocsin.model.columns import Index, distinct
from tocsin.predicate.regexes import LONGEST, Shard, compiled, fold, requirements, shards

__all__ = ["Patterns", "like", "read_like"]

PIECE = 1 << 16  # bytes the automaton reads in one go: bounds the list of places it returns
CHAIN = 8  # words that may end at the same place, for the same reason
FEW = 16  # candidates of one regex for which calling RE2 on each beats compiling it again in Arrow
COMPILED = 1 << 14  # regexes that stay compiled
POPULAR = 32  # regexes that need the same words: with more, these are no second condition
AT_START, AT_END, VERIFY, SECOND = 1, 2, 4, 8  # what else must hold where a word is found
PLACES = {"contains": 0, "prefix": AT_START, "suffix": AT_END, "equal": AT_START | AT_END}


class Patterns:
    """Many LIKE and RLIKE patterns, asked of many texts at once.

    `patterns` are (kind, pattern), kind "like" or "rlike". ValueError for one that RE2 refuses.
    """

    def __init__(self, patterns: Sequence[tuple[str, str]], set_memory: int | None = None) -> None:
        numbers: dict[tuple[str, str], int] = {}
        same = _column(numbers.setdefault((kind, pattern), len(numbers)) for kind, pattern in patterns)
        self._size = len(same)
        self._distinct = list(numbers)
        self._positions = _Lists.of(same, len(numbers))  # where each distinct pattern was given
        self._asked = [_read(kind, pattern) for kind, pattern in self._distinct]
        self._compiled: dict[int, Any] = {}
        self._always: list[int] = []  # for every text that is not null
        self._empty: list[int] = []  # for the empty text, which no automaton finds
        uses = self._word_uses()
        plain, folded, without = self._regex_uses()
        self._words, self._folded = _Words(uses + plain), _Words(folded)
        self._two = np.zeros(len(numbers), bool)  # whose candidates need a first and a second word
        self._two[[use.number for use in plain + folded if use.need & SECOND]] = True
        regexes = [(number, self._asked[number][1]) for number in without]
        self._shards, self._alone = shards(regexes, set_memory)

    def _word_uses(self) -> list[_Use]:
        uses: list[_Use] = []
        for number, (way, word) in enumerate(self._asked):
            if way == "regex":
                continue
            if not word:
                (self._empty if way == "equal" else self._always).append(number)
            elif len(word) > LONGEST:
                uses.append(_Use(word[:LONGEST], number, VERIFY))
            else:
                uses.append(_Use(word, number, PLACES[way]))
        return uses

    def _regex_uses(self) -> tuple[list[_Use], list[_Use], list[int]]:
        """Words for the automaton, words for the folded one, and the regexes that need no word."""
        plain: dict[int, list[frozenset[str]]] = {}
        folded: dict[int, list[frozenset[str]]] = {}
        without = []
        for number, (way, regex) in enumerate(self._asked):
            if way != "regex":
                continue
            ready = compiled(regex)
            if options := requirements(regex):
                plain[number] = options
            elif options := requirements(regex, folded=True):
                folded[number] = options
            else:
                without.append(number)
                continue
            if len(self._compiled) < COMPILED:
                self._compiled[number] = ready
        return _rarest(plain), _rarest(folded), without

    def __len__(self) -> int:
        return self._size

    def match(self, texts: pa.Array) -> tuple[Index, Index]:
        """(text, pattern) of every match, each once, sorted by text, then pattern; a null matches nothing."""
        codes, known = _encoded(texts)
        batch = _Batch(known)
        size = len(self._distinct)
        found = distinct(
            np.concatenate([text * size + number for text, number in self._matches(batch)] or [_NONE])
        )
        text, position = self._positions.expand(found // max(size, 1), found % max(size, 1))
        order = np.lexsort((position, text))
        rows, at = _Lists.of(text[order], len(known)).expand(np.flatnonzero(codes >= 0), codes[codes >= 0])
        return rows, position[order][at]

    def _matches(self, batch: _Batch) -> Iterator[tuple[Index, Index]]:
        """(distinct text, distinct pattern), some more than once."""
        if not len(batch.texts):
            return
        every = np.arange(len(batch.texts))
        blank = np.flatnonzero(np.diff(batch.offsets) == 0)
        for rows, numbers in ((every, self._always), (blank, self._empty)):
            yield np.tile(rows, len(numbers)), np.repeat(np.array(numbers, np.int64), len(rows))
        text, number, need = self._words.find(batch)
        sure = need & VERIFY == 0
        yield text[sure], number[sure]
        maybe = [(number * len(every) + text)[~sure] * 2 + (need[~sure] & SECOND > 0)]
        if self._folded.words:
            text, number, need = self._folded.find(_Batch(fold(batch.texts)))
            maybe.append((number * len(every) + text) * 2 + (need & SECOND > 0))
        yield from self._verified(self._candidates(distinct(np.concatenate(maybe)), len(every)), batch)
        for shard in self._shards:
            yield from self._together(shard, batch)
        for at in self._alone:
            rows = every[self._holds(at, batch.texts)]
            yield rows, np.full(len(rows), at)

    def _candidates(self, found: Index, texts: int) -> Index:
        """pattern * texts + text, of those found (twice that, + 1 for a second word) with all they need."""
        first, second = found[found & 1 == 0] >> 1, found[found & 1 == 1] >> 1
        return first[~self._two[first // texts] | np.isin(first, second, assume_unique=True, kind="sort")]

    def _verified(self, candidates: Index, batch: _Batch) -> Iterator[tuple[Index, Index]]:
        """Those of the candidates (sorted: pattern * texts + text) that match."""
        number, text = np.divmod(candidates, len(batch.texts))
        ends = np.flatnonzero(np.diff(number, append=-1)) + 1
        start = 0
        for end in ends.tolist():
            at, rows = int(number[start]), text[start:end]
            if end - start <= FEW and self._asked[at][0] == "regex":
                search = self._regex(at).search
                holds = np.array([search(batch.raw[row]) is not None for row in rows.tolist()], bool)
            else:
                holds = self._holds(at, batch.texts.take(pa.array(rows)))
            yield rows[holds], number[start:end][holds]
            start = end

    def _together(self, shard: Shard, batch: _Batch) -> Iterator[tuple[Index, Index]]:
        match = shard.set.Match
        answers = [match(text) or () for text in batch.raw]
        text = np.repeat(np.arange(len(batch.raw)), [len(answer) for answer in answers])
        found = np.fromiter(chain.from_iterable(answers), np.int64, len(text))
        yield text[found > 0], shard.numbers[found[found > 0] - 1]  # 0 is the regex that matches always
        exhausted = np.flatnonzero(np.bincount(text[found == 0], minlength=len(batch.raw)) == 0)
        if len(exhausted):
            for at in shard.numbers.tolist():
                rows = exhausted[self._holds(at, batch.texts.take(pa.array(exhausted)))]
                yield rows, np.full(len(rows), at)

    def _holds(self, number: int, texts: Any) -> Any:
        """One pattern over some texts, by Arrow."""
        kind, pattern = self._distinct[number]
        holds = like(texts, pattern) if kind == "like" else pc.match_substring_regex(texts, pattern)
        return holds.to_numpy(zero_copy_only=False)

    def _regex(self, number: int) -> Any:
        if number not in self._compiled:
            if len(self._compiled) >= COMPILED:
                del self._compiled[next(iter(self._compiled))]
            self._compiled[number] = compiled(self._asked[number][1])
        return self._compiled[number]

    def stats(self) -> dict[str, Any]:
        """How many distinct patterns go which way, and what that made."""
        ways = Counter(way for way, _ in self._asked)
        gathered = sum(len(shard.numbers) for shard in self._shards)
        folded = len(set(self._folded.uses.values.tolist()))
        return {
            "patterns": len(self),
            "distinct": len(self._distinct),
            **{way: ways[way] for way in PLACES},
            "regex by word": ways["regex"] - folded - gathered - len(self._alone),
            "regex by folded word": folded,
            "regex by set": gathered,
            "regex alone": len(self._alone),
            "sets": len(self._shards),
            "words": len(self._words.words) + len(self._folded.words),
            "bytes of words": sum(map(len, self._words.words + self._folded.words)),
        }

    def _check(self) -> None:
        """Every distinct pattern goes exactly one way, and every position has its pattern."""
        ways = [self._always, self._empty, self._alone]
        ways += [words.uses.values.tolist() for words in (self._words, self._folded)]
        ways += [shard.numbers.tolist() for shard in self._shards]
        once = Counter(chain.from_iterable(set(way) for way in ways))
        assert once == Counter(range(len(self._distinct))), "a pattern goes no way, or two"
        assert sorted(self._positions.values.tolist()) == list(range(len(self)))
        for words in (self._words, self._folded):
            assert all(words.words) and len(set(words.words)) == len(words.words)
            assert (
                len(words.needs) == len(words.uses.values) and len(words.uses.starts) == len(words.words) + 1
            )
        assert not np.any(self._folded.needs & VERIFY == 0), "a folded word proves nothing by itself"


# -- words --------------------------------------------------------------------------------------------


class _Use(NamedTuple):
    """A word that pattern `number` looks for, and what else must hold where it is found."""

    word: str
    number: int
    need: int


class _Words:
    """Words in one automaton, each with the patterns that look for it."""

    def __init__(self, uses: list[_Use]) -> None:
        stands = _unchained({use.word for use in uses})
        uses = [
            use if stands[use.word] == use.word else use._replace(need=use.need & SECOND | VERIFY)
            for use in uses
        ]
        numbers: dict[str, int] = {}
        word = _column(numbers.setdefault(stands[use.word], len(numbers)) for use in uses)
        self.words = [text.encode() for text in numbers]
        order = np.argsort(word, kind="stable")
        self.uses = _Lists.of(word, len(numbers), _column(use.number for use in uses))
        self.needs = _column(use.need for use in uses)[order]
        self._automaton = BytesAhoCorasick(self.words) if self.words else None
        self._overlap = max(map(len, self.words), default=1) - 1

    def find(self, batch: _Batch) -> tuple[Index, Index, Index]:
        """(text, pattern, what it needs besides the place, which is right); some more than once."""
        keys = np.concatenate([distinct(piece) for piece in self._places(batch)] or [_NONE])
        word, key = keys % max(len(self.words), 1), keys // max(len(self.words), 1)
        key, at = self.uses.ranges(key, word)
        need, place = self.needs[at], key % 4
        holds = need & ~(place | VERIFY | SECOND) == 0
        return key[holds] // 4, self.uses.values[at[holds]], need[holds]

    def _places(self, batch: _Batch) -> Iterator[Index]:
        """(text * 4 + AT_START | AT_END) * words + word, wherever a word is found.

        All texts are read as one; what is found across the border of two is dropped.
        """
        if self._automaton is None:
            return
        for base in range(0, len(batch.data), PIECE):
            piece = batch.data[base : base + PIECE + self._overlap]
            found = self._automaton.find_matches_as_indexes(piece, overlapping=True)
            flat = np.fromiter(chain.from_iterable(found), np.int64, 3 * len(found))
            word, start, end = flat[::3], flat[1::3] + base, flat[2::3] + base
            text = np.searchsorted(batch.offsets, start, side="right") - 1
            inside = end <= batch.offsets[text + 1]
            place = (start == batch.offsets[text]) * AT_START + (end == batch.offsets[text + 1]) * AT_END
            yield ((text * 4 + place) * len(self.words) + word)[inside]


def _unchained(words: set[str]) -> dict[str, str]:
    """For each word itself; or, if many words end as it does ('a', 'aa', 'aaa', ...), one of these.

    Else a text of a's would be reported at every place with every one of them.
    """
    stands: dict[str, str] = {}
    for word in sorted(words, key=len):
        ends = [word[cut:] for cut in range(1, len(word)) if stands.get(word[cut:]) == word[cut:]]
        stands[word] = ends[0] if len(ends) >= CHAIN else word
    return stands


def _rarest(options: dict[int, list[frozenset[str]]]) -> list[_Use]:
    """For each regex one of its requirements, of long words that few others need; a second if it is rare."""
    popular = Counter(word for sets in options.values() for words in sets for word in words)

    def cost(words: Iterable[str]) -> tuple[int, int]:
        return -min(6, *map(len, words)), sum(popular[word] for word in words)

    uses: list[_Use] = []
    for number, sets in options.items():
        best, *others = sorted(sets, key=cost)
        uses += [_Use(word, number, VERIFY) for word in sorted(best)]
        if others and cost(others[0])[1] <= POPULAR:
            uses += [_Use(word, number, VERIFY | SECOND) for word in sorted(others[0])]
    return uses


def _read(kind: str, pattern: str) -> tuple[str, str]:
    """How to ask for a pattern and with which text, as `read_like` says."""
    if kind not in ("like", "rlike"):
        raise ValueError(f"a pattern is like or rlike, not {kind!r}")
    return read_like(pattern) if kind == "like" else ("regex", pattern)


# -- arrays ---------------------------------------------------------------------------------------------

_NONE: Index = np.empty(0, np.int64)


def _column(numbers: Iterable[int]) -> Index:
    return np.fromiter(numbers, np.int64)


class _Batch:
    """Distinct texts, none of them null: text i is `data[offsets[i]:offsets[i + 1]]`."""

    def __init__(self, texts: Any) -> None:
        self.texts = texts.cast(pa.large_string())
        _, offsets, data = self.texts.buffers()
        ends = np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1]
        self.offsets: Index = ends - ends[0]
        self.data = memoryview(data or b"").cast("B")[int(ends[0]) : int(ends[-1])]

    @cached_property
    def raw(self) -> list[bytes]:
        """The texts as RE2 reads them."""
        return [bytes(self.data[a:b]) for a, b in pairwise(self.offsets.tolist())]


def _encoded(texts: Any) -> tuple[Index, Any]:
    """The number of each text among the distinct ones (-1: null), and these."""
    if isinstance(texts, pa.ChunkedArray):
        texts = texts.combine_chunks()
    if pa.types.is_dictionary(texts.type):
        texts = texts.cast(texts.type.value_type)  # its dictionary may hold a text twice, or a null
    encoded = texts.dictionary_encode()
    return pc.fill_null(encoded.indices.cast(pa.int64()), -1).to_numpy(), encoded.dictionary


class _Lists(NamedTuple):
    """Lists in one array: list i is `values[starts[i]:starts[i + 1]]`."""

    starts: Index
    values: Index

    @classmethod
    def of(cls, owner: Index, count: int, values: Index | None = None) -> _Lists:
        """List i holds, in order, the values (if none are given: the places) where `owner` is i."""
        starts = np.zeros(count + 1, np.int64)
        np.cumsum(np.bincount(owner, minlength=count), out=starts[1:])
        order = np.argsort(owner, kind="stable")
        return cls(starts, order if values is None else values[order])

    def ranges(self, key: Index, which: Index) -> tuple[Index, Index]:
        """Each key as often as list `which` is long, beside the places of the list's values."""
        lengths = (self.starts[1:] - self.starts[:-1])[which]
        shift = np.repeat(self.starts[which] - np.cumsum(lengths) + lengths, lengths)
        return np.repeat(key, lengths), shift + np.arange(len(shift))

    def expand(self, key: Index, which: Index) -> tuple[Index, Index]:
        """Each key beside each value of list `which`."""
        keys, at = self.ranges(key, which)
        return keys, self.values[at]


# -- LIKE -----


def like(texts: Any, pattern: str) -> Any:
    """Where the texts of an Arrow array match."""
    way, text = read_like(pattern)
    if way == "regex":
        return pc.match_substring_regex(texts, text)
    if way == "equal":
        return pc.equal(texts, pa.scalar(text, pa.string()))
    find = {"prefix": pc.starts_with, "suffix": pc.ends_with, "contains": pc.match_substring}[way]
    return find(texts, text)


@lru_cache(maxsize=4096)
def read_like(pattern: str) -> tuple[str, str]:
    """How to ask for a pattern (equal, prefix, suffix, contains or regex), and with which text."""
    parts: list[str] = []  # "%", "_" or a plain character as "=c"
    escaped = False
    for character in pattern:
        if escaped or character not in "%_\\":
            parts.append("=" + character)
            escaped = False
        elif character == "\\":
            escaped = True
        else:
            parts.append(character)
    first = 1 if parts[:1] == ["%"] else 0
    last = len(parts) - (1 if len(parts) > first and parts[-1] == "%" else 0)
    middle = parts[first:last]
    if "%" in middle or "_" in middle:
        body = "".join({"%": ".*", "_": "."}.get(part) or _quoted(part[1:]) for part in parts)
        return "regex", rf"(?s)\A{body}\z"
    text = "".join(part[1:] for part in middle)
    ends = (first == 1, last < len(parts))
    return {(0, 0): "equal", (0, 1): "prefix", (1, 0): "suffix", (1, 1): "contains"}[ends], text


def _quoted(character: str) -> str:
    return character if character.isalnum() else rf"\x{{{ord(character):x}}}"
