"""Figures of T07, chapters 2 and 3: `tocsin bench limits --figure 3.9`.

figures.py    what a figure is, and the registry of all: one module per chapter
show.py       tables and pictures

A chapter is a module `chapterN.py` with a tuple `FIGURES`; the registry finds it by its name.
"""

__all__: list[str] = []
