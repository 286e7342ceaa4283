"""The parts of a composed query share what they keep of tables."""

from tocsin import Engine
from tocsin.join.room import JoinRoom
from tocsin.semi.room import SemiRoom

LEFT = "SELECT a.id, b.x FROM a LEFT JOIN b ON a.id = b.of"
INNER = "SELECT a.id, b.x FROM a JOIN b ON a.id = b.of WHERE b.x > 3"


def engine():
    made = Engine()
    made.execute("CREATE TABLE a (id BIGINT, PRIMARY KEY (id));")
    made.execute("CREATE TABLE b (id BIGINT, of BIGINT, x BIGINT, PRIMARY KEY (id))")
    made.apply("a", [{"id": n} for n in range(20)])
    made.apply("b", [{"id": n, "of": n % 30, "x": n} for n in range(60)])
    return made


def rooms_of(made):
    inside = made._roster.rooms["outer"].rooms
    (join,) = [room for room in inside if isinstance(room, JoinRoom)]
    (semi,) = [room for room in inside if isinstance(room, SemiRoom)]
    return join, semi


def test_one_set_of_orders_serves_both_parts():
    made = engine()
    made.subscribe(LEFT)
    deltas = made.apply("b", [{"_op": "update", "id": 0, "of": 40}, {"_op": "update", "id": 30, "of": 40}])
    found = sorted((d.sign, d.row["x"]) for d in deltas)
    assert found == [(-1, 0), (-1, 30), (1, None)]
    join, semi = rooms_of(made)
    assert join._tables is semi._tables
    assert join._tables.orders() == 2  # each table by its key


def test_a_part_that_ends_leaves_the_orders_of_others():
    made = engine()
    kept, union = made.subscribe(LEFT), made.subscribe(f"{INNER} UNION ALL {INNER}")
    made.insert("b", {"id": 100, "of": 3, "x": 100})
    join, _ = rooms_of(made)
    before = join._tables.orders()
    made.unsubscribe(union)
    deltas = made.delete("b", {"id": 100})
    assert [(d.sign, d.row) for d in deltas] == [(-1, {"id": 3, "x": 100})]
    assert 2 <= join._tables.orders() <= before
    made.unsubscribe(kept)
    other = made.subscribe(LEFT)
    assert len(made.content(other)) == len(made.content(made.subscribe(LEFT)))
    made._check()
