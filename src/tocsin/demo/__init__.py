"""The demo: two stormy days at New York's airports, replayed through the Spark pipeline.

flights.py         real flights, weather and planes as one stream of changes
subscriptions.py   two thousand people who each want to know something about it
script.py          what is replayed: days, subscriptions, seed, batches
replay.py          the changes as files, the pipeline over them, killed and resumed at will
check.py           contents from the deltas, against the reference; a checksum over all
words.py           a delta in plain words
summary.py         what is told at the end
show.py            the whole of it: `tocsin demo`
"""

__all__: list[str] = []
