"""Changes as messages that say which subscriptions they are for, and clients that need nothing else.

extremes.py    minima and distinct values over ranges, minima over boxes
topk.py        the first k of a range
"""
