"""Select-joins over a simulated wide-area network: what each scheme costs.

workload.py      subscriptions, tables and events of W1 and W2
stocks.py        drawn stocks with ratings
topology.py      a power-law network of nodes, and the distances of brokers in it
networks.py      the network of a simulation, made from its setting
enumerate.py     what schemes that write to each subscription send, counted without listing anybody
check.py         clients of a sample of subscriptions, compared with brute force
exact.py         random changes of both tables: contents of all schemes and networks after every event
payload_nodes.py a tree of CN+ nodes: what its kernel must do
run.py           one scheme after the other over one network
command.py       `tocsin simulate`
picture.py       the overlay with its traffic
"""
