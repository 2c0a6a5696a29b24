"""Replays of small traces are exact to the microsecond, and keep the invariants of every replay."""

from dataclasses import replace

import numpy as np
import pytest

from planner.errors import InputError
from planner.replay import DEPENDENCY_KINDS, find_critical_path, rank_operators, replay_graphs
from planner.replay.dependencies.host_segments import MAX_OWN_GAP
from planner.replay.dependencies.launches import MAX_DEVICE_GAP
from planner.replay.whatif.graph_change import with_op_timings, with_segment_seconds
from tests.replay.handmade_traces import BACKWARD, MAIN, Recorder, two_streams

US = 1e-6


def seconds(graph, without=()):
    return [step.replayed for step in replay_graphs([graph], without).steps]


def test_event_waits_and_synchronisation_give_what_was_measured(tmp_path):
    graph = two_streams().graph(tmp_path)
    made = replay_graphs([graph])
    assert made.steps[0].replayed == pytest.approx(400 * US)
    starts, ends = made.op_times(0)
    assert starts / US == pytest.approx([20, 172, 121])  # by stream: the gemm, the last kernel, the collective
    assert ends / US == pytest.approx([120, 202, 171])
    assert graph.dependency_counts["inter-stream"] == 2
    assert graph.dependency_counts["synchronise"] == 1


def test_the_host_waits_for_what_the_streams_do_then(tmp_path):
    """With a gemm of half its time everything after it comes 50 earlier, and so does the end of the step."""
    graph = two_streams().graph(tmp_path)
    halved = with_op_timings(graph, lambda i, work: work._replace(seconds=work.seconds / 2) if i == 0 else work)
    assert seconds(halved) == pytest.approx([350 * US])


@pytest.mark.parametrize("kind", ["inter-stream", "synchronise"])
def test_without_dependencies_a_replay_is_optimistic(tmp_path, kind):
    graph = two_streams().graph(tmp_path)
    assert seconds(graph, [kind])[0] < seconds(graph)[0] - 30 * US


def test_without_inter_stream_the_streams_run_beside_each_other(tmp_path):
    """Stream 7 takes 20 + 100 + 1 + 30, and the synchronisation 3 from the end of the last until it is back."""
    made = replay_graphs([two_streams().graph(tmp_path)], ["inter-stream"])
    _, ends = made.op_times(0)
    assert ends[1] / US == pytest.approx(151)
    assert made.steps[0].replayed / US == pytest.approx(400 - (202 - 151))


@pytest.mark.parametrize("factor", [0.5, 3.0])
def test_scaling_all_durations_scales_the_step(tmp_path, factor):
    graph = two_streams().graph(tmp_path)
    pieces = [replace(each, seconds=each.seconds * factor, unseen=each.unseen * factor) for each in graph.segments]
    every = replace(graph, segments=pieces)
    every = with_op_timings(
        every, lambda _, w: w._replace(**{n: getattr(w, n) * factor for n in ("seconds", "lead", "delay", "unseen")})
    )
    assert seconds(every)[0] == pytest.approx(factor * seconds(graph)[0])


def test_no_step_is_shorter_than_its_critical_path_or_its_busiest_stream(tmp_path):
    made = replay_graphs([two_streams().graph(tmp_path)])
    path = find_critical_path(made)
    total = sum(link.seconds for link in path)
    assert total == pytest.approx(made.steps[0].replayed)  # and it has no gaps
    assert made.steps[0].replayed >= max(stream.replayed for stream in made.stream_seconds())
    assert [link.kind for link in path if link.name] == ["gemm", "all-reduce", "elementwise"]
    assert rank_operators(path)[0].seconds == max(row.seconds for row in rank_operators(path))
    assert next(link for link in path if link.kind == "gemm").enclosing.operators == ("aten::mm",)


def test_the_parts_of_a_step_add_up(tmp_path):
    made = replay_graphs([two_streams().graph(tmp_path)])
    parts = made.breakdown().parts
    assert sum(parts) == pytest.approx(made.steps[0].replayed)
    assert np.array(parts) / US == pytest.approx([130, 0, 50, 0, 220])


def test_a_graph_is_launched_once(tmp_path):
    r = Recorder().step(0, 0, 200).call("cudaGraphLaunch", 10, 10)
    r.device("sgemm", 7, 25, 20).device("sgemm", 7, 46, 20).device("reduce_kernel", 8, 60, 10)
    r.call("cudaStreamSynchronize", 30, 40)
    made = replay_graphs([r.graph(tmp_path)])
    starts, _ = made.op_times(0)
    assert starts / US == pytest.approx([25, 46, 60])
    assert {work.launch for work in made.graphs[0].op_timings} == {made.graphs[0].op_timings[0].launch}


def test_a_kernel_may_begin_before_its_launch_is_over(tmp_path):
    r = Recorder().step(0, 0, 100).launch("sgemm", 10, 40, 7, 20, 60)
    r.call("cudaDeviceSynchronize", 60, 25)
    made = replay_graphs([r.graph(tmp_path)])
    assert made.op_times(0)[0] / US == pytest.approx([20])
    assert made.steps[0].replayed == pytest.approx(100 * US)


def test_threads_wake_each_other(tmp_path):
    """The main thread calls for backward and waits; the other one works from 120 to 320; it resumes at 330."""
    r = Recorder().step(0, 0, 500)
    r.op("aten::mm", 10, 90).span("user_annotation", "## backward ##", 101, 229)
    r.op("MmBackward0", 120, 200, BACKWARD).op("aten::add", 331, 100)
    graph = r.graph(tmp_path)
    assert graph.dependency_counts["threads"] == 2
    assert seconds(graph) == pytest.approx([500 * US])
    backward = graph.trace.threads.index(f"thread {BACKWARD}")
    slower = with_segment_seconds(
        graph, lambda p: p.seconds + 1000 * US * (p.thread == backward and p.seconds > 150 * US)
    )
    assert seconds(slower) == pytest.approx([1500 * US])


def test_a_pageable_copy_holds_its_caller(tmp_path):
    r = Recorder().step(0, 0, 300).launch("sgemm", 10, 5, 7, 20, 200)
    r.call("cudaMemcpyAsync", 30, 200).device("Memcpy DtoH (Device -> Pageable)", 7, 221, 2, "gpu_memcpy")
    graph = r.graph(tmp_path)
    assert seconds(graph) == pytest.approx([300 * US])
    shorter = with_op_timings(graph, lambda i, work: work._replace(seconds=work.seconds - 100 * US) if i == 0 else work)
    assert seconds(shorter) == pytest.approx([200 * US])


def test_a_full_queue_holds_who_launches(tmp_path):
    """Kernel i of 1200, each of 100, launched at 5 a piece until 1000 wait; from then on as room is made."""
    r, at = Recorder().step(0, 0, 130_000), 10.0
    for i in range(1200):
        begin = 20 + 100 * i
        room = 20 + 100 * (i - 1000) + 99 if i >= 1000 else 0
        end = max(at + 5, room + 2)
        r.launch("sgemm", at, end - at, 7, begin, 99)
        at = end
    graph = r.graph(tmp_path)
    slower = with_op_timings(graph, lambda _, work: work._replace(seconds=2 * work.seconds))
    launched = [replay_graphs([each]).segment_end(0, graph.op_timings[-1].launch.number) for each in (graph, slower)]
    assert launched[0] / US == pytest.approx(at)
    assert launched[1] / launched[0] == pytest.approx(2, rel=0.03)


def test_unexplained_gaps_are_unseen(tmp_path):
    r = Recorder().step(0, 0, 900).launch("sgemm", 10, 5, 7, 500, 100).call("cudaDeviceSynchronize", 20, 585)
    graph = r.graph(tmp_path)
    late = 500 * US - 15 * US
    assert sum(work.unseen for work in graph.op_timings) == pytest.approx(late, abs=MAX_DEVICE_GAP)
    assert seconds(graph) == pytest.approx([900 * US])
    rest = 900 * US - 605 * US - MAX_OWN_GAP  # after the last call the host does nothing that is recorded
    assert seconds(graph, ["unseen"])[0] == pytest.approx(900 * US - late - rest, abs=MAX_DEVICE_GAP)


def test_work_launched_before_the_capture_begins_when_it_did(tmp_path):
    r = Recorder().step(0, 0, 300).device("sgemm", 7, 50, 100, correlation=999)
    r.launch("reduce_kernel", 10, 5, 7, 151, 20).call("cudaDeviceSynchronize", 20, 155)
    made = replay_graphs([r.graph(tmp_path)])
    assert made.op_times(0)[0] / US == pytest.approx([50, 151])
    assert any("have no launch" in note for note in made.graphs[0].notes)


def test_streams_of_events_that_say_so(tmp_path):
    """`cuda_sync` names the streams: here the wait is for the older of two collectives, not for the last."""
    r = Recorder().step(0, 0, 500)
    r.launch("ncclA_AllReduce", 10, 5, 20, 20, 100)
    r.call("cudaEventRecord", 16, 1)
    record = r.correlation
    r.launch("ncclB_AllReduce", 20, 5, 21, 30, 40)
    r.call("cudaStreamWaitEvent", 30, 1)
    said = {"stream": 7, "wait_on_stream": 20, "wait_on_cuda_event_record_corr_id": record, "device": 0}
    r.span("cuda_sync", "Stream Wait Event", 31, 0, 7, pid=0, correlation=r.correlation, **said)
    r.launch("sgemm", 35, 5, 7, 121, 50)
    graph = r.graph(tmp_path)
    last = next(i for i, op in enumerate(graph.trace.ops) if op.name == "sgemm")
    first = next(i for i, op in enumerate(graph.trace.ops) if op.name == "ncclA_AllReduce")
    assert graph.op_timings[last].awaits == (first,)


def test_older_traces_join_by_flows_alone(tmp_path):
    r = Recorder().step(0, 0, 300)
    r.span("Runtime", "cudaLaunchKernel", 10, 5).span("Kernel", "sgemm", 20, 100, "7", pid=0)
    r.events += [
        {"ph": "s", "id": 5, "pid": 100, "tid": MAIN, "ts": 10, "cat": "ac2g", "name": "ac2g"},
        {"ph": "f", "id": 5, "pid": 0, "tid": "7", "ts": 20, "cat": "ac2g", "name": "ac2g"},
    ]
    graph = r.graph(tmp_path)
    assert graph.dependency_counts["launch"] == 1


def test_a_capture_without_steps_is_one(tmp_path):
    r = Recorder().op("aten::mm", 0, 100).op("aten::mm", 150, 50)
    made = replay_graphs([r.graph(tmp_path)])
    assert [step.measured for step in made.steps] == pytest.approx([200 * US])
    assert any("no ProfilerStep" in note for note in made.graphs[0].notes)
    assert made.breakdown().parts.compute == pytest.approx(150 * US)


def test_a_circular_wait_is_an_error(tmp_path):
    graph = two_streams().graph(tmp_path)
    circular = with_op_timings(graph, lambda i, work: work._replace(awaits=(1,)) if i == 0 else work)
    with pytest.raises(InputError, match="in a cycle"):
        replay_graphs([circular])


def test_every_kind_can_be_left_out(tmp_path):
    graph = two_streams().graph(tmp_path)
    whole = replay_graphs([graph])
    for kind in DEPENDENCY_KINDS:
        made = replay_graphs([graph], [kind])
        assert np.max(made.times.ends) <= np.max(whole.times.ends) + 1e-12, kind


def test_gaps_within_a_graph_and_before_the_capture_are_unseen(tmp_path):
    r = Recorder().step(0, 0, 900).device("sgemm", 8, 100, 10, correlation=999).call("cudaGraphLaunch", 10, 10)
    r.device("sgemm", 7, 25, 20).device("sgemm", 7, 545, 20).call("cudaStreamSynchronize", 30, 540)
    graph = r.graph(tmp_path)
    made = replay_graphs([graph])
    assert made.steps[0].replayed == pytest.approx(790 * US)  # it begins when the work before it has ended
    host = 330 * US - MAX_OWN_GAP  # after the last call
    assert made.copied.unseen == pytest.approx((100 + 500) * US + host, abs=MAX_DEVICE_GAP)
    assert seconds(graph, ["unseen"])[0] == pytest.approx(790 * US - 500 * US - host + 100 * US, abs=MAX_DEVICE_GAP)


def test_a_long_call_that_waits_for_nothing_found_is_unseen(tmp_path):
    r = Recorder().step(0, 0, 1000).launch("sgemm", 10, 5, 7, 20, 30).call("cudaDeviceSynchronize", 20, 35)
    graph = r.call("cudaStreamSynchronize", 200, 600).graph(tmp_path)
    gaps = (145 + 200) * US - 2 * MAX_OWN_GAP  # between the calls, and after them
    call = 595 * US  # the first call takes 5 after its stream is done
    assert replay_graphs([graph]).copied.unseen == pytest.approx(call + gaps)
    assert seconds(graph) == pytest.approx([1000 * US])
    assert seconds(graph, ["unseen"]) == pytest.approx([1000 * US - call - gaps])
