"""Sixty queries that people write, and events that they find."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest

import tocsin

DDL = """(name STRING, brand STRING, price DOUBLE, old_price DOUBLE, qty BIGINT, stock BIGINT, rate DOUBLE,
ip STRING, mail STRING, lat DOUBLE, lon DOUBLE, day DATE, at TIMESTAMP, closed TIMESTAMP, active BOOLEAN)"""
EVENT = {
    "name": "Office Chair", "brand": "Acme", "price": 80.0, "old_price": 120.0, "qty": 3, "stock": 7,
    "rate": 0.15, "ip": "10.1.2.3", "mail": " Ann@Example.org ", "lat": 52.52, "lon": 13.405,
    "day": date(2024, 2, 29),
    "at": datetime(2024, 2, 29, 12, 30, 45, tzinfo=UTC), "closed": datetime(2024, 3, 1, 6, 0, tzinfo=UTC),
    "active": True,
}  # fmt: skip
HOLD = """
price * qty > 100
price > 10 * 2
price < old_price
lower(name) = 'office chair'
upper(brand) IN ('ACME', 'OTHER')
(old_price - price) / old_price >= 0.3
price * (1 + rate) BETWEEN 91 AND 93
round(price * rate, 1) = 12.0
qty % 2 = 1
mod(stock, qty) = 1
stock DIV qty = 2
abs(price - old_price) > 39.5
floor(price / 7) = 11
ceil(price / 7) = 12
greatest(price, old_price) = 120
least(qty, stock) < 5
coalesce(rate, 0) > 0.1
nullif(qty, 3) IS NULL
if(active, price, 0) = 80
CASE WHEN qty > 10 THEN 'many' WHEN qty > 2 THEN 'some' ELSE 'few' END = 'some'
CASE brand WHEN 'Acme' THEN 1 ELSE 2 END = 1
length(name) > 5
trim(mail) LIKE '%@Example.org'
lower(trim(mail)) = 'ann@example.org'
name LIKE concat('Office', '%')
startswith(name, 'Office')
endswith(name, 'Chair')
contains(name, 'ice Ch')
contains(lower(name), 'chair')
substr(name, 1, 6) = 'Office'
substring(name, -5) = 'Chair'
left(name, 3) || right(name, 2) = 'Offir'
brand || '-' || qty = 'Acme-3'
replace(name, ' ', '_') = 'Office_Chair'
split_part(trim(mail), '@', 2) = 'Example.org'
regexp_extract(mail, '@([a-zA-Z]+)[.]', 1) = 'Example'
instr(name, 'Chair') = 8
initcap(lower(name)) = name
reverse(brand) = 'emcA'
cidr_contains('10.0.0.0/8', ip)
NOT cidr_contains('192.168.0.0/16', ip)
distance_km(lat, lon, 48.8566, 2.3522) < 900
year(day) = 2024
month(at) = 2 AND day(at) = 29
hour(at) BETWEEN 9 AND 17
dayofweek(day) NOT IN (1, 7)
extract(MINUTE FROM at) = 30
date_trunc('hour', at) = TIMESTAMP '2024-02-29 12:00:00'
datediff(closed, at) = 1
timestampdiff(MINUTE, at, closed) > 1000
closed > at + INTERVAL '12' HOUR
day + INTERVAL 1 DAY = DATE '2024-03-01'
at >= DATE '2024-03-01' - INTERVAL '1' WEEK
last_day(day) = day
CAST(at AS DATE) = day
CAST(substr(ip, 1, 2) AS BIGINT) = 10
TRY_CAST(name AS DOUBLE) IS NULL
price <=> old_price IS FALSE
(price > old_price) IS NOT TRUE
old_price <=> 120
active = (qty > 2)
active AND price < old_price AND NOT qty > stock
""".strip().splitlines()
SHOWN = [
    ("price * qty AS total", {"total": 240.0}),
    ("upper(name) AS n, price - old_price AS diff", {"n": "OFFICE CHAIR", "diff": -40.0}),
    ("CASE WHEN price < 100 THEN 'cheap' ELSE 'dear' END AS kind", {"kind": "cheap"}),
    ("date_trunc('day', at) AS d, hour(at) AS h", {"d": datetime(2024, 2, 29, tzinfo=UTC), "h": 12}),
    ("CAST(price AS STRING) AS p, price > 5 AS big", {"p": "80.0", "big": True}),
]


def test_there_are_sixty() -> None:
    assert len(HOLD) + len(SHOWN) >= 60


@pytest.mark.parametrize("columns", [DDL, ""], ids=["declared", "open"])
def test_conditions_hold_of_the_event(columns: str) -> None:
    engine = tocsin.Engine()
    engine.execute(f"CREATE STREAM offers {columns}")
    entered = {engine.subscribe(f"SELECT name FROM offers WHERE {text}").id: text for text in HOLD}
    negated = {engine.subscribe(f"SELECT name FROM offers WHERE NOT ({text})").id: text for text in HOLD}
    for deltas in (engine.publish("offers", EVENT), engine.apply("offers", [EVENT, {"name": "y"}])):
        found = [d.subscription for d in deltas if d.row["name"] != "y"]
        assert {entered[own] for own in entered if own not in found} == set()
        assert {negated[own] for own in negated if own in found} == set()


@pytest.mark.parametrize(("items", "row"), SHOWN)
def test_selected_expressions_are_computed(items: str, row: dict[str, object]) -> None:
    engine = tocsin.Engine()
    engine.execute(f"CREATE STREAM offers {DDL}")
    engine.subscribe(f"SELECT {items} FROM offers WHERE price * qty > 100")
    assert [d.row for d in engine.publish("offers", EVENT)] == [row]
    assert [d.row for d in engine.apply("offers", [EVENT])] == [row]
