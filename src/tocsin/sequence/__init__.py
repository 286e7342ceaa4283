"""Sequences: events of one key that follow one another within some time.

room.py      `SequenceRoom`: subscriptions share the beginnings of their sequences
chains.py    prefixes of sequences that subscriptions share, as a tree
progress.py  how far each key is in each of them
events.py    events that begin or continue a sequence, as long as it may end
_kernels.py  the loop over events
"""
