"""The stages of a pipeline's streaming query, in the order in which a micro-batch passes them.

    changes ─ route ─► TableShards ─► QueryShards ─► deliver ─► sinks
              route.py   processors.py (Spark), shard_logic.py (no Spark)   deliver.py

`table_shard.py` has the first kind of shards, `shard_logic.py` what all share and the second kind,
`limited_shard.py` those of the second kind that keep windows and buffers.

`described.py` describes a batch by messages instead of deltas, if that is the output.
`events.py` has filters alone, without shards; `rows.py` the end of a batch for Spark's own sinks.
`steps.py` defines the messages between stages, `wire.py` the tables inside messages.
"""
