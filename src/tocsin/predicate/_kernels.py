"""Compiled loops over codes, texts, entries of events, and tests of filters.

rank_texts, hash_texts            texts to codes
number_texts                      texts of a batch to numbers, equal ones alike
count_entries, scatter_entries    columns of values to entries by event
code_entries                      entries in the dimensions of one index, sorted within each event
verify_pairs                      does a filter hold for an event, pair by pair?
choose_ranges                     one range of one dimension for each filter
build_trie, find_words            words of patterns in texts
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tocsin.compiled import kernel
from tocsin.predicate.flat import ABSENT, NEGATED, OR_NEXT, CodeSpace

__all__ = [
    "AT_END",
    "AT_START",
    "SECOND",
    "TEXT_WORTH",
    "VERIFY",
    "CodedEntries",
    "DimensionScores",
    "FilterTests",
    "RangeChoice",
    "TextBytes",
    "WordTrie",
    "WordUses",
    "build_trie",
    "choose_ranges",
    "code_entries",
    "count_entries",
    "find_words",
    "hash_texts",
    "number_texts",
    "rank_texts",
    "scatter_entries",
    "verify_pairs",
]

_LEAST, _GREATEST = np.int64(-(2**63)), np.int64(2**63 - 1)
_TEXT, _REVERSED, _ANY = int(CodeSpace.TEXT), int(CodeSpace.REVERSED), int(CodeSpace.ANY)
_BETWEEN = int(CodeSpace.BETWEEN)
TEXT_WORTH = 3  # `DimensionScores.worth` of a dimension of texts


class FilterTests(NamedTuple):
    """Tests of conjunctions (see `flat.py`); conjunction c has tests start[c] to start[c + 1]."""

    start: Any
    dim: Any
    low: Any
    high: Any
    flags: Any


class CodedEntries(NamedTuple):
    """Entries of events in one index's dimensions, which ascend within an event.

    Where `between` is set, the value lies just above its code and below the next.
    """

    start: Any
    dim: Any
    code: Any
    between: Any


# -- codes ------------------------------------------------------------------------------------------


@kernel(allocates=False)
def _compare(a, a0, a1, b, b0, b1):
    """Byte strings a[a0:a1] and b[b0:b1]: below 0, 0 or above 0."""
    n = min(a1 - a0, b1 - b0)
    for i in range(n):
        x, y = a[a0 + i], b[b0 + i]
        if x != y:
            return 1 if x > y else -1
    return (a1 - a0) - (b1 - b0)


@kernel
def rank_texts(data, offset, wanted, wanted_offset):
    """The code of each wanted text among sorted ones: 4 x rank if it is one of them, else 4 x rank - 2."""
    out = np.empty(len(wanted_offset) - 1, np.int64)
    for i in range(len(out)):
        a0, a1 = wanted_offset[i], wanted_offset[i + 1]
        low, high = 0, len(offset) - 1
        while low < high:
            middle = (low + high) >> 1
            if _compare(data, offset[middle], offset[middle + 1], wanted, a0, a1) < 0:
                low = middle + 1
            else:
                high = middle
        same = low < len(offset) - 1 and _compare(data, offset[low], offset[low + 1], wanted, a0, a1) == 0
        out[i] = 4 * low if same else 4 * low - 2
    return out


@kernel(allocates=False)
def hash_texts(start, data, out):
    """FNV-1a of each byte string, with its upper bits mixed in."""
    for i in range(len(out)):
        h = np.uint64(0xCBF29CE484222325)
        for j in range(start[i], start[i + 1]):
            h = (h ^ np.uint64(data[j])) * np.uint64(0x100000001B3)
        h ^= h >> np.uint64(29)
        out[i] = np.int64(h >> np.uint64(2))  # well inside of int64, whose ends are open ranges


@kernel(allocates=False)
def number_texts(data, begin, end, table, number, first):
    """Numbers the texts begin[i]..end[i]-1 in order of arrival, equal ones alike; returns how many there are.

    `first` receives where each distinct one occurs first; `table`, all 0, has more than twice as many places.
    """
    mask, count = np.uint64(len(table) - 1), 0
    for i in range(len(begin)):
        a, size = begin[i], end[i] - begin[i]
        h = np.uint64(0xCBF29CE484222325)
        for j in range(a, a + size):
            h = (h ^ np.uint64(data[j])) * np.uint64(0x100000001B3)
        at = (h ^ (h >> np.uint64(29))) & mask
        while table[at] > 0:
            own = first[table[at] - 1]
            if end[own] - begin[own] == size and _compare(data, begin[own], end[own], data, a, a + size) == 0:
                break
            at = (at + np.uint64(1)) & mask
        if table[at] == 0:
            first[count] = i
            count += 1
            table[at] = count
        number[i] = table[at] - 1
    return count


# -- entries of events --------------------------------------------------------------------------------


@kernel(allocates=False)
def count_entries(event, start):
    """Adds to start[e + 1] the number of entries of event e."""
    for e in event:
        start[e + 1] += 1


@kernel(allocates=False)
def scatter_entries(event, name, space, code, cursor, out):
    """Writes entries of one space to the next free places of their events."""
    names, spaces, codes = out
    for i in range(len(event)):
        at = cursor[event[i]]
        names[at], spaces[at], codes[at] = name[i], space, code[i]
        cursor[event[i]] = at + 1


@kernel
def code_entries(events, table, texts, backwards, counts, extra):
    """All entries in an index's dimensions, by dimension within an event: `CodedEntries`.

    `table` has the dimension of each name and space, or -1; `counts` and `extra` say how many pattern
    dimensions each entry adds, and which.
    """
    first, name, space, code = events
    most = 3 * len(name) + len(extra)
    start = np.zeros(len(first), np.int64)
    dim, codes, between = np.empty(most, np.int32), np.empty(most, np.int64), np.empty(most, np.bool_)
    n, x = 0, 0
    for e in range(len(first) - 1):
        begin = n
        for i in range(first[e], first[e + 1]):
            own = table[name[i], space[i]]
            value = code[i]
            if space[i] == _TEXT:
                value = texts[code[i]]
            if own >= 0:
                dim[n], codes[n], between[n] = own, value, space[i] == _BETWEEN
                n += 1
            if space[i] == _TEXT and table[name[i], _REVERSED] >= 0:
                dim[n], codes[n], between[n] = table[name[i], _REVERSED], backwards[code[i]], False
                n += 1
            if table[name[i], _ANY] >= 0:
                duplicate = False  # a number between two doubles has two entries, but one presence
                for j in range(begin, n):
                    duplicate = duplicate or dim[j] == table[name[i], _ANY]
                if not duplicate:
                    dim[n], codes[n], between[n] = table[name[i], _ANY], 0, False
                    n += 1
            for _ in range(counts[i]):
                dim[n], codes[n], between[n] = extra[x], 0, False
                n, x = n + 1, x + 1
        for i in range(begin + 1, n):  # events are short: insertion sort
            d, c, b = dim[i], codes[i], between[i]
            j = i
            while j > begin and dim[j - 1] > d:
                dim[j], codes[j], between[j] = dim[j - 1], codes[j - 1], between[j - 1]
                j -= 1
            dim[j], codes[j], between[j] = d, c, b
        start[e + 1] = n
    return CodedEntries(start, dim[:n].copy(), codes[:n].copy(), between[:n].copy())


# -- does a conjunction hold? ---------------------------------------------------------------------------


@kernel(allocates=False)
def _passes(events, e, d, low, high, flags):
    """Does one test hold for event e? Binary search in its entries."""
    start, dims, codes, between = events
    a, n = start[e], start[e + 1] - start[e]
    while n > 1:
        half = n >> 1
        if dims[a + half - 1] < d:
            a += half
        n -= half
    if n == 1 and dims[a] < d:
        a += 1
    there = a < start[e + 1] and dims[a] == d
    if flags & ABSENT:
        return not there
    if not there:
        return False
    inside = low <= codes[a] and codes[a] + between[a] <= high  # or just above its code
    return inside != (flags & NEGATED != 0)


@kernel(allocates=False)
def verify_pairs(filters, first, tests, events, row, out):
    """For each pair whether one of its filter's conjunctions, first[f] to first[f + 1], holds."""
    start, dim, low, high, flags = tests
    for p in range(len(filters)):
        out[p] = False
        for c in range(first[filters[p]], first[filters[p] + 1]):
            i, passed = start[c], True
            while passed and i < start[c + 1]:
                passed = _passes(events, row[p], dim[i], low[i], high[i], flags[i])
                while flags[i] & OR_NEXT:
                    i += 1
                    passed = passed or _passes(events, row[p], dim[i], low[i], high[i], flags[i])
                i += 1
            if passed:
                out[p] = True
                break


# -- one range for each filter ------------------------------------------------------------------------


class DimensionScores(NamedTuple):
    """By dimension, how useful a range of it is."""

    worth: Any  # 0: never used; 1: boolean; 2: ordered; TEXT_WORTH: only single texts
    rank: Any  # the order of names, which decides between equals
    share: Any  # of its tests, the share that a value passes; -1: unknown


class RangeChoice(NamedTuple):
    """By filter, the range that finds its candidates."""

    dim: Any  # -1: none
    low: Any
    high: Any
    exact: Any  # does the range say all that the filter says?
    never: Any  # can the filter never hold?


class _Ranges(NamedTuple):
    """By dimension: a range, and how many conjunctions have one."""

    low: Any
    high: Any
    count: Any


@kernel(allocates=False)
def _score(worth, low, high, share):
    if worth != TEXT_WORTH and low == _LEAST and high == _GREATEST:
        return 0.5  # any value: only where nothing else is bounded
    if share >= 0:
        return 8.0 - 7.0 * share
    if worth == TEXT_WORTH:
        return 6.0
    if worth == 1:
        return 1.0
    return 7.0 if low == high else 4.0 if low != _LEAST and high != _GREATEST else 2.0


@kernel(allocates=False)
def _intersect(tests, c, worth, here):
    """The ranges of one conjunction, by dimension; whether each of its tests is a range of its own."""
    start, dim, low, high, flags = tests
    plain = True
    t = start[c]
    while t < start[c + 1]:
        end = t  # of the clause
        while flags[end] & OR_NEXT:
            end += 1
        d = dim[t]
        usable = worth[d] > 0
        a, b = low[t], high[t]
        for u in range(t, end + 1):
            usable &= dim[u] == d and (flags[u] & ~np.uint8(OR_NEXT)) == 0
            a, b = min(a, low[u]), max(b, high[u])
        if usable and worth[d] == TEXT_WORTH:
            usable = a == b and a >= 0 and a % 4 == 0
            plain = False
        plain &= usable and end == t
        if usable:
            here.low[d] = max(a, here.low[d]) if here.count[d] else a
            here.high[d] = min(b, here.high[d]) if here.count[d] else b
            here.count[d] = 1
        t = end + 1
    return plain


@kernel(allocates=False)
def _widen(hull, here, worth, conjunctions):
    """Widens the hull of a filter's conjunctions by one more; different texts have no hull."""
    for d in range(len(worth)):
        if here.count[d]:
            differs = hull.low[d] != here.low[d] or hull.high[d] != here.high[d]
            if worth[d] == TEXT_WORTH and hull.count[d] and differs:
                hull.count[d] = -conjunctions  # never as many as there are
                continue
            hull.low[d] = min(hull.low[d], here.low[d]) if hull.count[d] else here.low[d]
            hull.high[d] = max(hull.high[d], here.high[d]) if hull.count[d] else here.high[d]
            hull.count[d] += 1


@kernel(allocates=False)
def _best_dimension(hull, dims, conjunctions):
    """The dimension with the best hull of all conjunctions, or -1; and how many have a range at all."""
    best, most, used = -1, 0.0, 0
    for d in range(len(dims.worth)):
        used += hull.count[d] != 0
        if conjunctions and hull.count[d] == conjunctions:
            score = _score(dims.worth[d], hull.low[d], hull.high[d], dims.share[d])
            if score > most or (score == most and dims.rank[d] < dims.rank[best]):
                best, most = d, score
    return best, used


@kernel
def choose_ranges(owner, tests, dims, out):
    """Fills the `RangeChoice` of each filter; `owner` has the filter of each conjunction, ascending."""
    n = len(dims.worth)
    here = _Ranges(np.empty(n, np.int64), np.empty(n, np.int64), np.zeros(n, np.int64))
    hull = _Ranges(np.empty(n, np.int64), np.empty(n, np.int64), np.zeros(n, np.int64))
    c = 0
    for f in range(len(out.dim)):
        hull.count[:] = 0
        first, plain = c, True
        while c < len(owner) and owner[c] == f:
            here.count[:] = 0
            plain &= _intersect(tests, c, dims.worth, here)
            _widen(hull, here, dims.worth, len(owner))
            c += 1
        best, used = _best_dimension(hull, dims, c - first)
        out.dim[f] = best
        out.low[f] = out.high[f] = 0  # the code that rows have in place of an attribute
        out.never[f] = c == first
        if best >= 0:
            out.low[f], out.high[f] = hull.low[best], hull.high[best]
            out.never[f] |= hull.low[best] > hull.high[best]
        out.exact[f] = c - first == 1 and plain and used == (best >= 0)


# -- words ----------------------------------------------------------------------------------------------
#
# Many words are found in a text by walking a trie from each of its bytes. The first two bytes of a word are
# looked up in a table, each further one in a hash table of edges:
#
#     disk, dish     pairs[d, i] ─► node 256 ─s─► 257 ─k─► 258 (disk)
#                                                  └─h─► 259 (dish)
#
# Most walks end after two or three bytes, so that a text takes some nanoseconds per byte, however many words
# there are; at worst it takes its length times that of the longest word, which is bounded.

AT_START, AT_END, VERIFY, SECOND = 1, 2, 4, 8  # what else a pattern needs where its word is found


class WordTrie(NamedTuple):
    """Nodes 0..255 are first bytes, further nodes have numbers from 256 on."""

    pairs: Any  # by first and second byte: their node, or 0
    key: Any  # open hash table of edges: node << 8 | byte, or -1
    child: Any
    word: Any  # by node: the word that ends there, or -1
    below: Any  # by node: groups of texts that words from here on are meant for, as eight bits
    short: Any  # bits: the two bytes that words of two or three bytes begin with
    grams: Any  # bits: hashes of the four bytes that longer words begin with
    groups: Any  # by hash of the four bytes: groups of texts that such words are meant for, as eight bits


class TextBytes(NamedTuple):
    """Text t is at offset[t] to offset[t + 1] of the data; the bits of group[t] are its groups."""

    data: Any
    offset: Any
    group: Any


class WordUses(NamedTuple):
    """The patterns that look for word w, what each needs, and the groups of texts that it is meant for.

    They stand at start[w] to start[w + 1].
    """

    start: Any
    pattern: Any
    need: Any
    group: Any
    groups: Any  # by word: of any of its uses


@kernel(allocates=False)
def _edge(key, node, byte):
    """The place of an edge in the hash table, or that where it would be."""
    own = np.int64(node) << 8 | np.int64(byte)
    h = np.uint64(own) * np.uint64(0x9E3779B97F4A7C15)
    mask = np.int64(len(key) - 1)
    at = np.int64(h >> np.uint64(32)) & mask
    while key[at] >= 0 and key[at] != own:
        at = (at + 1) & mask
    return at, own


@kernel(inline=True)
def _gram(data, i, places):
    """The bit of the four bytes from place i on among `places`, a power of two."""
    own = np.int64(data[i]) | np.int64(data[i + 1]) << 8
    own |= np.int64(data[i + 2]) << 16 | np.int64(data[i + 3]) << 24
    return np.int64((np.uint64(own) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(32)) & (places - 1)


@kernel(inline=True)
def _eight(groups):
    """Groups of texts as eight bits, each for eight groups."""
    half = groups | (groups >> 32) & 0xFFFFFFFF
    half |= half >> 16
    return (half | half >> 8) & 0xFF


@kernel(inline=True)
def _goes_on(trie, data, i, z, groups):
    """Whether a word of two or more bytes for these groups may begin at place i of a text that ends at z."""
    if i + 1 >= z:
        return False
    pair = np.int64(data[i]) << 8 | np.int64(data[i + 1])
    if trie.short[pair >> 3] & (1 << (pair & 7)):
        return True
    if i + 4 > z:
        return False
    gram = _gram(data, i, 8 * len(trie.grams))
    if trie.grams[gram >> 3] & (1 << (gram & 7)) == 0:
        return False
    return trie.groups[gram & (len(trie.groups) - 1)] & groups != 0


@kernel(allocates=False)
def build_trie(start, data, groups, trie):
    """Enters the words, at start[w]..start[w + 1] - 1 of the data, with their groups; none is empty."""
    count = 256
    for w in range(len(start) - 1):
        a, z, own_groups = start[w], start[w + 1], _eight(groups[w])
        node = np.int64(data[a])
        for j in range(a + 1, z):
            if j == a + 1:
                child = np.int64(trie.pairs[node, data[j]])
                if child == 0:
                    child = count
                    trie.pairs[node, data[j]] = child
                    count += 1
            else:
                at, own = _edge(trie.key, node, data[j])
                if trie.key[at] < 0:
                    trie.key[at], trie.child[at] = own, count
                    count += 1
                child = np.int64(trie.child[at])
            node = child
            trie.below[node] |= own_groups
        trie.word[node] = w
        if z - a >= 4:
            gram = _gram(data, a, 8 * len(trie.grams))
            trie.grams[gram >> 3] |= 1 << (gram & 7)
            trie.groups[gram & (len(trie.groups) - 1)] |= own_groups
        elif z - a >= 2:
            pair = np.int64(data[a]) << 8 | np.int64(data[a + 1])
            trie.short[pair >> 3] |= 1 << (pair & 7)


@kernel(inline=True)
def _write_uses(uses, w, place, own, last, n, out):
    """Writes the uses of word w that fit a place of a text: `own` is its number, mark, and groups."""
    for u in range(uses.start[w], uses.start[w + 1]):
        if uses.need[u] & ~place == 0 and uses.group[u] & own[2] != 0 and last[u] != own[1]:
            last[u] = own[1]
            if n < len(out):
                out[n, 0], out[n, 1], out[n, 2] = own[0], uses.pattern[u], uses.need[u]
            n += 1
    return n


@kernel(allocates=False)
def find_words(trie, texts, uses, last, first, out):
    """Writes text, pattern and need wherever a pattern's word is found at the right place of a text.

    Each use of a word is written once for each text: `last` has the last text of each, counted from `first`
    on. Returns how many there are, also if that is more than `out` has space for. At most places, a few bits
    say that no word of two or more bytes that is meant for the text begins there, or goes on from there.
    """
    n, data = 0, texts.data
    for t in range(len(texts.offset) - 1):
        a, z = texts.offset[t], texts.offset[t + 1]
        own, groups = (t, first + t, texts.group[t]), _eight(texts.group[t])
        for i in range(a, z):
            node = np.int64(data[i])
            w = np.int64(trie.word[node])
            start = (AT_START if i == a else 0) | VERIFY | SECOND
            if w >= 0 and uses.groups[w] & own[2] != 0:
                n = _write_uses(uses, w, start | (AT_END if i + 1 == z else 0), own, last, n, out)
            if not _goes_on(trie, data, i, z, groups):
                continue
            node, j = np.int64(trie.pairs[node, data[i + 1]]), i + 2
            while node != 0 and trie.below[node] & groups != 0:
                w = np.int64(trie.word[node])
                if w >= 0 and uses.groups[w] & own[2] != 0:
                    n = _write_uses(uses, w, start | (AT_END if j == z else 0), own, last, n, out)
                if j == z:
                    break
                at, _ = _edge(trie.key, node, data[j])
                if trie.key[at] < 0:
                    break
                node, j = np.int64(trie.child[at]), j + 1
    return n
