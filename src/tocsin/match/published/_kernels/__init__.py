"""Compiled loops of the published indexes."""
