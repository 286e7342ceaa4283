"""Queries under limits: windows, bounded memory, answers within a response time.

options.py   the options of a query for Python: Window, Memory, OnDemand, When, Every
support.py   which options the engine answers; all others are rejected
models/      which values a stream will bring
scores/      which rows a bounded buffer keeps: HEEB, PROB, LIFE, RAND, LRU, LFU, FIFO
streams.py   the room of joins of two streams: families of subscriptions that share a buffer
buffer.py    rows of one side in flat columns; join_keys.py, dropped.py, stream_rows.py, ... beside it
groups.py    the room of deferred subscriptions: refresh groups and their conditions
lagging.py   one group: copies of tables, rooms of its own, what was not delivered
pacing.py    its limit: costs as measured, and what the policy makes of them
costs.py     what propagating a table costs; fitting.py: learned from observations
plans.py     which tables to empty when: minimal valid sets, A*; policies/: who decides
rehearse.py  what a policy costs on given arrivals
conditions.py  when a refresh is due: changes, age, rows, moved
inner.py     the query that a group gives to its rooms; derived.py, multiset.py: answers it computes itself
state.py     what a saved engine must remember of them; report.py: what was promised, and what was kept
lookup.py    tables that are filled on demand; cache.py: hits and misses; eviction.py: what leaves
flow.py      the most that bounded memory can give: OPT-offline, FlowExpect (extra `limits`)
"""
