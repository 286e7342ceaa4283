"""The data that travels: schemas, changes in, deltas out."""
