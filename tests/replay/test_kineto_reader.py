"""A broken trace is one clear error; an anomaly that does no harm is a note."""

import gzip
import json
import sys

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import InputError
from planner.replay import build_graph, read_kineto_trace, replay_graphs
from planner.replay.recording import kineto_events as decoding
from planner.replay.recording.event_splitter import EventSplitter
from planner.replay.whatif.graph_change import with_op_timings
from tests.examples import examples
from tests.replay.handmade_traces import Recorder, two_streams

BAD = {
    "empty": b"",
    "blank": b"  \n",
    "truncated before its events": b'{"schemaVersion": 1, "traceEvents": [{"ph": "X", "ca',
    "not JSON": b"{traceEvents: 7}",
    "binary": bytes(range(256)),
    "another object": b'{"hello": [1, 2]}',
    "null events": b'{"traceEvents": null}',
    "no events": b'{"traceEvents": []}',
    "an execution trace": b'{"schema": "1.0.2", "nodes": []}',
    "events of other sorts": b'{"traceEvents": [{"ph": "C", "name": "memory", "ts": 5}]}',
    "foreign spans": b'{"traceEvents": [{"ph": "X", "cat": "browser", "name": "paint", "ts": 5, "dur": 1}]}',
    "an event that is none": b'{"traceEvents": [7]}',
    "a list for a time": b'{"traceEvents": [{"ph": "X", "ts": []}]}',
    "a number": b"7",
    "times that are no numbers": b'{"traceEvents": [{"ph": "X", "cat": "cpu_op", "ts": "noon", "dur": 1}]}',
    "infinite times": b'{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "a", "ts": 1e999, "dur": 1}]}',
    "NaN": b'{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "a", "ts": NaN, "dur": 1}]}',
    "nested deeply": b'{"x": ' + b"[" * 50_000 + b"]" * 50_000 + b', "traceEvents": []}',
    "half a gzip": gzip.compress(json.dumps(two_streams().content()).encode())[:-20],
    "a broken gzip": gzip.compress(b"x" * 5000)[:20] + b"nonsense" * 9,
}


@pytest.mark.parametrize("what", BAD)
def test_what_is_no_trace_is_refused(tmp_path, what):
    path = tmp_path / "trace.json"
    path.write_bytes(BAD[what])
    with pytest.raises(InputError) as refused:
        read_kineto_trace(path)
    assert str(path) in refused.value.where
    assert refused.value.fix


def test_a_folder_or_nothing_is_refused(tmp_path):
    for path in (tmp_path, tmp_path / "none.json"):
        with pytest.raises(InputError, match="cannot read"):
            read_kineto_trace(path)


@pytest.mark.parametrize("packed", [False, True])
def test_what_is_too_large_is_refused_before_it_is_unpacked(tmp_path, monkeypatch, packed):
    monkeypatch.setattr(decoding, "RECORDED_TRACE", decoding.RECORDED_TRACE._replace(most=10_000))
    path = tmp_path / "trace.json"
    data = b" " * 1_000_000
    path.write_bytes(gzip.compress(data) if packed else data)
    with pytest.raises(InputError, match=r"of more than 9\.8 KiB is not read"):
        read_kineto_trace(path)


def test_times_may_be_whole_broken_or_text(tmp_path):
    """The same trace, whichever way its numbers are written, is the same graph."""
    content = two_streams().content()
    graphs = []
    for write in (int, float, str):
        for event in content["traceEvents"]:
            event["ts"], event["dur"] = write(event["ts"]), write(event["dur"])
            event["args"] = {key: str(value) if write is str else value for key, value in event["args"].items()}
        path = tmp_path / f"{write.__name__}.json"
        path.write_text(json.dumps(content))
        graphs.append(build_graph(read_kineto_trace(path)))
    assert graphs[0].trace.ops == graphs[1].trace.ops == graphs[2].trace.ops
    assert graphs[0].op_timings[1].awaits == graphs[2].op_timings[1].awaits != ()


def test_a_bare_list_of_events_is_a_trace(tmp_path):
    path = tmp_path / "list.json"
    path.write_text(json.dumps(two_streams().events))
    assert len(read_kineto_trace(path).ops) == 3


def test_anomalies_are_noted(tmp_path):
    r = two_streams().op("aten::odd", 300, -5).op("aten::none", 310, None)
    r.events.append({"ph": "X", "cat": "cpu_op", "name": "x", "pid": 1, "tid": 1, "dur": 5})
    trace = read_kineto_trace(r.write(tmp_path))
    assert len(trace.notes) == 3
    assert replay_graphs([build_graph(trace)]).steps[0].replayed == pytest.approx(400e-6)


def test_kernels_before_their_launch_are_noted(tmp_path):
    r = Recorder().step(0, 0, 200).launch("sgemm", 50, 5, 7, 30, 100).call("cudaDeviceSynchronize", 60, 75)
    graph = r.graph(tmp_path)
    assert any("before their launch" in note for note in graph.notes)
    assert replay_graphs([graph]).steps[0].replayed > 0


def test_spans_that_overlap_within_a_thread_do_no_harm(tmp_path):
    r = Recorder().step(0, 0, 300).op("aten::a", 10, 100).op("aten::b", 60, 100)
    r.call("cudaStreamSynchronize", 20, 100).call("cudaStreamSynchronize", 70, 100)
    assert replay_graphs([r.graph(tmp_path)]).steps[0].replayed == pytest.approx(300e-6)


def test_metadata_of_a_trace(tmp_path):
    r = Recorder(3, 8).op("aten::mm", 0, 10)
    path = tmp_path / "t.json"
    about = {"deviceProperties": [{"name": "NVIDIA H100"}], "cuda_runtime_version": 12080, "cupti_version": 26}
    path.write_text(json.dumps({**r.content(), **about}))
    trace = read_kineto_trace(path)
    assert (trace.rank, trace.world_size, trace.device) == (3, 8, "NVIDIA H100")
    assert trace.versions == {"cuda runtime": "12080", "cupti": "26", "kineto schema": "1"}


def test_an_odd_time_of_an_arrow_is_noted(tmp_path):
    r = two_streams()
    r.events.append({"ph": "s", "cat": "fwdbwd", "id": 1, "pid": 100, "tid": 1, "ts": "noon"})
    assert read_kineto_trace(r.write(tmp_path)).notes == ("1 events without a time in the trace",)


def test_streams_with_names_are_several(tmp_path):
    r = two_streams()
    for event in r.events:
        if "stream" in event["args"]:
            event["args"]["stream"] = f"comm{event['args']['stream']}"
    assert read_kineto_trace(r.write(tmp_path)).streams == ("stream comm7", "stream comm20")


@pytest.mark.parametrize("time", [1e18, -1e15, 1e299])
def test_implausible_times_are_dropped(tmp_path, time):
    r = two_streams().op("aten::wild", time, 5)
    graph = build_graph(read_kineto_trace(r.write(tmp_path)))
    assert replay_graphs([graph]).steps[0].replayed == pytest.approx(400e-6)
    assert any("dropped" in note for note in graph.notes)


def test_a_byte_order_mark_is_accepted(tmp_path):
    path = tmp_path / "trace.json"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(two_streams().content()).encode())
    assert len(read_kineto_trace(path).ops) == 3


def test_too_many_spans_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules[read_kineto_trace.__module__], "MAX_SPANS", 5)
    with pytest.raises(InputError, match="more than 5 operators"):
        read_kineto_trace(two_streams().write(tmp_path))


TEXTS = st.text(alphabet='a"\\[]{},: é', max_size=6)
VALUES = st.recursive(
    st.none() | st.integers(-9, 9) | TEXTS, lambda of: st.lists(of, max_size=3) | st.dictionaries(TEXTS, of, max_size=3)
)


@pytest.mark.slow
@examples(200)
@given(
    st.lists(VALUES, max_size=5),
    st.dictionaries(TEXTS, VALUES, max_size=3),
    st.dictionaries(TEXTS, VALUES, max_size=3),
    st.integers(1, 40),
)
def test_events_are_cut_as_json_says(events, before, after, chunk):
    """Wherever chunks end, the events and the rest are what a reader of the whole has."""
    data = json.dumps({**before, "traceEvents": events, **after}, ensure_ascii=False).encode()
    elements, found = EventSplitter(msgspec.json.decode), []
    for at in range(0, len(data), chunk):
        found += elements.feed(data[at : at + chunk])
    assert found + elements.finish() == events
    assert json.loads(bytes(elements.rest)) == {**before, "traceEvents": [], **after}


def test_of_a_trace_that_ends_in_the_middle_the_beginning_is_read(tmp_path):
    whole = json.dumps(two_streams().content()).encode()
    path = tmp_path / "cut.json"
    path.write_bytes(whole[:-40])
    trace = read_kineto_trace(path)
    assert len(trace.ops) == 3
    assert any("ends in the middle" in note for note in trace.notes)
    assert trace.rank == 0  # which stands before the events


def test_kernels_alone_are_broken_down(tmp_path):
    """One on each of two streams, 30 of 100 together, then a collective."""
    r = Recorder().device("sgemm", 7, 1000, 60, correlation=1).device("sgemm", 8, 1030, 70, correlation=2)
    graph = r.device("ncclDevKernel_AllReduce", 20, 1150, 50, correlation=3).graph(tmp_path)
    made = replay_graphs([graph])
    parts = made.breakdown().parts
    assert (parts.compute, parts.exposed_communication, parts.idle) == pytest.approx((1e-4, 5e-5, 5e-5))
    assert any("no thread of a host" in note for note in graph.notes)
    assert any("no calls" in note for note in graph.notes)


def halves(event):
    """The event as one that begins and one that ends."""
    begin = {**event, "ph": "B"}
    end = {key: event[key] for key in ("name", "pid", "tid")} | {"ph": "E", "ts": event["ts"] + event["dur"]}
    return [begin, end]


def without_category(event):
    return {key: value for key, value in event.items() if key != "cat"}


@pytest.mark.parametrize("how", ["halves", "no category"])
def test_spans_in_two_halves_and_without_a_category_are_the_same_spans(tmp_path, how):
    r = two_streams()
    whole = r.graph(tmp_path)
    r.events = [
        each for event in r.events for each in (halves(event) if how == "halves" else [without_category(event)])
    ]
    r.events.sort(key=lambda event: (event["ts"], event["ph"] == "B", -event.get("dur", 0)))
    again = r.graph(tmp_path)
    assert [(op.name, op.kind, op.start, op.end) for op in again.trace.ops] == [
        (op.name, op.kind, op.start, op.end) for op in whole.trace.ops
    ]
    assert [step.replayed for step in replay_graphs([again]).steps] == pytest.approx([400e-6])
    assert any("without a category" in note for note in again.notes) == (how == "no category")


@pytest.mark.parametrize(
    "names", [("urEnqueueKernelLaunch", "urQueueFinish"), ("aclrtLaunchKernel", "aclrtSynchronizeDevice")]
)
def test_calls_of_other_accelerators_launch_and_wait(tmp_path, names):
    r = Recorder().step(0, 0, 200)
    r.call(names[0], 10, 5).device("gemm_kernel", 7, 20, 100)
    r.call(names[1], 20, 105)
    for event in r.events:
        if event["cat"] == "cuda_runtime":
            event["cat"] = "xpu_runtime"
    graph = r.graph(tmp_path)
    assert graph.launching_calls == [0]
    slower = with_op_timings(graph, lambda _, work: work._replace(seconds=2 * work.seconds))
    assert replay_graphs([slower]).step_seconds == pytest.approx(300e-6)
