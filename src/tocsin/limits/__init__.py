"""Queries under limits: windows, bounded memory, answers within a response time.

options.py   the options of a query for Python: Window, Memory, OnDemand, When, Every
support.py   which options the engine answers; all others are rejected
models/      which values a stream will bring
scores/      which rows a bounded buffer keeps: HEEB, PROB, LIFE, RAND, LRU, LFU, FIFO
flow.py      the most that bounded memory can give: OPT-offline, FlowExpect (extra `limits`)
"""
