"""Compiled loops of the rank room, one file per structure."""
