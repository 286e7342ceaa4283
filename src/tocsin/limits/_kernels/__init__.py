"""Compiled loops of the limits package, one file per structure."""
