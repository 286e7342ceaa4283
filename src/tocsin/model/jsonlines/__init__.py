"""JSON text read straight to columns, without a dict per row: `changes.py` makes a `ChangeBatch`."""
