"""The server: engines behind HTTP, durable, followed by any number of subscribers.

    request ─ app ─► command ─► Core: apply ─► Log: one transaction, synced ─► answer
                                                   └─► Hub ─► followers: SSE, WebSocket, NDJSON, long poll

    blocks.py     the deltas of one command, as columns and as messages
    commands.py   what changes an engine, as it is written to the log
    intake.py     bodies of requests: JSON, NDJSON, Arrow, CloudEvents
    log.py        commands and deltas on disk, cursors of readers
    core.py       one engine and its writer thread: group commit, recovery
    hub.py        followers, their queues, resume tokens
    app.py        the routes; problems.py: errors as they are answered
    serve.py      what `tocsin serve` runs

Install it with the extra `server`.
"""
