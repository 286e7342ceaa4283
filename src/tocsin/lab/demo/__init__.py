"""The demo: two stormy days (or a month) at New York's airports, replayed through the Spark pipeline.

command.py            `tocsin demo`
live.py               with --serve: the flights on a server, for its page
run.py                without it: write, replay, check, summarise
script.py             the input: days, and subscriptions drawn by a seed
flights.py            real flights, weather and planes as one stream of changes
broad_questions.py    SQL of subscriptions to two days; narrow_questions.py: to a month
replay.py             the folder with the changes, and the pipeline over them; can be killed and resumed
received.py           deltas as columns, the contents they add up to, the checksum of contents
check.py              contents of a sample against the reference evaluator
sentences.py          a delta as an English sentence
"""

__all__: list[str] = []
