"""What each command of `tocsin` does; `cli.py` only reads arguments and prints.

validate.py   statements of a file, their shapes and errors
explain.py    why a row is or is not in an answer
config.py     a pipeline in TOML, checked
numbering.py  ids for the SELECTs of a file
run.py        runs it
data.py       rows from files
output.py     text or JSON, and the exit code

match.py          a file of events against a file of subscriptions
backtest.py       when would a subscription have fired?
passing.py        the loop of both
subscriptions.py  subscriptions from a file
events.py         events from a file, in batches
cells.py          text of a CSV file as values
sink.py           pairs (event, subscription) to a file
timeline.py       when something happened, in bins

bench_match.py    options of `bench match`
"""

__all__: list[str] = []
