"""Compiled loops of joins: ordered indexes, affected queries by strategy, matches."""
