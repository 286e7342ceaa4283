"""Chaos: does a pipeline lose, repeat or corrupt anything when its processes are killed?

command.py    `tocsin chaos`: many runs, and their summary
run.py        one run: feed a pipeline, kill its processes, compare its output
workload.py   the changes and versions of a run, and the output that they must have
brokers.py    brokers in processes of their own, killed, and their links cut
namespaces.py network namespaces, and cables between them
cluster.py    Spark in processes of its own: a standalone cluster, a Connect server
"""
