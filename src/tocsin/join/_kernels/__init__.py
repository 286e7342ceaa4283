"""Compiled loops of the join strategies: orders, finding, routing, result rows."""
