"""The data that flows: schemas, changes in, deltas out.

schema      types, streams and tables; values read into types
columns     vectors and rows; sparse rows of open streams
change      checked batches of changes, from dicts, JSON and Arrow
arrow       Arrow columns converted to declared types
json_rows   rows as JSON text, JSON objects as columns
texts       texts in Arrow, and texts by number
delta       signed rows of answers; order and cancellation
"""
