"""The graph of a trace predicts the same program with other durations: its dependencies are the true ones."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.replay import DEPENDENCY_KINDS, replay_graphs
from planner.replay.whatif import parse_changes, predict_changes
from planner.replay.whatif.graph_change import WhatIfOptions
from tests.examples import examples
from tests.replay.random_programs import STREAMS, instructions, run


def graph_of(recorder):
    with tempfile.TemporaryDirectory() as folder:
        return recorder.graph(Path(folder))


def replayed(graph):
    """Ends of operations by stream in order, and of the step, in µs."""
    made = replay_graphs([graph])
    _, ends = made.op_times(0)
    order = sorted(range(len(ends)), key=lambda i: (int(graph.trace.streams[graph.trace.ops[i].stream].split()[1]), i))
    return [ends[i] * 1e6 for i in order], made.segment_end(0, graph.steps[0].end.segment.number) * 1e6


@examples(150)
@given(instructions())
def test_a_program_is_replayed_as_it_ran(program):
    recorder, ends, host = run(program)
    found, end = replayed(graph_of(recorder))
    assert found == pytest.approx(ends, abs=1e-3)
    assert end == pytest.approx(host, abs=1e-3)


@examples(100)
@given(instructions())
def test_a_trace_that_does_not_say_who_waits_is_replayed_all_the_same(program):
    """As of older profilers: which stream waits for which is concluded."""
    recorder, ends, host = run(program)
    recorder.events = [event for event in recorder.events if event["cat"] != "cuda_sync"]
    found, end = replayed(graph_of(recorder))
    assert found == pytest.approx(ends, abs=1e-3)
    assert end == pytest.approx(host, abs=1e-3)


@examples(150)
@given(instructions(), st.sampled_from([0.5, 2, 10]))
def test_a_program_with_longer_gemms_is_predicted(program, factor):
    recorder, _, _ = run(program)
    graph = graph_of(recorder)
    if not any("gemm" in op.name for op in graph.trace.ops):
        return
    change = parse_changes(WhatIfOptions(scale=(f"gemm={factor}",))).of_graphs[0]
    _, ends, host = run(program, factor)
    found, end = replayed(change.apply([graph]).graphs[0])
    assert found == pytest.approx(ends, abs=1e-3)
    assert end == pytest.approx(host, abs=1e-3)


@examples(50)
@given(instructions())
def test_no_stream_is_busier_than_its_step(program):
    graph = graph_of(run(program)[0])
    made = replay_graphs([graph])
    assert made.steps[0].replayed >= max((stream.replayed for stream in made.stream_seconds()), default=0.0) - 1e-12
    assert sum(made.breakdown().parts) == pytest.approx(made.steps[0].replayed)
    assert len(STREAMS) >= len(made.stream_seconds())


@examples(100)
@given(instructions(), st.sampled_from(DEPENDENCY_KINDS))
def test_whatever_kind_is_left_out_nothing_takes_longer(program, kind):
    graph = graph_of(run(program)[0])
    whole, made = replay_graphs([graph]), replay_graphs([graph], [kind])
    assert made.times.ends.max() <= whole.times.ends.max() + 1e-12
    assert made.step_seconds <= whole.step_seconds + 1e-12


@examples(100)
@given(instructions())
def test_an_identity_predicts_what_is_replayed(program):
    graph = graph_of(run(program)[0])
    if graph.op_timings:
        found = predict_changes(replay_graphs([graph]), parse_changes(WhatIfOptions(scale=(".=1",))))
        assert found.step_seconds == found.replayed_seconds


@examples(100)
@given(instructions())
def test_streams_that_keep_their_order_are_replayed_as_they_ran(program):
    recorder, _, host = run(program)
    made = replay_graphs([graph_of(recorder)], ["hidden"])  # of launched graphs, of which there are none
    assert made.step_seconds * 1e6 == pytest.approx(host, abs=1e-3)
