"""The demo: two stormy days (or a month) at New York's airports, replayed through the Spark pipeline.

flights.py         real flights, weather and planes as one stream of changes
subscriptions.py   people who each want to know something about it
phrases.py         what their questions are made of; broad.py of two days, narrow.py of a month
script.py          what is replayed: days, subscriptions, seed, batches
replay.py          the changes as files, the pipeline over them, killed and resumed at will
received.py        deltas by columns, the contents they add up to, a checksum over all
check.py           contents of a sample against the reference; ordered.py finds its rows
words.py           a delta in plain words
summary.py         what is told at the end
show.py            the whole of it: `tocsin demo`
"""

__all__: list[str] = []
