"""What the commands of `tocsin` do. `cli.py` reads the arguments and prints the results.

validate.py             statements of a file: their shapes and errors
explain.py              why a row is, or is not, in an answer
match.py                the events of a file against the subscriptions of another
backtest.py             when would a subscription have fired? timeline.py counts times in bins
run.py                  a pipeline on Spark; progress.py shows how far it is
subscriptions.py        list and change the subscriptions of a pipeline

config.py               a pipeline in TOML: connectors.py its sources and sinks, config_values.py its values
subscription_files.py   reads a file of subscriptions into an engine, and gives SELECTs their ids
events.py               reads a file of events in batches; data.py a file of rows
replay.py               applies the events of a file to an engine: the loop of `match` and `backtest`
output.py               text or JSON on stdout, errors, exit codes
"""

__all__: list[str] = []
