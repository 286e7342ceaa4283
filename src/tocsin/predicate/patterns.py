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
from collections.abc import Iterator, Sequence
from enum import StrEnum
from functools import cached_property, lru_cache
from itertools import chain, pairwise
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tocsin.model.columns import Index, distinct
from tocsin.model.folding import fold, fold_texts
from tocsin.predicate._kernels import AT_END, AT_START, SECOND, VERIFY
from tocsin.predicate.regexes import LONGEST, RegexSet, compiled, least_bytes, regex_sets, requirements
from tocsin.predicate.words import POPULAR, ListArrays, OneFinder, WordFinder, WordUse, column_of, rarest

__all__ = ["LikeForm", "OneText", "Patterns", "ilike", "like", "read_like"]

LONG = 64  # bytes that a regex needs at least, from which on it runs alone: it counts, and sets explode
FEW_CANDIDATES = 16  # of one regex: calling RE2 for each is faster than compiling the regex again in Arrow
MOST_COMPILED = 1 << 14  # regexes kept compiled
EVERYWHERE = -1  # all groups of texts
_MOST_GROUPS = 64  # whose regexes are remembered


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
    `groups` says, as bits, for which groups of texts each pattern is meant; for others it may not be found.
    """

    def __init__(
        self,
        patterns: Sequence[tuple[str, str]],
        set_memory: int | None = None,
        groups: Sequence[int] | None = None,
    ) -> None:
        numbers: dict[tuple[str, str], int] = {}
        same = column_of(numbers.setdefault((kind, pattern), len(numbers)) for kind, pattern in patterns)
        self._size = len(same)
        self._distinct = list(numbers)
        self._positions = ListArrays.of(same, len(numbers))  # of each distinct pattern
        self._parsed = [_parse(kind, pattern) for kind, pattern in self._distinct]
        self._groups = np.zeros(len(numbers), np.int64)  # by distinct pattern
        np.bitwise_or.at(self._groups, same, EVERYWHERE if groups is None else np.array(groups, np.int64))
        self._least = np.zeros(len(numbers), np.int64)  # bytes of a text that a regex may match
        self._compiled: dict[int, Any] = {}
        self._lock = Lock()
        self._any_text: list[int] = []  # match every text that is not null
        self._only_empty: list[int] = []  # match the empty text, which no trie finds
        uses, folded_uses = self._word_uses()
        plain, folded, without = self._regex_uses()
        self._words, self._folded = (
            WordFinder([use._replace(group=int(self._groups[use.number])) for use in own])
            for own in (uses + plain, folded_uses + folded)
        )
        self._needs_two = np.zeros(len(numbers), bool)  # whether candidates need a first and a second word
        self._needs_two[[use.number for use in plain + folded if use.need & SECOND]] = True
        alone = {n for n in without if self._parsed[n].folded or self._least[n] >= LONG}
        self._sets: list[RegexSet] = []
        self._single = sorted(alone)
        for mask in dict.fromkeys(self._groups[[n for n in without if n not in alone]].tolist()):
            mine = [n for n in without if n not in alone and self._groups[n] == mask]
            sets, single = regex_sets([(n, self._parsed[n].text) for n in mine], set_memory, len(without))
            self._sets += sets
            self._single += single
        self._is_distinct = len(numbers) == len(same)

    def _word_uses(self) -> tuple[list[WordUse], list[WordUse]]:
        """Words that decide by themselves, of texts as they are, and of folded ones."""
        uses: list[WordUse] = []
        folded_uses: list[WordUse] = []
        for number, (form, word, folded) in enumerate(self._parsed):
            if form is LikeForm.REGEX:
                continue
            into = folded_uses if folded else uses
            if not word:
                (self._only_empty if form is LikeForm.EQUAL else self._any_text).append(number)
            elif len(word) > LONGEST:
                into.append(WordUse(word[:LONGEST], number, VERIFY))
            else:
                into.append(WordUse(word, number, NEEDS[form]))
        return uses, folded_uses

    def _regex_uses(self) -> tuple[list[WordUse], list[WordUse], list[int]]:
        """Words for the trie, words for the folded one, and the regexes that require no word."""
        plain: dict[int, list[frozenset[str]]] = {}
        folded: dict[int, list[frozenset[str]]] = {}
        short: dict[int, list[frozenset[str]]] = {}
        without = []
        for number, (form, regex, of_folded) in enumerate(self._parsed):
            if form is not LikeForm.REGEX:
                continue
            ready = compiled(regex)
            self._least[number] = least_bytes(regex)
            if not of_folded and (options := requirements(regex)):
                plain[number] = options
            elif options := requirements(regex, folded=True):
                folded[number] = options
            elif options := requirements(regex, folded=of_folded, shortest=1):
                short[number] = options
            else:
                without.append(number)
                continue
            if len(self._compiled) < MOST_COMPILED:
                self._compiled[number] = ready
        common = Counter(word for sets in short.values() for words in sets for word in words)
        for number, options in short.items():  # short words are in many texts, so few regexes may need them
            if min(max(common[word] for word in words) for words in options) > POPULAR:
                without.append(number)
            else:
                (folded if self._parsed[number].folded else plain)[number] = options
        return rarest(plain), rarest(folded), without

    def __len__(self) -> int:
        return self._size

    def match(self, texts: pa.Array, groups: Index | None = None) -> tuple[Index, Index]:
        """Distinct (text, pattern) of all matches, sorted by text, then pattern; a null matches nothing.

        `groups`: those that each text belongs to, as bits.
        """
        codes, known = _encoded(texts)
        batch = _DistinctTexts(known)
        if groups is not None:
            batch.groups[:] = 0
            np.bitwise_or.at(batch.groups, codes[codes >= 0], groups[codes >= 0])
        size = len(self._distinct)
        found = distinct(
            np.concatenate([text * size + number for text, number in self._matches(batch)] or [_NONE])
        )
        text, position = self._positions.expand(found // max(size, 1), found % max(size, 1))
        order = np.lexsort((position, text))
        rows, at = ListArrays.of(text[order], len(known)).expand(
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
        yield from self._verified(self._candidates(distinct(np.concatenate(maybe)), batch), batch)
        for group in self._sets:
            yield from self._match_set(group, batch)
        for at in self._single:
            rows = all_texts[(batch.groups & self._groups[at] != 0) & (batch.sizes >= self._least[at])]
            holds = self._holds(at, self._read_by(at, batch).texts.take(pa.array(rows)))
            yield rows[holds], np.full(np.count_nonzero(holds), at)

    def _read_by(self, number: int, batch: _DistinctTexts) -> _DistinctTexts:
        """The texts as a pattern reads them: folded or not."""
        return batch.folded if self._parsed[number].folded else batch

    def _candidates(self, found: Index, batch: _DistinctTexts) -> Index:
        """pattern * texts + text of candidates; `found` has twice that, + 1 for a second word."""
        texts = len(batch.texts)
        number, text = np.divmod(found >> 1, texts)
        wanted = batch.groups[text] & self._groups[number] != 0
        found = found[wanted & (batch.sizes[text] >= self._least[number])]
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
        wanted = np.flatnonzero(batch.groups & np.bitwise_or.reduce(self._groups[group.numbers]) != 0)
        answers = [match(batch.raw[row]) or () for row in wanted.tolist()]
        text = np.repeat(wanted, [len(answer) for answer in answers])
        found = np.fromiter(chain.from_iterable(answers), np.int64, len(text))
        yield text[found > 0], group.numbers[found[found > 0] - 1]  # 0 is the empty regex
        answered = np.bincount(text[found == 0], minlength=len(batch.raw)) > 0
        exhausted = wanted[~answered[wanted]]
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
        self._plain = OneFinder(words) if words.words else None
        self._folded = OneFinder(folded) if folded.words else None
        self._least: list[int] = patterns._least.tolist()
        self._by_group: dict[int, tuple[list[int], list[RegexSet]]] = {}
        self._always = patterns._any_text
        slowly = patterns._single or patterns._sets
        by_words = not (folded.words or slowly or self._always or patterns._only_empty)
        self._by_words_alone = by_words and not np.any(words.needs & VERIFY)

    def find(self, text: str, group: int = EVERYWHERE) -> Index:
        """The numbers of the patterns that match a text of a group; in any order, until the next."""
        raw = text.encode()
        if self._by_words_alone and self._plain is not None and raw:
            return self._plain.find(raw, group)[:, 1]
        patterns, low = self._patterns, b""
        found = [*self._always] if raw else [*self._always, *patterns._only_empty]
        maybe: dict[int, int] = {}  # by pattern: 1 for its first word, 2 for its second
        if self._plain is not None and raw and self._plain.groups & group:
            self._take(self._plain.find(raw, group), found, maybe)
        slowly, sets = self._by_group.get(group) or self._of_group(group)
        folded = self._folded is not None and self._folded.groups & group
        if folded or slowly or maybe:
            low = fold(text).encode()
        if self._folded is not None and folded and low:
            self._take(self._folded.find(low, group), found, maybe)
        needs_two, groups = patterns._needs_two, patterns._groups
        for number, seen in maybe.items():
            if seen & 1 and (seen & 2 or not needs_two[number]) and groups[number] & group:
                self._verify(number, raw, low, found)
        for number in slowly:
            self._verify(number, raw, low, found)
        for one in sets:
            own = one.set.Match(raw) or ()
            if 0 in own:
                found += one.numbers[[n - 1 for n in own if n]].tolist()
            else:  # out of memory
                for number in one.numbers.tolist():
                    self._verify(number, raw, low, found)
        return np.array(found, np.int64)

    def _of_group(self, group: int) -> tuple[list[int], list[RegexSet]]:
        """The regexes without words that are meant for a group, alone and in sets."""
        patterns, groups = self._patterns, self._patterns._groups
        if len(self._by_group) >= _MOST_GROUPS:
            self._by_group.clear()
        made = self._by_group[group] = (
            [number for number in patterns._single if groups[number] & group],
            [one for one in patterns._sets if np.any(groups[one.numbers] & group)],
        )
        return made

    def _verify(self, number: int, raw: bytes, low: bytes, found: list[int]) -> None:
        own = low if self._patterns._parsed[number].folded else raw
        if len(own) >= self._least[number] and self._patterns.holds_in(number, own):
            found.append(number)

    @staticmethod
    def _take(rows: Index, found: list[int], maybe: dict[int, int]) -> None:
        """Divide what was found into matches and candidates."""
        for _, number, need in rows.tolist():
            if not need & VERIFY:
                found.append(number)
            else:
                maybe[number] = maybe.get(number, 0) | (2 if need & SECOND else 1)


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


class _DistinctTexts:
    """Distinct texts, none of them null: text i is `data[offsets[i]:offsets[i + 1]]`."""

    def __init__(self, texts: Any) -> None:
        self.texts = texts.cast(pa.large_string())
        _, offsets, data = self.texts.buffers()
        ends = np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1]
        self.offsets: Index = ends - ends[0]
        self.data = memoryview(data or b"").cast("B")[int(ends[0]) : int(ends[-1])]
        self.sizes: Index = np.diff(self.offsets)
        self.groups: Index = np.full(len(texts), EVERYWHERE, np.int64)  # as bits

    @cached_property
    def folded(self) -> _DistinctTexts:
        """The same texts, folded."""
        folded = _DistinctTexts(fold_texts(self.texts))
        folded.groups = self.groups
        return folded

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
