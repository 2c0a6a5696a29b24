"""The user's own ledger loses no line, invents none, and says what it cannot read."""

import json
import multiprocessing
import os
from dataclasses import asdict, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import InputError
from planner.ledger import KindSeconds
from planner.ledger.run_ledger import RunEntry, append_entry, default_path, drift_by_plan, parse_entry, read_entries

ENTRY = RunEntry(
    when="2026-01-02T03:04:05.000+00:00",
    machine="a machine",
    plan="a plan",
    digest="0123456789abcdef",
    steps=4,
    predicted_seconds=2.0,
    spread=0.1,
    measured_seconds=2.1,
    measured_peak_bytes=3.0,
    kinds=(KindSeconds("forward", 1.0, 1.1),),
)


def test_what_is_appended_is_read(tmp_path):
    path = tmp_path / "new" / "ledger.jsonl"
    assert read_entries(path) == ([], [])
    entries = [ENTRY, replace(ENTRY, plan="ein größerer\nPlan", kinds=(), predicted_peak_bytes=1.5)]
    for one in entries:
        append_entry(path, one)
    assert read_entries(path) == (entries, [])


def append_some(path, writer):
    for number in range(20):
        append_entry(path, replace(ENTRY, plan=f"{writer}", steps=number + 1, machine="m" * 5000))


@pytest.mark.slow
def test_concurrent_runs_lose_nothing(tmp_path):
    path = tmp_path / "ledger.jsonl"
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=append_some, args=(path, writer)) for writer in range(2)]
    for process in writers:
        process.start()
    for process in writers:
        process.join()
        assert process.exitcode == 0
    entries, unread = read_entries(path)
    assert not unread
    assert sorted((one.plan, one.steps) for one in entries) == [(f"{w}", n + 1) for w in range(2) for n in range(20)]


@pytest.mark.parametrize("kept", [1, 10, -2])
def test_a_line_cut_off_is_said_and_spoils_no_other(tmp_path, kept):
    path = tmp_path / "ledger.jsonl"
    append_entry(path, ENTRY)
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:kept])
    entries, unread = read_entries(path)
    assert entries == [ENTRY]
    assert [tuple(line) for line in unread] == [(2, "the last line is incomplete: its writer was interrupted")]
    append_entry(path, replace(ENTRY, steps=9))
    entries, unread = read_entries(path)
    assert [one.steps for one in entries] == [4, 9]
    assert [line.line for line in unread] == [2]


@pytest.mark.slow
@given(
    st.dictionaries(
        st.sampled_from([*RunEntry.__slots__, "format"]), st.none() | st.floats() | st.text() | st.booleans()
    )
)
def test_a_line_is_an_entry_or_says_why_not(changes):
    try:
        assert isinstance(parse_entry(json.dumps({**whole_line(), **changes}).encode()), RunEntry)
    except ValueError as error:
        assert str(error)


def whole_line():
    return {"format": "planner.run/1", **asdict(ENTRY)}


def test_later_versions_may_say_more():
    assert parse_entry(json.dumps({**whole_line(), "more": 1}).encode()) == ENTRY


@pytest.mark.parametrize("line", [b"", b"[]", b"1", b"\xff\xfe", b"{}", b'{"format": "planner.run/2"}', b"[" * 10**5])
def test_other_lines_are_named_by_number(tmp_path, line):
    path = tmp_path / "ledger.jsonl"
    append_entry(path, ENTRY)
    path.write_bytes(path.read_bytes() + line + b"\n")
    append_entry(path, ENTRY)
    entries, unread = read_entries(path)
    assert entries == [ENTRY, ENTRY]
    assert [one.line for one in unread] == [2]


def test_where_nothing_can_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot write"):
        append_entry(tmp_path / "file" / "ledger.jsonl", ENTRY)
    (tmp_path / "ledger.jsonl").mkdir()
    with pytest.raises(InputError, match="cannot write"):
        append_entry(tmp_path / "ledger.jsonl", ENTRY)
    with pytest.raises(InputError, match="cannot read"):
        read_entries(tmp_path / "ledger.jsonl")


def test_where_it_is(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert default_path() == tmp_path / "planner" / "ledger.jsonl"
    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_path() == tmp_path / ".local" / "share" / "planner" / "ledger.jsonl"
    assert os.environ["HOME"] == str(tmp_path)


def runs(*ratios, **fields):
    return [
        replace(ENTRY, when=f"2026-01-{day:02}", measured_seconds=2.0 * ratio, **fields)
        for day, ratio in enumerate(ratios, start=1)
    ]


def test_the_last_run_stands_beside_those_before():
    (steady,) = drift_by_plan(runs(1.3, 1.32, 1.31))
    assert steady.earlier_ratio == pytest.approx(1.31)
    assert steady.missed and not steady.drifted  # always too quick a prediction, and no news
    (slower,) = drift_by_plan(runs(1.0, 1.02, 1.2))
    assert slower.missed and slower.drifted
    (once,) = drift_by_plan(runs(1.05))
    assert once.earlier_ratio is None and not once.missed and not once.drifted


def test_plans_and_machines_are_apart_and_time_is_in_order():
    entries = [*runs(1.0, 1.1), *runs(2.0, plan="b"), *runs(3.0, machine="z")]
    found = drift_by_plan(entries[::-1])
    assert [(one.plan, one.machine, len(one.runs)) for one in found] == [
        ("a plan", "a machine", 2),
        ("a plan", "z", 1),
        ("b", "a machine", 1),
    ]
    assert found[0].last_run.ratio == pytest.approx(1.1)
    assert sum(len(one.runs) for one in found) == len(entries)
