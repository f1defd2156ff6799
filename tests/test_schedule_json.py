"""Schedules go into JSON and come back; what is no schedule is refused with the reason."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings

from coursekit.schedule import Schedule, ScheduleError, build, dumps, load, loads, save
from tests.schedule_help import schedules


@given(schedules(most=9))
@settings(max_examples=60, deadline=None)
def test_there_and_back(built: Schedule) -> None:
    assert loads(dumps(built)) == built


def test_a_file(tmp_path: Path) -> None:
    ring = build("all_reduce", "ring", 3)
    save(ring, tmp_path / "ring.json")
    assert load(tmp_path / "ring.json") == ring
    text = (tmp_path / "ring.json").read_text()
    assert json.loads(text)["transfers"][0] == [0, 0, 1, 2, "reduce", 2]
    assert len(text.splitlines()) < len(ring) + 16
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(ScheduleError, match=r"other\.json: a schedule must say"):
        load(tmp_path / "other.json")


def test_an_empty_schedule() -> None:
    alone = build("all_reduce", "ring", 1)
    assert loads(dumps(alone).encode()) == alone


def changed(**fields: object) -> str:
    data = json.loads(dumps(build("broadcast", "binomial", 2)))
    data |= fields
    return json.dumps({name: value for name, value in data.items() if value is not ...})


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "a schedule must be JSON, got: "),
        ("[" * 100_000, "a schedule must be JSON"),
        (b"\xff\xfe\x00", "a schedule must be JSON"),
        ("[]", 'must say "format": "coursekit.schedule", got \\[\\]'),
        (changed(format="x"), 'must say "format"'),
        (changed(version=2), "must be of version 1, got 2"),
        (changed(version=True), "must be of version 1, got True"),
        (changed(version=...), "must be of version 1, got None"),
        (changed(size=...), "must have the field size, got algorithm, chunks"),
        (changed(size="2"), "size must be of type int, got '2'"),
        (changed(size=True), "size must be of type int, got True"),
        (changed(size=2.5), "size must be of type int, got 2.5"),
        (changed(root="0"), "root must be of type int or null, got '0'"),
        (changed(collective="fold"), "a collective must be known, got 'fold'"),
        (changed(transfers={}), "transfers must be of type list, got {}"),
        (changed(transfers=[[0, 0, 1, 0]]), "got \\[0, 0, 1, 0\\] as transfer 0"),
        (changed(transfers=["abcdef"]), "got 'abcdef' as transfer 0"),
        (changed(transfers=[[0, 0, 1, 0, "add", 0]]), "op must be copy or reduce, got 'add'"),
        (changed(transfers=[[0, 0, 1, 0, ["copy"], 0]]), "op must be copy or reduce"),
        (changed(transfers=[[0, 0, 2, 0, "copy", 0]]), "dst must be from 0 to 1, got 2"),
        (changed(transfers=[[0, 0, True, 0, "copy", 0]]), "dst must be a whole number"),
        (changed(transfers=[[10**30, 0, 1, 0, "copy", 0]]), "step must be a whole number"),
        (changed(chunks=0), "chunks must be a whole number from 1 up, got 0"),
        (changed(colour="red"), "fields must be known, got colour"),
    ],
)
def test_what_is_no_schedule(text: str | bytes, told: str) -> None:
    with pytest.raises(ScheduleError, match=told):
        loads(text)
