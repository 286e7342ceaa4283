"""Conditions and rows as integer codes, and the evaluation of conditions over rows.

codes.py         values as integers, comparisons as closed intervals of them
flat.py          many filters as flat arrays: the form that every matching index is built from
events.py        rows as flat arrays of the same codes
conjunctions.py  filters under the numbers of one index, and merging them
deferred.py      batches of predicates that are flattened only when needed

compile.py       conditions to flat filters: one by one, or assembled from whole columns of tests
columnar.py      columns of predicates to flat filters
templated.py     a template and columns of values to flat filters

patterns.py      LIKE, and matching many LIKE and RLIKE patterns with many texts at once
regexes.py       the words that a text must contain to match a regular expression

evaluate.py      the truth of a condition over columns, for contents, rankings, explain and the join scan
verify.py        candidates for single rows: ranges to find them by, verification pair by pair

_kernels.py      compiled loops
"""
