"""Collectives of several ranks are matched, and stragglers are named."""

import pytest

from planner.errors import InputError
from planner.replay import replay_graphs
from planner.replay.timing.late_ranks import find_stragglers
from planner.replay.timing.matched_collectives import match_ranks
from planner.replay.whatif import parse_changes, predict_changes
from planner.replay.whatif.graph_change import WhatIfOptions, with_op_timings
from planner.workflows.replaying import replay_traces
from tests.replay.handmade_traces import Recorder

US = 1e-6


def rank(number, gemm, begins, lasts, world=2):
    """A gemm, then a collective that lasts until all are there and 50 more."""
    r = Recorder(number, world).step(0, 0, 600)
    r.launch("sgemm", 10, 5, 7, 20, gemm)
    r.call("cudaStreamWaitEvent", 20, 1).launch("ncclKernel_AllReduce_RING", 30, 5, 20, begins, lasts)
    return r.call("cudaDeviceSynchronize", 40, 500)


def two(folder):
    """Rank 1 computes for 300 instead of 100, so rank 0 waits 200 in the collective."""
    return [rank(0, 100, 121, 250).graph(folder), rank(1, 300, 321, 50).graph(folder)]


def test_a_collective_begins_when_its_last_rank_arrives(tmp_path):
    made = replay_graphs(two(tmp_path))
    assert [step.error for step in made.steps] == pytest.approx([0, 0], abs=1e-9)
    for g in (0, 1):
        starts, ends = made.op_times(g)
        assert starts[1] / US == pytest.approx([121, 321][g])
        assert ends[1] / US == pytest.approx(371)


def test_collectives_of_a_launched_graph_hold_what_follows_them(tmp_path):
    """One launch queues a gemm, the collective and another gemm on one stream of each of two ranks."""
    graphs = []
    for number, gemm in enumerate((100, 300)):
        r = Recorder(number, 2).step(0, 0, 900).call("cudaGraphLaunch", 10, 5)
        r.device("sgemm", 7, 20, gemm).device("ncclKernel_AllReduce_RING", 7, 20 + gemm, 350 - gemm)
        r.device("sgemm", 7, 370, 200).call("cudaDeviceSynchronize", 30, 545)
        graphs.append(r.graph(tmp_path))
    made = replay_graphs(graphs)
    for g in (0, 1):
        assert made.op_times(g)[0] / US == pytest.approx([20, 120 + 200 * g, 370])
        assert made.op_times(g)[1] / US == pytest.approx([120 + 200 * g, 370, 570])
    assert [step.replayed / US for step in made.steps] == pytest.approx([900, 900])


def test_when_the_straggler_is_as_quick_as_the_others_nobody_waits(tmp_path):
    graphs = two(tmp_path)
    quick = with_op_timings(graphs[1], lambda i, work: work._replace(seconds=100 * US) if i == 0 else work)
    made = replay_graphs([graphs[0], quick])
    assert [made.op_times(g)[1][1] / US for g in (0, 1)] == pytest.approx([171, 171])


def test_the_straggler_is_named_with_what_it_is_slow_at(tmp_path):
    graphs = two(tmp_path)
    made = replay_graphs(graphs)
    assert not made.matched.notes
    first, second = find_stragglers(made)
    assert (first.rank, first.last, first.of, first.slow) == (1, 1, 1, True)
    assert first.kept_waiting == pytest.approx(200 * US)
    assert dict(first.slower)["gemm"] == pytest.approx(200 * US)  # than the other
    assert first.cause == ("kernels", "gemm", pytest.approx(200 * US))
    assert (second.rank, second.last) == (0, 0)


def test_unmatched_collectives_are_noted(tmp_path):
    more = rank(1, 300, 321, 50).launch("ncclKernel_AllReduce_RING", 560, 5, 20, 570, 10)
    made = match_ranks([rank(0, 100, 121, 250).graph(tmp_path), more.graph(tmp_path)])
    assert not made.collectives
    assert "different numbers" in made.notes[0]


def test_collectives_match_by_order_where_clocks_disagree(tmp_path):
    late = rank(1, 300, 321, 50)
    for event in late.events:
        event["ts"] += 5e9
    made = replay_graphs([rank(0, 100, 121, 250).graph(tmp_path), late.graph(tmp_path)])
    assert [step.replayed / US for step in made.steps] == pytest.approx([600, 600])
    assert made.matched.clocks[1].offset == pytest.approx(5000, abs=1e-6)


def test_captures_of_different_moments_are_refused(tmp_path):
    """The collectives of a rank follow each other at other intervals than those of the other rank."""
    graphs = []
    for number, gap in ((0, 2000), (1, 9000)):
        r = Recorder(number, 2).step(0, 0, 90_000)
        for i in range(4):
            at = 100 + i * i * gap
            r.launch("ncclKernel_AllReduce_RING", at, 5, 20, at + 20, 50)
        graphs.append(r.graph(tmp_path))
    with pytest.raises(InputError, match="recorded at different times"):
        match_ranks(graphs)


def test_equal_captures_of_two_ranks_are_two(tmp_path):
    answer = replay_traces([rank(number, 100, 121, 50).write(tmp_path, f"{number}.json") for number in (0, 1)])
    assert len(answer.replay.matched.collectives) == 1
    assert not any(late.slow for late in answer.stragglers)
    assert [late.last for late in answer.stragglers] == [0, 0]


def test_different_steps_are_noted(tmp_path):
    other = rank(1, 300, 321, 50)
    next(event for event in other.events if event["name"] == "ProfilerStep#0")["name"] = "ProfilerStep#1"
    made = replay_graphs([rank(0, 100, 121, 250).graph(tmp_path), other.graph(tmp_path)])
    assert any("different steps" in note for note in made.matched.notes)
    assert len(made.slowest_ranks(replayed=True)) == 2


def test_captures_begin_when_they_did(tmp_path):
    later = rank(1, 200, 221, 50)
    for event in later.events:
        event["ts"] += 100
    made = replay_graphs([rank(0, 100, 121, 250).graph(tmp_path), later.graph(tmp_path)])
    assert [made.op_times(g)[1][1] / US for g in (0, 1)] == pytest.approx([371, 371])


def test_missing_ranks_are_noted_and_duplicates_refused(tmp_path):
    paths = [rank(0, 100, 121, 250, 8).write(tmp_path, "a.json"), rank(1, 300, 321, 50, 8).write(tmp_path, "b.json")]
    answer = replay_traces(paths)
    assert any("2 of 8 ranks" in note for note in answer.notes)
    with pytest.raises(InputError, match="same file"):
        replay_traces([paths[0], paths[0]])
    copy = tmp_path / "c.json"
    copy.write_bytes(paths[0].read_bytes())
    with pytest.raises(InputError, match="hold the same trace"):
        replay_traces([paths[0], copy])
    other = rank(0, 200, 221, 150, 8).write(tmp_path, "d.json")
    with pytest.raises(InputError, match="two traces are of rank 0"):
        replay_traces([paths[0], other])


def test_ranks_of_other_jobs_are_refused_and_odd_ones_noted(tmp_path):
    first = rank(0, 100, 121, 250, 8).write(tmp_path, "a.json")
    with pytest.raises(InputError, match="jobs of 2, 8 ranks"):
        replay_traces([first, rank(1, 300, 321, 50, 2).write(tmp_path, "b.json")])
    lonely = Recorder(1, 8).step(0, 0, 600).launch("sgemm", 10, 5, 7, 20, 100)
    notes = replay_traces([first, lonely.write(tmp_path, "c.json")]).notes
    assert any("no collective of the ranks matches" in note for note in notes)
    assert any("no communication" in note for note in notes)


def test_ranks_that_are_not_recorded_are_the_lowest_free(tmp_path):
    said, first, second = rank(0, 100, 121, 250, 3), rank(-5, 300, 321, 50, 3), rank(None, 200, 221, 150, 3)
    paths = [each.write(tmp_path, f"{i}.json") for i, each in enumerate((first, said, second))]
    answer = replay_traces(paths)
    assert [graph.trace.rank for graph in answer.replay.graphs] == [0, 1, 2]
    assert [step.rank for step in answer.replay.steps] == [0, 1, 2]
    assert answer.replay.graphs[1].trace.source.endswith("0.json")
    assert any("is -5" in note for note in answer.notes)
    assert any("2 traces do not say their rank" in note for note in answer.notes)


def test_missing_ranks_are_stated_where_communication_changes(tmp_path):
    alone, both = [rank(0, 100, 121, 250).graph(tmp_path)], two(tmp_path)
    for asked in ({"bandwidth": "2x"}, {"scale": ("communication=2",)}, {"settings": ("dp=4",)}):
        changes = parse_changes(WhatIfOptions(**asked))
        assert "of 2 ranks 1 given" in predict_changes(replay_graphs(alone), changes).assumed[0][1]
        assert "given" not in predict_changes(replay_graphs(both), changes).assumed[0][1]
    assert (
        "given"
        not in predict_changes(replay_graphs(alone), parse_changes(WhatIfOptions(scale=("gemm=2",)))).assumed[0][1]
    )
