"""The stages of a pipeline's streaming query, in the order in which a micro-batch passes them.

    changes ─ route ─► TableShards ─► QueryShards ─► deliver ─► sinks
              route.py   processors.py (Spark), shard_logic.py (no Spark)   deliver.py

`table_shard.py` and `query_shard.py` are the two kinds of shards; `key_order.py` decides what is late.

`described.py` and `numbers.py` describe a batch by messages instead of deltas, if that is the output.
`steps.py` defines the messages between them, `wire.py` the tables in these.
"""
