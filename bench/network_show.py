"""Claims about select-joins over a simulated network, measured: one subcommand per group of claims.

    exact      every scheme over every network: contents of a sample after every event, nothing needless
    skylines   -Min <= -Clu+ <= -Clu <= 2 tau on every event; -Min and the greedy decomposition are the best
    traffic    W1 and W2, 100,000 and a million subscriptions, five seeds, against every rival
    sweep      traffic over the share of affected among selected: where schemes cross
    cnplus     payload caches: server stress, latency by size of repositories, half of the brokers plain
    speed      the simulator, one delivery kernel, the server

    python bench/network_show.py traffic --workload w2 --subscriptions 100000 --seeds 3
    python bench/network_show.py traffic          # all cells; those in bench/results are not measured again
    python bench/network_show.py exact --network can --events 1000 --no-bar

Contents are compared with brute force before anything is printed. Standard output has one JSON object per
claim, standard error a readable line; the exit code is 1 if an answer is wrong or a claim does not hold.
"""

from __future__ import annotations

import sys

from claims import parser_of, show_claims
from network_exact import show_exact, show_skylines
from network_payloads import show_cnplus
from network_speed import show_speed
from network_traffic import show_sweep, show_traffic

from tocsin.lab.memory import keep_freed

COMMANDS = {
    show_exact: {"network": "all", "events": 10_000},
    show_skylines: {"events": 10_000, "subscriptions": 20_000, "inserts": 2000, "cases": 1500},
    show_traffic: {
        "workload": "all",
        "subscriptions": "100000,1000000",
        "seeds": "0,1,2,3,4",
        "events": 1000,
    },
    show_sweep: {"workload": "all", "subscriptions": "100000", "events": 200},
    show_cnplus: {"workload": "all", "part": "all", "events": 20_000, "few": 2000},
    show_speed: {"part": "all", "workload": "w1", "subscriptions": 1_000_000, "events": 10_000},
}

if __name__ == "__main__":
    keep_freed()
    sys.exit(show_claims(parser_of(__doc__, COMMANDS, repeat=3).parse_args()))
