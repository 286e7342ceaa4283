"""The laboratory: benchmarks, chaos runs and the demo. Nothing of the product imports it.

discover.py   the implementations of a protocol, found by walking packages
bench/        workloads and measurements: `tocsin bench`
chaos/        pipelines whose processes are killed: `tocsin chaos`
demo/         real flights and weather through a pipeline: `tocsin demo`
"""
