"""Sets of subscriptions on disk, and which version of them a batch runs on. Needs no Spark.

store.py               versions: immutable sets with their definitions; publish, change, compact
blocks.py              subscriptions as given, and blocks of one kind
subscription_sets.py   what a set is: block files, rows chosen from them
changelog.py           changes of the subscriptions as files or rows of a stream
batch.py               what a batch runs on: its pin, and which shard evaluates which subscription
stretches.py           subscriptions over one table by the range of a column; range_notes.py reads it
"""
