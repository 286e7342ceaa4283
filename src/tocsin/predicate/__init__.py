"""Conditions and rows as codes; where conditions hold.

codes.py       values as integers, comparisons as closed intervals of them
flat.py        many filters as flat arrays: what every matching index is built from
events.py      rows as flat arrays of the same codes

compile.py     single conditions to flat filters
columnar.py    columns of predicates to flat filters
templated.py   a template and columns of values to flat filters
operands.py    columns of operands as codes
assemble.py    whole columns of tests, put together

like.py        what a LIKE pattern asks
patterns.py    many LIKE and RLIKE patterns, asked of many texts at once
regexes.py     the words a regular expression cannot do without

evaluate.py    the truth of a condition over columns, for joins, rankings and contents
"""
