"""Compiled loops over intervals, one file per structure."""
