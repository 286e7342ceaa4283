"""Deliveries: deltas that leave the server, durably, to webhooks, topics, e-mail and chat.

    log ─ blocks ─► planner: which delivery, suppress, digest ─► outbox ─► senders ─► targets
          cursor             one transaction: state, position, messages      └─► dead letters

    definitions.py   what a delivery is; messages as JSON and as text
    outbox.py        definitions, states and messages on disk
    planner.py       from blocks to messages
    service.py       the threads: one plans, some send
    routes.py        /v1/deliveries

A message is planned once, tried until it is delivered or given up, and has the same id in each try. So
nothing is lost over restarts, and a receiver that remembers ids sees each message once.
"""
