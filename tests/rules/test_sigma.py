"""Sigma rules: what modifiers mean, refusals, pipelines; public rules and the events that must fire them."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import PurePosixPath

import pytest

pytest.importorskip("sigma")

import yaml

from tests.rules.data import folder, json_values, members
from tests.rules.sigma_events import FIELDS, flat_event
from tocsin import Engine
from tocsin.reference import holds
from tocsin.rules.base import Condition, Refusal, read_rules

EVENT = {
    "Image": r"C:\Windows\System32\WHOAMI.exe",
    "CommandLine": "WhoAmI /priv -f",
    "EventID": 4688,
    "LogonType": "3",
    "Signed": "False",
    "Ip": "10.1.2.3",
    "Six": "2001:DB8::1",
    "User": r"CORP\ann",
    "Owner": r"corp\Ann",
    "Empty": "",
    "Nothing": None,
    "detail": {"kind": "deep", "tags": ["one", "Two"]},
    "Encoded": "echo aGVsbG8=",
}


def rule(detection, condition="selection", **more):
    return {
        "title": "t",
        "logsource": {"category": "test"},
        "detection": {**detection, "condition": condition},
        **more,
    }


def fires(detection, condition="selection", event=EVENT, **options):
    (found,) = read_rules("sigma", [rule(detection, condition)], **options)
    assert isinstance(found, Condition), found
    engine = Engine()
    engine.execute("CREATE STREAM s")
    engine.subscribe(f"SELECT * FROM s WHERE {found.where}")
    engine.subscribe_rules("sigma", [rule(detection, condition)], stream="s", **options)
    expected = holds(found.where, event) is True
    assert engine.publish("s", event).subscription.tolist() == ([1, 2] if expected else [])
    assert engine.apply("s", [event]).subscription.tolist() == ([1, 2] if expected else [])
    return expected


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        ({"Image": r"c:\windows\system32\whoami.exe"}, True),
        ({"Image|endswith": r"\whoami.exe"}, True),
        ({"Image|endswith": r"\whoam?.exe"}, True),
        ({"Image|endswith": r"\who.exe"}, False),
        ({"Image|startswith": "C:\\Windows\\"}, True),
        ({"Image|contains": "system32"}, True),
        ({"Image|cased|contains": "system32"}, False),
        ({"Image|cased|contains": "System32"}, True),
        ({"CommandLine": "whoami*-f"}, True),
        ({"CommandLine": "whoami*-g"}, False),
        ({"CommandLine|contains|all": ["priv", "-F"]}, True),
        ({"CommandLine|contains|all": ["priv", "-x"]}, False),
        ({"CommandLine|contains": ["nothing", "PRIV"]}, True),
        ({"CommandLine|contains|windash": "/f"}, True),
        ({"CommandLine|re": "Am.*priv"}, True),
        ({"CommandLine|re": "am.*priv"}, False),
        ({"CommandLine|re|i": "am.*priv"}, True),
        ({"EventID": 4688}, True),
        ({"EventID": "4688"}, True),
        ({"EventID": [4624, 4688]}, True),
        ({"EventID|gte": 4688}, True),
        ({"EventID|gt": 4688}, False),
        ({"LogonType": 3}, True),
        ({"Signed": False}, True),
        ({"Signed": "false"}, True),
        ({"Signed": True}, False),
        ({"Ip|cidr": "10.0.0.0/8"}, True),
        ({"Ip|cidr": "10.1.2.4/30"}, False),
        ({"Six|cidr": "2001:db8::/32"}, True),
        ({"User|fieldref": "Owner"}, True),
        ({"User|fieldref": "Image"}, False),
        ({"Empty": ""}, True),
        ({"Missing": ""}, False),
        ({"Nothing": None}, True),
        ({"Missing": None}, True),
        ({"Image": None}, False),
        ({"Image": "*"}, True),
        ({"Missing": "*"}, False),
        ({"Image|exists": True}, True),
        ({"Missing|exists": False}, True),
        ({"detail.kind": "DEEP"}, True),
        ({"Encoded|base64|contains": "hello"}, True),
        ({"Encoded|base64offset|contains": "ello"}, True),
        ({"Image|endswith": ".exe", "User": "x"}, False),
    ],
)
def test_an_item_means_what_its_modifiers_say(item, expected):
    assert fires({"selection": item}) is expected


@pytest.mark.parametrize(
    ("words", "expected"),
    [(["whoami"], True), (["two"], True), (["4688"], True), ([4688], True), (["deep"], True), (["ann"], True),
     (["nope"], False), (["who*priv"], True), (["CORP*priv"], False), (["wh?ami"], True),
     (["detail"], False)],
)  # fmt: skip
def test_a_keyword_is_looked_for_in_every_value(words, expected):
    assert fires({"keywords": words}, "keywords") is expected


def test_not_holds_where_fields_are_missing():
    assert fires({"a": {"EventID": 4688}, "b": {"Missing": "x"}}, "a and not b")
    assert fires(
        {"a": {"EventID": 4688}, "b": {"EventID|contains": "46"}}, "a and not b"
    )  # a number is no text
    assert not fires({"a": {"EventID": 4688}, "b": {"Signed": "false"}}, "a and not b")
    assert fires(
        {"a_1": {"EventID": 1}, "a_2": {"LogonType": 3}, "f": {"Missing": None, "User": "x"}},
        "1 of a_* and not f",
    )
    assert not fires({"a_1": {"EventID": 1}, "a_2": {"LogonType": 3}}, "all of a_*")


def test_pipelines_and_fields_map_names():
    (found,) = read_rules("sigma", [rule({"s": {"A": "x"}}, "s")], fields={"A": ["a", "b.c"]})
    assert str(found.where) == "a ILIKE 'x' OR b.c ILIKE 'x'"
    (found,) = read_rules("sigma", [rule({"s": {"a.b": "x"}}, "s")], paths=False)
    assert str(found.where) == "`a.b` ILIKE 'x'"
    pipeline = "name: p\ntransformations:\n- {id: one, type: field_name_prefix, prefix: win.}\n"
    (found,) = read_rules("sigma", [rule({"s": {"A": "x"}}, "s")], pipelines=pipeline)
    assert str(found.where) == "win.A ILIKE 'x'"
    service = {"product": "windows", "service": "sysmon"}
    (found,) = read_rules(
        "sigma", [{**rule({"s": {"A": "x"}}, "s"), "logsource": service}], pipelines=["windows"]
    )
    assert "Channel ILIKE 'Microsoft-Windows-Sysmon/Operational'" in str(found.where)


@pytest.mark.parametrize(
    ("given", "place", "construct"),
    [
        (rule({"selection": {"A|re": "(?=x)"}}), "detection.selection.A|re", "(?=x)"),
        (rule({"selection": {"A|expand": "%x%"}}), "detection.selection.A|expand", "%x%"),
        (rule({"selection": {"A|hour": 5}}), "detection.selection.A|timestamphour", "HOUR"),
        (rule({"selection": {"A|nope": 5}}), "detection.selection.A|nope", "nope"),
        ({"title": "c", "correlation": {"type": "event_count"}}, "correlation", "{'type': 'event_count'}"),
        ("title: [", "line 2, column 1", ""),
        (7, "", "7"),
    ],
)
def test_a_refusal_names_the_place_and_the_construct(given, place, construct):
    (found,) = read_rules("sigma", [given])
    assert isinstance(found, Refusal)
    assert (found.place, found.construct) == (place, construct), found


# -- public rules ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def public():
    archive = folder("sigma") / "rules.tar.xz"
    texts = [text for name, text in members(archive, ".yml") if "unsupported" not in name]
    return [document for text in texts for document in yaml.load_all(text, yaml.CSafeLoader)]


@pytest.fixture(scope="module")
def engine(public):
    made = Engine()
    made.execute("CREATE STREAM logs")
    done = made.subscribe_rules(
        "sigma", public, stream="logs", ids=range(len(public)), fields=FIELDS, pipelines=["windows"]
    )
    return made, done


def test_nearly_all_public_rules_are_taken(public, engine):
    refused = engine[1].refused
    assert len(engine[1].ids) >= 0.99 * len(public), Counter(one.reason for one in refused)
    assert all(one.reason for one in refused)


def test_events_fire_the_rules_that_they_name(public, engine):
    number = {document["id"]: n for n, document in enumerate(public)}
    archive = folder("sigma") / "events.tar.xz"
    named = {
        str(PurePosixPath(name).parent): yaml.safe_load(text)["rule_metadata"][0]["id"]
        for name, text in members(archive, ".yml")
    }
    fired: dict[str, bool] = {}
    for name, text in members(archive, ".json"):
        here = str(PurePosixPath(name).parent)
        events = [flat_event(event) for event in json_values(text)]
        found = {id for event in events for id in engine[0].publish("logs", event).subscription.tolist()}
        batch = engine[0].apply("logs", json.dumps(events[0]).encode())
        assert set(batch.subscription.tolist()) <= found
        fired[here] = number.get(named[here], -1) in found
    assert len(fired) > 100
    assert sum(fired.values()) >= 0.99 * len(fired), [name for name, did in fired.items() if not did]
