"""The enrich room: events of a stream, each joined with rows of tables as they are at that moment.

virtual.py   joined rows as events of a virtual relation; filters over them
room.py      all subscriptions of one signature: one look-up of rows, one matching index
scan.py      each subscription by itself: what the room is compared with
"""
