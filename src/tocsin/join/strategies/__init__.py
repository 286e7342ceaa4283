"""Join strategies: which queries does a changed row affect?

base.py       the protocol, the storage that strategies share, and their common indexes
equality.py   equal keys and a range on each side: NAIVE, JoinFirst-E, JoinFirst-S, SelectFirst, SSI, Hotspot
band.py       a difference of keys in a range: QOuter, DOuter, MJ, SSI, Hotspot

`join/plan_choice.py` chooses among four equality strategies for each row.
"""
