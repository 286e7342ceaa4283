"""Contents of many filters over tables, computed together, are those of each alone."""

from __future__ import annotations

import random

from tocsin import Engine


def test_contents_of_many_are_those_of_each():
    rng, engine = random.Random(5), Engine()
    engine.execute("""CREATE TABLE a (k BIGINT, x DOUBLE, s STRING, PRIMARY KEY (k));
                      CREATE TABLE b (k BIGINT, y BIGINT, PRIMARY KEY (k));
                      CREATE TABLE none (k BIGINT, PRIMARY KEY (k)); CREATE STREAM e (x DOUBLE)""")
    engine.apply("a", [{"k": k, "x": rng.random(), "s": rng.choice("pqr")} for k in range(5000)])
    engine.apply("b", [{"k": k, "y": rng.randrange(9)} for k in range(40)])
    for key in rng.sample(range(5000), 900):
        engine.delete("a", {"k": key})
    texts = []
    for n in range(150):
        low = rng.random()
        texts += [
            f"SELECT k, x FROM a WHERE x BETWEEN {low} AND {low + 0.01} OR s = 'p' AND x < 0.002",
            f"SELECT * FROM b WHERE NOT y = {n % 9} AND k > {n % 40}",
            "SELECT s FROM a WHERE s LIKE 'q%' AND k < 30" if n % 2 else "SELECT x FROM e WHERE x > 2",
        ]
    texts += ["SELECT k FROM none WHERE k > 1", "SELECT MAX(x) AS m FROM a", "SELECT y FROM b"]
    ids = rng.sample([engine.subscribe(text).id for text in texts], len(texts))
    engine.unsubscribe_many(ids[:40])
    kept, found = ids[40:], {}
    for delta in engine.contents(kept):
        assert delta.sign == 1
        found.setdefault(delta.subscription, []).append(delta.row)
    assert sum(map(len, found.values())) > 5000
    for id in kept:
        assert found.get(id, []) == engine.content(id), engine.query(id)
