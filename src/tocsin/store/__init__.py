"""Tables in memory, and the changes of a batch laid over them."""
