"""What each command of `tocsin` does; `cli.py` only reads arguments and prints.

validate.py   statements of a file, their shapes and errors
explain.py    why a row is or is not in an answer
config.py     a pipeline in TOML, checked
numbering.py  ids for the SELECTs of a file
run.py        runs it
data.py       rows from files
output.py     text or JSON, and the exit code
"""

__all__: list[str] = []
