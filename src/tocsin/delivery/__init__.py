"""Delivery: how deltas leave, to webhooks, e-mail, chat and topics. The server and Spark share it.

    signing.py          who sent it: signatures of the Standard Webhooks scheme
    http.py             POST over kept connections
    webhook_client.py   one try: its verdict (delivered, retry after a wait, give up), rates, settings
    batches.py          requests of a batch, sent with retries in memory (Spark)
    repeats.py          what is sent when: suppressed repeats, digests, "resolved" (the server)
    targets.py          where it goes: webhook, apprise, Kafka

Nothing here knows an engine, a server or Spark. Time, chance and the HTTP client are passed in.
"""
