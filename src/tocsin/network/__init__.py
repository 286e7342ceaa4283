"""Networks that bring messages to the brokers of those who receive them.

base.py        the protocol: subscriptions at brokers, messages in, who receives them over which links out
placement.py   the subscriptions of each broker
unicast.py     directly to each subscription, or once to each broker: the meaning of all networks
can.py         brokers own zones of the space of subscriptions
zones.py       the zones: split, take over, neighbours
cbn.py         brokers in a tree, with digests of the subscriptions behind each link
cnplus.py      payloads cross a link once: directories, repositories, fetches
digests.py     digests: a few boxes that hold all points

Over real connections: `tocsin.serve(engine, ":7711")`, `tocsin broker`, `tocsin.connect(...)`.

described.py   an engine's queries as messages, `tocsin.describe(engine)`
form_choice.py the forms of a query
forms.py       forms of joins, rows and events; ranked_forms.py: of top-k, extremes, distinct values;
               split_forms.py: of rows with payloads
rows.py        numbers and texts of rows
node.py        what a broker does, without I/O; root.py: what the server does; follower.py: what a client does
wire.py        frames; batches.py: messages as bytes
routing.py     which links want a message; fanout.py: what each of them gets
payload_node.py  which payloads neighbours have; payloads.py: the same in brokers, as frames
stations.py    brokers over TCP; server.py: the server
connect.py     clients over TCP; holdings.py: what a client holds, by form; answers.py: its answers
"""
