"""From text to a query whose names, types and shape are known."""
