"""The laboratory: benchmarks, chaos runs and the demo. Nothing of the product imports it.

discover.py   finds the implementations of a protocol
memory.py     keeps freed memory in the process
bench/        workloads and measurements: `tocsin bench`
chaos/        pipelines whose processes are killed: `tocsin chaos`
demo/         real flights and weather through a pipeline: `tocsin demo`
"""
