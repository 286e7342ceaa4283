"""Networks that bring messages to the brokers of those who hear them; nothing here sends or receives bytes.

base.py        the protocol: subscriptions at brokers, messages in, who receives them over which links out
placement.py   the subscriptions of each broker
unicast.py     directly to each subscription, or once to each broker: the meaning of all networks
can.py         brokers own zones of the space of subscriptions
zones.py       the zones: split, take over, neighbours
cbn.py         brokers in a tree, with digests of the subscriptions behind each link
digests.py     digests: a few boxes that hold all points
"""
