"""Expressions over the columns of a row: `price * qty`, `lower(name)`, CASE, CAST, ...

    tree.py       expressions as values that print back as SQL, and their names
    numbers.py, texts.py, times.py, casts.py    functions of single values
    overloads.py  which functions there are, by the types they take
    typed.py      from a tree and the types of columns to what can be computed
    vectors.py    the same over whole columns
    derived.py    expressions as attributes of rows and events

Their meaning is Spark's with ANSI off; `docs/semantics.md` has it in words.
"""
