"""Compiled loops of the matching indexes, one file per index."""
