"""Aggregates, extremes, distinct values and top-k over a table's rows."""
