"""Many patterns against one at a time; required words against RE2; RE2 sets that run out of memory."""

from __future__ import annotations

import time

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import re2
from hypothesis import given
from hypothesis import strategies as st

from tocsin.lab.bench.text_workloads import regex_set, texts, word_set
from tocsin.model.folding import fold_texts
from tocsin.predicate import patterns as module
from tocsin.predicate import regexes as reader
from tocsin.predicate.patterns import Patterns, ilike, like
from tocsin.predicate.regexes import least_bytes, regex_sets, requirements
from tocsin.predicate.words import POPULAR

# Letters with several cases (k, K and the Kelvin sign; s and the long s), marks, NUL, newline, 2 to 4 bytes.
LETTERS = "abAkK\u212asS\u017f%_\\.-]0 \x00\n\té\u00c9\u4e2d\U0001f600"
TEXT = st.text(LETTERS, max_size=12)
LIKE = st.text("ab%_\\.\n\x00é中k", max_size=8)
EVERY_WAY = [
    "%",
    "%%",
    "",
    "a%",
    "%a",
    "%ab%",
    "a",
    "a_b",
    "%a%b%",
    "_",
    "%" + "ab" * 30 + "%",
    "ab" * 30 + "%",
]


def one_by_one(patterns, column):
    """(text, pattern) of every match, one pattern at a time."""
    found = []
    for at, (kind, pattern) in enumerate(patterns):
        match = {"like": like, "ilike": ilike, "rlike": pc.match_substring_regex}[kind]
        holds = match(column, pattern)
        found += [(row, at) for row, hold in enumerate(holds.to_pylist()) if hold]
    return sorted(found)


def matches(patterns, column):
    patterns._check()
    text, pattern = patterns.match(column)
    words = patterns.one_text()
    for row, single in enumerate(column.to_pylist() if words is not None else ()):
        if single is not None:
            assert sorted(words.find(single).tolist()) == pattern[text == row].tolist()
    assert text.dtype == np.int64 and pattern.dtype == np.int64
    return list(zip(text.tolist(), pattern.tolist(), strict=True))


def valid(regex):
    options = re2.Options()
    options.log_errors = False
    try:
        re2.compile(regex, options)
    except (re2.error, UnicodeEncodeError):
        return False
    return True


# -- a grammar of regexes, with and without what the reader of literals knows ----------------------------

PLAIN = {text: text for text in [*"abkKsSéÉ中-] 0\u212a\u017f\n\x00", "ab", "abk", "sk", "中é"]}
KNOWN = {
    r"\.": ".", r"\-": "-", r"\_": "_", r"\%": "%", r"\n": "\n", r"\t": "\t", r"\x41": "A", r"\x6b": "k",
    r"\x{e9}": "é", r"\x{1F600}": "\U0001f600", r"\x{0}": "\x00", r"\d": "0", r"\D": "é", r"\s": " ",
    r"\S": "中", r"\w": "k", r"\W": "é", r"\pL": "中", r"\PL": "0", r"\p{Lu}": "K", r"\p{^Greek}": "a",
    r"\b": "", r"\B": "", r"\A": "", r"\z": "", "^": "", "$": "", ".": "中", "[ab]": "b", "[^a]": "\n",
    "[a-k]": "k", "[]a]": "]", "[^]a]": "b", "[[:alpha:]]": "s", "[[:^digit:]]": "é", r"[\]a]": "]",
    r"[\w-]": "-", "[[a]": "[", r"[a\x41]": "A", r"[\pL]": "é", "[-a]": "-", "[a|b]": "|", "[(]": "(",
    "}": "}", "(?i)": "", "(?-i)": "", "(?s)": "", "(?U)": "", "(?im)": "", "(?)": "", "[.]": ".",
}  # fmt: skip
UNSURE = {
    r"\101": "A", r"\0": "\x00", r"\Qa.b\E": "a.b", r"\Qa|": "a|", r"\C": "a", "{": "{", "{,2}": "{,2}",
    "a{02}": "a{02}", "[[:a]": ":", "[a[:]": "[",
}  # fmt: skip
ATOM = st.sampled_from([*(3 * list(PLAIN.items())), *KNOWN.items(), *UNSURE.items()])
OPENING = st.sampled_from(["(", "(?:", "(?P<n>", "(?<m>", "(?i:", "(?-i:", "(?is-m:"])
TIMES = {
    "*": 0, "+": 2, "?": 0, "*?": 3, "??": 1, "{2}": 2, "{0}": 0, "{1}": 1, "{0,1}": 0, "{1,2}": 1,
    "{2,}?": 3, "{5}": 5,
}  # fmt: skip


def _wrap(inner):
    """Regexes made of others, each with a text that it probably matches."""
    several = st.lists(inner, min_size=2, max_size=4)
    either = several.map(lambda pairs: ("|".join(regex for regex, _ in pairs), pairs[-1][1]))
    return st.one_of(
        several.map(lambda pairs: tuple(map("".join, zip(*pairs, strict=True)))),
        either,
        st.tuples(OPENING, inner | either).map(lambda made: (f"{made[0]}{made[1][0]})", made[1][1])),
        st.tuples(inner, st.sampled_from(list(TIMES.items()))).map(
            lambda made: (made[0][0] + made[1][0], made[0][1] * made[1][1])
        ),
    )


REGEX_AND_TEXT = st.recursive(ATOM, _wrap, max_leaves=8).filter(lambda made: valid(made[0]))


# -- the same as one by one -------------------------------------------------------------------------------


@given(
    st.lists(st.tuples(st.sampled_from(["like", "ilike"]), LIKE | st.sampled_from(EVERY_WAY)), max_size=8),
    st.lists(REGEX_AND_TEXT | TEXT.map(lambda text: (re2.escape(text), text)), max_size=8),
    st.lists(st.none() | TEXT | st.sampled_from(["", "abab", "ab" * 30, "x" + "ab" * 31]), max_size=8),
)
def test_property_as_one_by_one(likes, regexes, column):
    patterns = likes + [("rlike", regex) for regex, _ in regexes]
    patterns += [("rlike", f"(?i){re2.escape(pattern)}$") for _, pattern in likes[:3]]
    patterns = list(dict.fromkeys(patterns)) if len(likes) % 2 else patterns + patterns[1:3]
    column = pa.array(column + [text for _, text in regexes], pa.string())
    assert matches(Patterns(patterns), column) == one_by_one(patterns, column)


@given(st.lists(st.text("ab", max_size=30), max_size=30), st.lists(st.text("ab", max_size=60), max_size=5))
def test_property_words_within_words(words, column):
    """Many words end at one place, some longer than the automaton takes, at every place of a LIKE."""
    patterns = [("like", shape.format(word)) for word in words for shape in ("%{}%", "{}%", "%{}", "{}")]
    column = pa.array(column, pa.string())
    assert matches(Patterns(patterns), column) == one_by_one(patterns, column)


@given(st.lists(st.sampled_from(["ab", "中", "b中a", "a%中", "x" * 24, "b_"]), min_size=1), st.data())
def test_property_borders(words, data):
    """Words are found at the borders of texts, but not across two texts."""
    patterns = [("like", f"%{word}%") for word in words] + [("like", f"%{word}") for word in words]
    column = pa.array(data.draw(st.lists(st.text("abx中", max_size=40), max_size=6)), pa.string())
    assert matches(Patterns(patterns), column) == one_by_one(patterns, column)


@pytest.mark.parametrize("few", [0, 1000])
def test_a_workload(few, monkeypatch):
    """Regexes of the benchmark, with few candidates and with many."""
    monkeypatch.setattr(module, "FEW_CANDIDATES", few)
    patterns = [("rlike", regex) for regex in regex_set(300, seed=1)]
    column = texts(300, 120, seed=2, words=word_set(60, seed=1))
    found = matches(Patterns(patterns), column)
    assert found == one_by_one(patterns, column) and len(found) > 100


@given(
    st.lists(st.lists(st.sampled_from(["abc", "bcd", "ABC", "cde"]), min_size=1, max_size=3), max_size=40),
    st.data(),
)
def test_property_regexes_of_several_words(rows, data):
    """Candidates hold two of the words, unless too many regexes share them; by LIKE, RLIKE and (?i)."""
    shapes = ["%{}%", ".*", "(?i)"]
    patterns = []
    for words in rows:
        shape = data.draw(st.sampled_from(shapes))
        if shape == "%{}%":
            patterns.append(("like", shape.format("_%".join(words))))
        else:
            patterns.append(("rlike", ("" if shape == ".*" else shape) + "(.*|[0-9])".join(words)))
    column = data.draw(
        st.lists(st.lists(st.sampled_from(["abc", "bcd", "ABC", "Cde", "-"])).map("".join), max_size=5)
    )
    column = pa.array(column, pa.string())
    assert matches(Patterns(patterns), column) == one_by_one(patterns, column)


def test_forms_of_texts():
    """Slices, chunks, large texts, dictionaries; repeated texts and patterns; nothing at all."""
    patterns = [("like", "%b%"), ("rlike", "^a+$"), ("like", "%b%"), ("like", "")]
    made = Patterns(patterns)
    plain = pa.array(["x", "ab", None, "aa", "ab", "", "b"])
    for column in (
        plain,
        plain[1:5],
        plain[2:3],
        plain[:0],
        pa.array([], pa.string()),
        pa.array([None, None], pa.string()),
        plain.cast(pa.large_string()),
        plain.dictionary_encode()[1:],
    ):
        assert matches(made, column) == one_by_one(patterns, column.cast(pa.string()))
    assert matches(made, pa.chunked_array([plain, plain[3:]]))[-1] == (10, 2)
    assert matches(Patterns([]), plain) == [] and len(Patterns([])) == 0 and len(made) == 4


def test_a_bad_pattern_is_refused():
    with pytest.raises(ValueError, match=r"the regex '\(a' is not valid: missing \)"):
        Patterns([("rlike", "(a")])
    with pytest.raises(ValueError, match="like, ilike or rlike"):
        Patterns([("equal", "a")])


def test_each_pattern_goes_its_way():
    ways = ["a", "a%", "%a", "%a%", "a%b_c", "%", "%ab"]
    regexes = ["disk [0-9]+", "(?i)disk+", r"\d{4}", "[a-f]+"]
    stats = Patterns([("like", way) for way in ways] + [("rlike", regex) for regex in regexes]).stats()
    assert stats == {
        "patterns": 11, "distinct": 11, "equal": 1, "prefix": 1, "suffix": 3, "contains": 1,
        "regex by word": 2, "regex by folded word": 1, "regex by set": 2, "regex alone": 0,
        "sets": 1, "words": 5, "bytes of words": 12,
    }  # fmt: skip


def test_a_word_of_one_byte_is_no_requirement_of_many_regexes():
    regexes = [("rlike", f"x.*[a-c]{{{n}}}") for n in range(POPULAR + 1)]
    assert Patterns(regexes[:-1]).stats()["regex by word"] == POPULAR
    assert Patterns(regexes).stats()["regex by set"] == POPULAR + 1


def test_a_regex_that_counts_far_runs_alone_and_only_over_long_texts():
    patterns = Patterns([("rlike", ".{1000,}"), ("rlike", "[0-9]{4}")])
    assert (patterns.stats()["regex alone"], patterns._least.tolist()) == (1, [1000, 4])
    column = pa.array(["1" * 999, "1" * 1000, "12"])
    assert matches(patterns, column) == [(0, 1), (1, 0), (1, 1)]


@given(st.data())
def test_property_patterns_are_found_in_the_texts_of_their_groups(data):
    kinds = st.one_of(
        st.tuples(st.just("like"), LIKE.filter(lambda pattern: not pattern.endswith("\\"))),
        st.tuples(st.just("ilike"), st.sampled_from(EVERY_WAY)),
        st.tuples(st.just("rlike"), st.sampled_from(["a.b", "(?i)A+b", "[a-c]{2}", ".{70,}", "k", "b$"])),
    )
    patterns = data.draw(st.lists(kinds, min_size=1, max_size=8, unique=True))
    groups = [1 << data.draw(st.integers(0, 2)) for _ in patterns]
    texts = data.draw(st.lists(TEXT, min_size=1, max_size=6))
    of_texts = np.array([data.draw(st.integers(1, 7)) for _ in texts])
    made = Patterns(patterns, groups=groups)
    made._check()
    column = pa.array(texts, pa.string())
    every = set(one_by_one(patterns, column))
    wanted = {(row, at) for row, at in every if of_texts[row] & groups[at]}
    rows, found = made.match(column, of_texts)
    assert wanted <= set(zip(rows.tolist(), found.tolist(), strict=True)) <= every
    one = made.one_text()
    for row, text in enumerate(texts):
        singly = {(row, at) for at in one.find(text, int(of_texts[row])).tolist()}
        assert {pair for pair in wanted if pair[0] == row} <= singly <= every


# -- literals ---------------------------------------------------------------------------------------------


@given(REGEX_AND_TEXT, TEXT, TEXT)
def test_property_a_match_holds_a_required_word(made, before, after):
    regex, text = made
    column = [text, before + text + after, before + text, before, text * 2]
    column = pa.array(column + [text.swapcase() for text in column], pa.string())
    hits = column.filter(pc.match_substring_regex(column, regex))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader, "SHORTEST", 1)  # so that nearly every regex has some
        plain, folded = requirements(regex), requirements(regex, folded=True)
        least = least_bytes(regex)
    for text, low in zip(hits.to_pylist(), fold_texts(hits).to_pylist(), strict=True):
        assert all(any(word in text for word in words) for words in plain)
        assert all(any(word in low for word in words) for words in folded)
        assert len(text.encode()) >= least


@pytest.mark.parametrize(
    ("regex", "words"),
    [
        ("error [0-9]+ in", ["error "]),
        ("(disk|net)work", ["diskwork", "network"]),
        ("(disk|[0-9])+", None),
        ("(foobar)?x", None),
        ("foo(bar)?", ["foo"]),
        ("(abc){2}", ["abcabc"]),
        ("(abc){2,}", ["abcabc"]),
        ("(abc)+", ["abc"]),
        ("(abc){0}", None),
        ("(?i)disk", None),
        ("(?i:a)disk", ["disk"]),
        ("((?i)x)disk", ["disk"]),
        ("(?i)(?-i)disk", ["disk"]),
        ("disk(?i)*", None),
        (r"host\.example", ["host.example"]),
        (r"\x64\x{69}sk", ["disk"]),
        (r"\Qdisk\E", None),
        (r"dis\113k", None),
        (r"disk{,2}", None),
        ("[]x]disk", ["disk"]),
        ("中", ["中"]),
        ("ab", None),
        ("(" * 60 + "disk" + ")" * 60, None),
        ("|".join(word_set(50, seed=1)), sorted(word_set(50, seed=1))),
        ("|".join(word_set(5000, seed=1)), None),
        ("a" * 5000, ["a" * 24]),
    ],
)
def test_requirements(regex, words):
    found = requirements(regex)
    assert sorted(found[0]) == words if words else found == []


def test_folding_knows_all_that_RE2_takes_for_an_ASCII_letter():
    letters = pa.array([chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000])
    letters = letters.filter(pc.match_substring_regex(letters, "(?i)[a-z]"))
    assert len(letters) == 26 + 26 + 2
    for letter in "abcdefghijklmnopqrstuvwxyz":
        same = letters.filter(pc.match_substring_regex(letters, f"(?i){letter}"))
        assert set(fold_texts(same).to_pylist()) == {letter}


# -- short of memory, and slow regexes -------------------------------------------------------------------

BLOWING = [rf"(a|b)*a(a|b){{{count}}}" for count in (5, 8, 12, 20, 21)]
AB = ["".join("ab"[bit] for bit in np.random.default_rng(seed).integers(0, 2, 300)) for seed in range(5)]


@pytest.mark.parametrize("memory", [64, 2_000, 5_000, 10_000, 20_000, 30_000, 60_000, None])
def test_with_little_memory_no_match_is_lost(memory, monkeypatch):
    """Sets fail to compile, are split, drop states all the time: the answers are the same."""
    monkeypatch.setattr(module, "POPULAR", 0)  # so that words of one byte are no requirements
    patterns = [("rlike", regex) for regex in [*BLOWING, r"\d{4}-\d{2}", r"[a-f]{6,}", r"\pL\d", "(a+)+$"]]
    column = pa.array([*AB, "2024-10", "x", "", "é1", "aabbaab", None])
    made = Patterns(patterns, set_memory=memory)
    assert matches(made, column) == one_by_one(patterns, column)
    stats = made.stats()
    assert stats["regex by set"] + stats["regex alone"] == len(patterns)
    if memory == 64:
        assert stats["regex alone"] == len(patterns)


class Exhausted:
    """An RE2 set that, for some texts, answers as one that has run out of memory."""

    def __init__(self, real):
        self.real = real

    def Match(self, text):
        return None if len(text) % 2 else self.real.Match(text)


@given(st.lists(REGEX_AND_TEXT, min_size=1, max_size=8), st.lists(TEXT, max_size=8))
def test_property_an_exhausted_set_is_not_taken_for_no_match(regexes, column):
    patterns = [("rlike", regex) for regex, _ in regexes]
    column = pa.array(column + [text for _, text in regexes], pa.string())
    made = Patterns(patterns)
    made._sets = [group._replace(set=Exhausted(group.set)) for group in made._sets]
    assert matches(made, column) == one_by_one(patterns, column)


def test_the_empty_regex_is_in_every_answer_of_a_set():
    made, alone = regex_sets([(7, r"\d"), (9, "[a-f]{3}")])
    assert not alone and sorted(made[0].numbers.tolist()) == [7, 9]
    assert all(0 in made[0].set.Match(text) for text in (b"", b"x", b"5", b"\n"))


def test_no_regex_stalls_a_batch():
    """What takes a backtracking matcher 2**n steps takes as long as anything else."""
    column = pa.array(["a" * 20_000 + "!", "a" * 30_000 + "b", "plain"])
    evil = ["(a+)+$", "(a|aa)+$", "(a*)*b", r"(\w+\s?)*$", "(x+x+)+y", "(aaa+)+aaa!$", "(?i)(aaa+)+aaa!$"]
    patterns = [("rlike", regex) for regex in evil]
    start = time.perf_counter()
    found = matches(Patterns(patterns), column)
    assert time.perf_counter() - start < 2
    assert found == one_by_one(patterns, column)


def test_words_within_words_do_not_stall_a_batch():
    """'a', 'aa', 'aaa', ...: every one of them ends nearly everywhere in a text of a's."""
    patterns = [("like", "%" + "a" * size + "%") for size in range(1, 300)]
    column = pa.array(["a" * 100_000, "a" * 50])
    start = time.perf_counter()
    found = matches(Patterns(patterns), column)
    assert time.perf_counter() - start < 3
    assert len(found) == 299 + 50
