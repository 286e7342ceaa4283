"""LIKE, and matching many LIKE, ILIKE and RLIKE patterns with many texts at once.

One by one, ten thousand patterns would read every text ten thousand times. `Patterns` reads a text a few
times, whatever the number of patterns:

    '%disk%'  'disk%'  '%disk'  'disk'     one trie finds their words; the position of a word decides
                                           which of the four match
    'error [0-9]+ in (disk|net)'           a word it requires goes into the same trie (`regexes.py`);
                                           texts with the word (or with two, if a second one is rare)
                                           are candidates, and RE2 verifies them
    ILIKE '%Disk%', RLIKE '(?i)disk'       like LIKE, over folded texts (`model/folding.py`), in a second trie
    '(?i)disk [a-z]+'                      a word it requires goes into that trie; RE2 verifies
    '[0-9]{4}-[0-9]{2}'                    requires no word: RE2 sets run several regexes together

RE2 takes time linear in the text whatever the regex, so no pattern can stall a batch. An RE2 set may run
out of memory and then reports no match; so each set also holds the empty regex, which matches every text.
If that is missing from an answer, the set's regexes run one by one.

Cost per batch: O(bytes of its distinct texts + occurrences of words); for texts of 200 characters, less than
1 µs per candidate and about 4 µs per text and 32 regexes without a word. Only distinct texts and distinct
patterns count.

>>> patterns = Patterns([("like", "%disk%"), ("rlike", "[0-9]+ errors?$"), ("like", "%"), ("like", "d_sk")])
>>> text, pattern = patterns.match(pa.array(["disk", None, "12 errors", ""]))
>>> list(zip(text.tolist(), pattern.tolist()))
[(0, 0), (0, 2), (0, 3), (2, 1), (2, 2), (3, 2)]
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from functools import cached_property, lru_cache
from itertools import chain, pairwise
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tocsin.model.columns import Index, distinct
from tocsin.model.folding import fold, fold_texts
from tocsin.predicate._kernels import (
    AT_END,
    AT_START,
    SECOND,
    VERIFY,
    WordTrie,
    WordUses,
    build_trie,
    find_words,
)
from tocsin.predicate.regexes import LONGEST, RegexSet, compiled, regex_sets, requirements

__all__ = ["LikeForm", "OneText", "Patterns", "ilike", "like", "read_like"]

MOST_CHAINED = 8  # words that may end at the same position
FEW_CANDIDATES = 16  # of one regex: calling RE2 for each is faster than compiling the regex again in Arrow
MOST_COMPILED = 1 << 14  # regexes kept compiled
POPULAR = 32  # regexes that share words: words of more are no second condition


class LikeForm(StrEnum):
    """How a pattern is matched, by its form."""

    EQUAL = "equal"  # 'abc'
    PREFIX = "prefix"  # 'abc%'
    SUFFIX = "suffix"  # '%abc'
    CONTAINS = "contains"  # '%abc%'
    REGEX = "regex"  # all others, and RLIKE


NEEDS = {
    LikeForm.CONTAINS: 0,
    LikeForm.PREFIX: AT_START,
    LikeForm.SUFFIX: AT_END,
    LikeForm.EQUAL: AT_START | AT_END,
}


class Patterns:
    """Many LIKE and RLIKE patterns, matched with many texts at once.

    `patterns` are (kind, pattern), kind "like", "ilike" or "rlike". ValueError for one that RE2 rejects.
    """

    def __init__(self, patterns: Sequence[tuple[str, str]], set_memory: int | None = None) -> None:
        numbers: dict[tuple[str, str], int] = {}
        same = _column(numbers.setdefault((kind, pattern), len(numbers)) for kind, pattern in patterns)
        self._size = len(same)
        self._distinct = list(numbers)
        self._positions = _ListArrays.of(same, len(numbers))  # of each distinct pattern
        self._parsed = [_parse(kind, pattern) for kind, pattern in self._distinct]
        self._compiled: dict[int, Any] = {}
        self._lock = Lock()
        self._any_text: list[int] = []  # match every text that is not null
        self._only_empty: list[int] = []  # match the empty text, which no trie finds
        uses, folded_uses = self._word_uses()
        plain, folded, without = self._regex_uses()
        self._words, self._folded = _Words(uses + plain), _Words(folded_uses + folded)
        self._needs_two = np.zeros(len(numbers), bool)  # whether candidates need a first and a second word
        self._needs_two[[use.number for use in plain + folded if use.need & SECOND]] = True
        of_folded = [number for number in without if self._parsed[number].folded]
        regexes = [(number, self._parsed[number].text) for number in without if number not in set(of_folded)]
        self._sets, self._single = regex_sets(regexes, set_memory)
        self._single = [*self._single, *of_folded]
        self._is_distinct = len(numbers) == len(same)

    def _word_uses(self) -> tuple[list[_WordUse], list[_WordUse]]:
        """Words that decide by themselves, of texts as they are, and of folded ones."""
        uses: list[_WordUse] = []
        folded_uses: list[_WordUse] = []
        for number, (form, word, folded) in enumerate(self._parsed):
            if form is LikeForm.REGEX:
                continue
            into = folded_uses if folded else uses
            if not word:
                (self._only_empty if form is LikeForm.EQUAL else self._any_text).append(number)
            elif len(word) > LONGEST:
                into.append(_WordUse(word[:LONGEST], number, VERIFY))
            else:
                into.append(_WordUse(word, number, NEEDS[form]))
        return uses, folded_uses

    def _regex_uses(self) -> tuple[list[_WordUse], list[_WordUse], list[int]]:
        """Words for the trie, words for the folded one, and the regexes that require no word."""
        plain: dict[int, list[frozenset[str]]] = {}
        folded: dict[int, list[frozenset[str]]] = {}
        without = []
        for number, (form, regex, of_folded) in enumerate(self._parsed):
            if form is not LikeForm.REGEX:
                continue
            ready = compiled(regex)
            if not of_folded and (options := requirements(regex)):
                plain[number] = options
            elif options := requirements(regex, folded=True):
                folded[number] = options
            else:
                without.append(number)
                continue
            if len(self._compiled) < MOST_COMPILED:
                self._compiled[number] = ready
        return _rarest(plain), _rarest(folded), without

    def __len__(self) -> int:
        return self._size

    def match(self, texts: pa.Array) -> tuple[Index, Index]:
        """Distinct (text, pattern) of all matches, sorted by text, then pattern; a null matches nothing."""
        codes, known = _encoded(texts)
        batch = _DistinctTexts(known)
        size = len(self._distinct)
        found = distinct(
            np.concatenate([text * size + number for text, number in self._matches(batch)] or [_NONE])
        )
        text, position = self._positions.expand(found // max(size, 1), found % max(size, 1))
        order = np.lexsort((position, text))
        rows, at = _ListArrays.of(text[order], len(known)).expand(
            np.flatnonzero(codes >= 0), codes[codes >= 0]
        )
        return rows, position[order][at]

    def one_text(self) -> OneText | None:
        """A faster way for single texts; None if some patterns are given twice."""
        return OneText(self) if self._is_distinct and self._size else None

    def _matches(self, batch: _DistinctTexts) -> Iterator[tuple[Index, Index]]:
        """(distinct text, distinct pattern), with duplicates."""
        if not len(batch.texts):
            return
        all_texts = np.arange(len(batch.texts))
        blank = np.flatnonzero(np.diff(batch.offsets) == 0)
        for rows, numbers in ((all_texts, self._any_text), (blank, self._only_empty)):
            yield np.tile(rows, len(numbers)), np.repeat(np.array(numbers, np.int64), len(rows))
        text, number, need = self._words.find(batch)
        sure = need & VERIFY == 0
        yield text[sure], number[sure]
        maybe = [(number * len(all_texts) + text)[~sure] * 2 + (need[~sure] & SECOND > 0)]
        if self._folded.words:
            text, number, need = self._folded.find(batch.folded)
            sure = need & VERIFY == 0
            yield text[sure], number[sure]
            maybe.append((number * len(all_texts) + text)[~sure] * 2 + (need[~sure] & SECOND > 0))
        yield from self._verified(self._candidates(distinct(np.concatenate(maybe)), len(all_texts)), batch)
        for group in self._sets:
            yield from self._match_set(group, batch)
        for at in self._single:
            rows = all_texts[self._holds(at, self._read_by(at, batch).texts)]
            yield rows, np.full(len(rows), at)

    def _read_by(self, number: int, batch: _DistinctTexts) -> _DistinctTexts:
        """The texts as a pattern reads them: folded or not."""
        return batch.folded if self._parsed[number].folded else batch

    def _candidates(self, found: Index, texts: int) -> Index:
        """pattern * texts + text of candidates; `found` has twice that, + 1 for a second word."""
        first, second = found[found & 1 == 0] >> 1, found[found & 1 == 1] >> 1
        return first[
            ~self._needs_two[first // texts] | np.isin(first, second, assume_unique=True, kind="sort")
        ]

    def _verified(self, candidates: Index, batch: _DistinctTexts) -> Iterator[tuple[Index, Index]]:
        """The candidates (sorted: pattern * texts + text) that match."""
        number, text = np.divmod(candidates, len(batch.texts))
        ends = np.flatnonzero(np.diff(number, append=-1)) + 1
        start = 0
        for end in ends.tolist():
            at, rows = int(number[start]), text[start:end]
            own = self._read_by(at, batch)
            if end - start <= FEW_CANDIDATES and self._parsed[at].form is LikeForm.REGEX:
                search = self._regex(at).search
                holds = np.array([search(own.raw[row]) is not None for row in rows.tolist()], bool)
            else:
                holds = self._holds(at, own.texts.take(pa.array(rows)))
            yield rows[holds], number[start:end][holds]
            start = end

    def _match_set(self, group: RegexSet, batch: _DistinctTexts) -> Iterator[tuple[Index, Index]]:
        match = group.set.Match
        answers = [match(text) or () for text in batch.raw]
        text = np.repeat(np.arange(len(batch.raw)), [len(answer) for answer in answers])
        found = np.fromiter(chain.from_iterable(answers), np.int64, len(text))
        yield text[found > 0], group.numbers[found[found > 0] - 1]  # 0 is the empty regex
        exhausted = np.flatnonzero(np.bincount(text[found == 0], minlength=len(batch.raw)) == 0)
        if len(exhausted):
            for at in group.numbers.tolist():
                rows = exhausted[self._holds(at, batch.texts.take(pa.array(exhausted)))]
                yield rows, np.full(len(rows), at)

    def _holds(self, number: int, texts: Any) -> Any:
        """Where one pattern matches, by Arrow; texts as the pattern reads them."""
        return _where(texts, self._parsed[number]).to_numpy(zero_copy_only=False)

    def holds_in(self, number: int, raw: bytes) -> bool:
        """Whether one pattern matches one text, as the pattern reads it."""
        form, text, _ = self._parsed[number]
        if form is LikeForm.REGEX:
            return self._regex(number).search(raw) is not None
        word = text.encode()
        if form is LikeForm.EQUAL:
            return raw == word
        if form is LikeForm.CONTAINS:
            return word in raw
        return raw.startswith(word) if form is LikeForm.PREFIX else raw.endswith(word)

    def _regex(self, number: int) -> Any:
        found = self._compiled.get(number)
        if found is None:
            found = compiled(self._parsed[number].text)
            with self._lock:  # engines with the same patterns share them
                if len(self._compiled) >= MOST_COMPILED:
                    del self._compiled[next(iter(self._compiled))]
                self._compiled[number] = found
        return found

    def stats(self) -> dict[str, Any]:
        """Numbers of distinct patterns by method, and sizes."""
        forms = Counter(parsed.form for parsed in self._parsed)
        grouped = sum(len(group.numbers) for group in self._sets)
        by_folded_word = set(self._folded.uses.values.tolist())
        folded = sum(self._parsed[number].form is LikeForm.REGEX for number in by_folded_word)
        return {
            "patterns": len(self),
            "distinct": len(self._distinct),
            **{form.value: forms[form] for form in NEEDS},
            "regex by word": forms[LikeForm.REGEX] - folded - grouped - len(self._single),
            "regex by folded word": folded,
            "regex by set": grouped,
            "regex alone": len(self._single),
            "sets": len(self._sets),
            "words": len(self._words.words) + len(self._folded.words),
            "bytes of words": sum(map(len, self._words.words + self._folded.words)),
        }

    def _check(self) -> None:
        """Each distinct pattern is matched by exactly one method, and each position has its pattern."""
        methods = [self._any_text, self._only_empty, self._single]
        methods += [words.uses.values.tolist() for words in (self._words, self._folded)]
        methods += [group.numbers.tolist() for group in self._sets]
        count = Counter(chain.from_iterable(set(numbers) for numbers in methods))
        assert count == Counter(range(len(self._distinct))), "a pattern has no method, or two"
        assert sorted(self._positions.values.tolist()) == list(range(len(self)))
        for words in (self._words, self._folded):
            assert all(words.words) and len(set(words.words)) == len(words.words)
            assert (
                len(words.needs) == len(words.uses.values) and len(words.uses.starts) == len(words.words) + 1
            )
        sure = self._folded.uses.values[self._folded.needs & VERIFY == 0]
        assert all(self._parsed[number].folded for number in sure.tolist()), "a folded word proves too much"


# -- LIKE ---------------------------------------------------------------------------------------------------


def like(texts: Any, pattern: str) -> Any:
    """Where the texts of an Arrow array match: `%` any characters, `_` exactly one, a backslash escapes.

    >>> like(pa.array(["ab", "a%b", "xab"]), "%ab").to_pylist()
    [True, False, True]
    >>> like(pa.array(["a%b", "axb"]), "a\\\\%b").to_pylist()
    [True, False]
    """
    return _where(texts, _Parsed(*read_like(pattern), False))


def ilike(texts: Any, pattern: str) -> Any:
    """The same for folded texts and a folded pattern.

    >>> ilike(pa.array(["DISK", "dis"]), "%Isk").to_pylist()
    [True, False]
    """
    return like(fold_texts(texts), fold(pattern))


def _where(texts: Any, parsed: _Parsed) -> Any:
    """Where texts of an Arrow array, folded if the pattern is, match."""
    form, text, _ = parsed
    if form is LikeForm.REGEX:
        return pc.match_substring_regex(texts, text)
    if form is LikeForm.EQUAL:
        return pc.equal(texts, pa.scalar(text, pa.string()))
    find = {
        LikeForm.PREFIX: pc.starts_with,
        LikeForm.SUFFIX: pc.ends_with,
        LikeForm.CONTAINS: pc.match_substring,
    }
    return find[form](texts, text)


@lru_cache(maxsize=4096)
def read_like(pattern: str) -> tuple[LikeForm, str]:
    """The form of a LIKE pattern, and the text (or regex) to look for.

    With `%` at the ends only, it is a comparison, a prefix, a suffix or a substring.
    """
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
        return LikeForm.REGEX, rf"(?s)\A{body}\z"
    text = "".join(part[1:] for part in middle)
    if first == 1:
        return (LikeForm.CONTAINS if last < len(parts) else LikeForm.SUFFIX), text
    return (LikeForm.PREFIX if last < len(parts) else LikeForm.EQUAL), text


def _quoted(character: str) -> str:
    return character if character.isalnum() else rf"\x{{{ord(character):x}}}"


# -- words --------------------------------------------------------------------------------------------


class _WordUse(NamedTuple):
    """A word that pattern `number` looks for, and what else it needs where the word is found."""

    word: str
    number: int
    need: int


class _Words:
    """Words in one trie, each with the patterns that look for it."""

    def __init__(self, uses: list[_WordUse]) -> None:
        representative = _unchained({use.word for use in uses})
        uses = [
            use if representative[use.word] == use.word else use._replace(need=use.need & SECOND | VERIFY)
            for use in uses
        ]
        numbers: dict[str, int] = {}
        word = _column(numbers.setdefault(representative[use.word], len(numbers)) for use in uses)
        self.words = [text.encode() for text in numbers]
        order = np.argsort(word, kind="stable")
        self.uses = _ListArrays.of(word, len(numbers), _column(use.number for use in uses))
        self.needs = _column(use.need for use in uses)[order]
        self.trie = _trie(self.words)
        self.word_uses = WordUses(self.uses.starts, self.uses.values, self.needs)

    def find(self, batch: _DistinctTexts) -> tuple[Index, Index, Index]:
        """(text, pattern, its needs) where a word is found at the right position; each once for each word."""
        out = self.find_in(np.frombuffer(batch.data, np.uint8), batch.offsets)
        return out[:, 0], out[:, 1], out[:, 2]

    def find_in(self, data: NDArray[np.uint8], offsets: Index) -> Index:
        """The same as rows of text, pattern and need, for texts at `offsets` of the data."""
        out = np.empty((64 + 4 * len(offsets), 3), np.int64)
        if not self.words:
            return out[:0]
        found = self._find(data, offsets, out)
        if found > len(out):
            out = np.empty((found, 3), np.int64)
            self._find(data, offsets, out)
        return out[:found]

    def _find(self, data: NDArray[np.uint8], offsets: Index, out: Index) -> int:
        last = np.full(len(self.needs), -1, np.int64)
        return int(find_words(self.trie, data, offsets, self.word_uses, last, 0, out))


class _OneFinder:
    """Finds the words of one text after another, without allocating; for one thread."""

    def __init__(self, words: _Words) -> None:
        self._words = words
        self._last = np.full(len(words.needs), -1, np.int64)
        self._ends = np.zeros(2, np.int64)
        self._turn = 0
        self._run: Any = None
        self._enlarge(256, 64)

    def find(self, text: bytes) -> Index:
        """Rows of text, pattern and need, until the next call."""
        size = len(text)
        if size > self._capacity:
            self._enlarge(2 * size, len(self._out))
        self._memory[:size] = text
        self._ends[1] = size
        self._turn += 1
        args = *self._args, self._turn, self._out
        if self._run is not None:
            found = self._run(*args)
        else:
            found = find_words(*args)
            self._run = find_words.entry_point(args)
        if found > len(self._out):
            self._enlarge(self._capacity, 2 * found)
            return self.find(text)
        return self._out[:found]

    def _enlarge(self, capacity: int, most: int) -> None:
        """Make space for texts of so many bytes and so many matches."""
        data, self._capacity = np.empty(capacity, np.uint8), capacity
        self._memory, self._out = data.data, np.empty((most, 3), np.int64)
        text = data.view()
        text.flags.writeable = False  # as arrays over bytes are
        words = self._words
        self._args = words.trie, text, self._ends, words.word_uses, self._last


class OneText:
    """Finds the distinct patterns of one text after another; for one thread.

    >>> patterns = Patterns([("like", "%disk%"), ("like", "%full"), ("ilike", "FULL%"), ("rlike", "d.s")])
    >>> one = patterns.one_text()
    >>> sorted(one.find("disk full").tolist()), sorted(one.find("Full disk").tolist())
    ([0, 1, 3], [0, 2, 3])
    """

    def __init__(self, patterns: Patterns) -> None:
        self._patterns = patterns
        words, folded = patterns._words, patterns._folded
        self._plain = _OneFinder(words) if words.words else None
        self._folded = _OneFinder(folded) if folded.words else None
        self._slowly = patterns._single
        self._sets = patterns._sets
        self._always = patterns._any_text
        by_words = not (folded.words or self._slowly or self._sets or self._always or patterns._only_empty)
        self._by_words_alone = by_words and not np.any(words.needs & VERIFY)

    def find(self, text: str) -> Index:
        """The numbers of the patterns that match a text; in any order, until the next."""
        raw = text.encode()
        if self._by_words_alone and self._plain is not None and raw:
            return self._plain.find(raw)[:, 1]
        patterns, low = self._patterns, b""
        found = [*self._always] if raw else [*self._always, *patterns._only_empty]
        maybe: dict[int, int] = {}  # by pattern: 1 for its first word, 2 for its second
        if self._plain is not None and raw:
            self._take(self._plain.find(raw), found, maybe)
        if self._folded is not None or self._slowly or maybe:
            low = fold(text).encode()
        if self._folded is not None and low:
            self._take(self._folded.find(low), found, maybe)
        needs_two = patterns._needs_two
        for number, seen in maybe.items():
            if seen & 1 and (seen & 2 or not needs_two[number]):
                self._verify(number, raw, low, found)
        for number in self._slowly:
            self._verify(number, raw, low, found)
        for group in self._sets:
            own = group.set.Match(raw) or ()
            if 0 in own:
                found += group.numbers[[n - 1 for n in own if n]].tolist()
            else:  # out of memory
                for number in group.numbers.tolist():
                    self._verify(number, raw, low, found)
        return np.array(found, np.int64)

    def _verify(self, number: int, raw: bytes, low: bytes, found: list[int]) -> None:
        if self._patterns.holds_in(number, low if self._patterns._parsed[number].folded else raw):
            found.append(number)

    @staticmethod
    def _take(rows: Index, found: list[int], maybe: dict[int, int]) -> None:
        """Divide what was found into matches and candidates."""
        for _, number, need in rows.tolist():
            if not need & VERIFY:
                found.append(number)
            else:
                maybe[number] = maybe.get(number, 0) | (2 if need & SECOND else 1)


def _trie(words: list[bytes]) -> WordTrie:
    start = np.zeros(len(words) + 1, np.int64)
    np.cumsum([len(word) for word in words], out=start[1:])
    data, size = np.frombuffer(b"".join(words), np.uint8), int(start[-1])
    places = 1 << (2 * size + 1).bit_length()
    edges = np.full(places, -1, np.int64), np.zeros(places, np.int32)
    trie = WordTrie(np.zeros((256, 256), np.int32), *edges, np.full(256 + size, -1, np.int32))
    build_trie(start, data, trie)
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


def _rarest(options: dict[int, list[frozenset[str]]]) -> list[_WordUse]:
    """For each regex one requirement, of long words that few others need; and a second, if it is rare."""
    popular = Counter(word for sets in options.values() for words in sets for word in words)

    def cost(words: Iterable[str]) -> tuple[int, int]:
        return -min(6, *map(len, words)), sum(popular[word] for word in words)

    uses: list[_WordUse] = []
    for number, sets in options.items():
        best, *others = sorted(sets, key=cost)
        uses += [_WordUse(word, number, VERIFY) for word in sorted(best)]
        if others and cost(others[0])[1] <= POPULAR:
            uses += [_WordUse(word, number, VERIFY | SECOND) for word in sorted(others[0])]
    return uses


class _Parsed(NamedTuple):
    """The form of a pattern, the text or regex it looks for, and whether in folded texts."""

    form: LikeForm
    text: str
    folded: bool


def _parse(kind: str, pattern: str) -> _Parsed:
    if kind == "like":
        return _Parsed(*read_like(pattern), False)
    if kind == "ilike":
        return _Parsed(*read_like(fold(pattern)), True)
    if kind != "rlike":
        raise ValueError(f"a pattern is like, ilike or rlike, not {kind!r}")
    return _folded_word(pattern) or _Parsed(LikeForm.REGEX, pattern, False)


_FOLDED_WORD = re.compile(r"\(\?i\)(\^?)((?:[ !\"#%&',\-/0-9:;<=>@A-Z_`a-z~]|\\[!-/:-@\[-`{-~])+)(\$?)")


def _folded_word(regex: str) -> _Parsed | None:
    r"""`(?i)word`, perhaps between ^ and $, as what it is: a word of folded texts; None for other regexes.

    >>> _folded_word(r"(?i)^Disk\.C$"), _folded_word("(?i)disk+")
    (_Parsed(form=<LikeForm.EQUAL: 'equal'>, text='disk.c', folded=True), None)
    """
    match = _FOLDED_WORD.fullmatch(regex)
    if match is None:
        return None
    forms = {("", ""): LikeForm.CONTAINS, ("^", ""): LikeForm.PREFIX, ("", "$"): LikeForm.SUFFIX}
    form = forms.get((match[1], match[3]), LikeForm.EQUAL)
    return _Parsed(form, fold(re.sub(r"\\(.)", r"\1", match[2])), True)


# -- arrays ---------------------------------------------------------------------------------------------

_NONE: Index = np.empty(0, np.int64)


def _column(numbers: Iterable[int]) -> Index:
    return np.fromiter(numbers, np.int64)


class _DistinctTexts:
    """Distinct texts, none of them null: text i is `data[offsets[i]:offsets[i + 1]]`."""

    def __init__(self, texts: Any) -> None:
        self.texts = texts.cast(pa.large_string())
        _, offsets, data = self.texts.buffers()
        ends = np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1]
        self.offsets: Index = ends - ends[0]
        self.data = memoryview(data or b"").cast("B")[int(ends[0]) : int(ends[-1])]

    @cached_property
    def folded(self) -> _DistinctTexts:
        """The same texts, folded."""
        return _DistinctTexts(fold_texts(self.texts))

    @cached_property
    def raw(self) -> list[bytes]:
        """The texts as RE2 reads them."""
        return [bytes(self.data[a:b]) for a, b in pairwise(self.offsets.tolist())]


def _encoded(texts: Any) -> tuple[Index, Any]:
    """The number of each text among the distinct ones (-1: null), and the distinct texts."""
    if isinstance(texts, pa.ChunkedArray):
        texts = texts.combine_chunks()
    if pa.types.is_dictionary(texts.type):
        texts = texts.cast(texts.type.value_type)  # its dictionary may contain duplicates, or a null
    encoded = texts.dictionary_encode()
    return pc.fill_null(encoded.indices.cast(pa.int64()), -1).to_numpy(), encoded.dictionary


class _ListArrays(NamedTuple):
    """Lists in one array: list i is `values[starts[i]:starts[i + 1]]`."""

    starts: Index
    values: Index

    @classmethod
    def of(cls, owner: Index, count: int, values: Index | None = None) -> _ListArrays:
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
