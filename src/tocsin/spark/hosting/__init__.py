"""Shard hosts: processes beside an executor that keep the live engines of a pipeline's shards.

client.py     what a Spark worker calls: find or start the host of a shard, have it run a step
process.py    the host as a process: start it, `python -m tocsin.spark.hosting.process`, whose child it is
server.py     the host's side of the conversation
protocol.py   frames over the socket between them
engines.py    the cache of live engines, in a host or (with hosts=0) in a worker
"""
