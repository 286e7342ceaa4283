"""Changes as messages that say whom they are for, and clients that maintain contents from them alone.

extremes.py    minima and distinct values over ranges, minima over boxes
topk.py        the first k of a range
"""
