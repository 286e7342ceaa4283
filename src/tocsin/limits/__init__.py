"""Queries under limits: windows, bounded memory, answers within a response time.

options.py     the options of a query for Python: Window, Memory, OnDemand, When; which the engine answers

joins of streams
streams.py        their room; stream_spec.py says what subscriptions may share
stream_family.py  subscriptions that share filters and rows, also on disk
stream_rows.py    the rows of both sides under one budget: buffer.py keeps those of one side, join_keys.py
                  numbers their keys and counts what is missed
stream_scan.py    each subscription by itself and without a budget, to compare with
scores/           which rows a bounded buffer keeps: HEEB, PROB, LIFE, RAND, LRU, LFU, FIFO
models/           which values a stream will bring
flow.py           the most that bounded memory can give: OPT-offline, FlowExpect (extra `limits`)

refresh on demand
groups.py      their room: refresh groups, and the conditions (conditions.py) by which they refresh themselves
lagging.py     one group: copies of tables, rooms of its own, what was not delivered; state.py: saved
inner.py       the query that a group gives to its rooms
derived.py     answers that a group computes itself, from totals and sorted values (multiset.py)
pacing.py      its limit: what it promises, and what the policy makes of it
costs.py       what propagating a table costs, as measured
plans.py       which tables to empty when: minimal valid sets, A*; policies.py: who decides

lookup.py      tables that are filled on demand; cache.py: what leaves them
"""
