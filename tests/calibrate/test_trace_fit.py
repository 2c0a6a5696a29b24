"""Rates are read back from recordings of operators that take exactly what rates say."""

import json

import numpy as np
import pytest

from planner.calibrate.trace_fit import calibrate_traces, fit_rest, recorded_step
from planner.errors import InputError
from planner.replay import ShapedOperator
from planner.specs import library
from planner.specs.hardware.profile import Profile
from planner.workflows.replaying import replay_traces

PEAK, SHARE, N0, BANDWIDTH, LAUNCH = 80e9, 0.9, 24.0, 5e9, 3e-6
SHARES = (0.3, 0.4)
LATENCY, LINK = 200e-6, 2e9


def operators():
    """Names, shapes and seconds of the operators of a step."""
    for hidden in (64, 128, 256):
        for m, n, k in ((512, hidden, hidden), (512, 3 * hidden, hidden), (hidden, hidden, 512)):
            yield "aten::mm", [[m, k], [k, n]], 2 * m * (n + N0) * k / (SHARE * PEAK)
        for moved in (512 * hidden, 2048 * hidden):
            yield "aten::mul", [[moved], [moved]], 12 * moved / BANDWIDTH + LAUNCH
        yield "aten::add_", [[1]], LAUNCH
        work = 4 * 8 * 16 * 256**2 / 2
        q = [[1, 8, 256, 16]] * 3
        yield "aten::_scaled_dot_product_flash_attention_for_cpu", q, work / (SHARES[0] * PEAK)
        yield "aten::_scaled_dot_product_flash_attention_for_cpu_backward", q, 2.5 * work / (SHARES[1] * PEAK)
    yield "aten::mm", [[1024, 1024], [1024, 1024]], 2 * 1024**3 / PEAK


def trace(rank, shapes=True):
    events, now = [], 1000.0
    for step in range(3):
        begin = now
        for number, (name, dims, seconds) in enumerate(operators()):
            args = {"External id": number, "Input Dims": dims, "Input type": ["float"] * len(dims)}
            args["Concrete Inputs"] = ["", "True"]
            events.append({"cat": "cpu_op", "name": name, "tid": 1, "ts": now, "dur": seconds * 1e6, "args": args})
            now += seconds * 1e6
        for elements in (1000, 250_000):
            taken = (LATENCY + 4 * elements / LINK) * 1e6
            args = {"Input Dims": [[[elements]]], "Input type": ["TensorList"]}
            events.append({"cat": "cpu_op", "name": "c10d::allreduce_", "tid": 1, "ts": now, "dur": 5, "args": args})
            args = {"Input Dims": [[elements]], "Input type": ["float"]}
            name = "gloo:all_reduce"
            events.append({"cat": "user_annotation", "name": name, "tid": 2, "ts": now + 5, "dur": taken, "args": args})
            now += taken + 10
        name, length = f"ProfilerStep#{step}", now - begin
        events.append({"cat": "user_annotation", "name": name, "tid": 1, "ts": begin, "dur": length, "args": {}})
    for event in events:
        event |= {"ph": "X", "pid": 1}
        if not shapes:
            event["args"] = {}
    return {"traceEvents": events, "distributedInfo": {"rank": rank, "world_size": 2}}


def recorded(tmp_path, shapes=True):
    for rank in range(2):
        (tmp_path / f"rank-{rank}.json").write_text(json.dumps(trace(rank, shapes)))
    return [tmp_path / f"rank-{rank}.json" for rank in range(2)]


def fitted(paths, of_plan=(None, None)):
    base, _ = library.read_named("cpu", Profile)
    return calibrate_traces(paths, replay_traces(paths).replay, base, "2026-01-01", of_plan)


def test_rates_are_read_back(tmp_path):
    made = fitted(recorded(tmp_path))
    profile, rates = made.profile, made.profile.rates
    assert (rates.source, profile.provenance.date) == ("measured", "2026-01-01")
    peak = profile.device.tflops["float32"] * 1e12
    assert peak == pytest.approx(PEAK, rel=1e-3)
    curve = rates.gemm["float32"]
    m, n, k = np.array([[512, 192, 64], [512, 768, 256], [128, 128, 512]]).T
    predicted = 2 * (m + curve.m0) * (n + curve.n0) * (k + curve.k0) / (curve.share * peak) + curve.launch_us * 1e-6
    assert predicted == pytest.approx(2 * m * (n + N0) * k / (SHARE * PEAK), rel=0.03)
    of_attention = rates.attention["16"]
    assert (of_attention.share, of_attention.backward_share) == pytest.approx(SHARES, rel=1e-2)
    assert profile.device.memory_gb_per_s * rates.memory_share == pytest.approx(BANDWIDTH / 1e9, rel=0.15)
    (point,) = profile.collectives["all_reduce"].points
    assert (point.ranks, point.latency_us) == (2, pytest.approx(LATENCY * 1e6, rel=0.02))
    assert point.gb_per_s == pytest.approx(LINK / 1e9, rel=0.02)


def test_without_shapes_nothing_can_be_fitted(tmp_path):
    with pytest.raises(InputError, match="no shapes of operators") as raised:
        fitted(recorded(tmp_path, shapes=False))
    assert "record_shapes=True" in raised.value.fix


def test_a_step_of_a_run_is_from_its_first_task_to_its_last(tmp_path):
    paths = recorded(tmp_path)
    content = json.loads(paths[0].read_text())
    marks = [each for each in content["traceEvents"] if each["name"].startswith("ProfilerStep")]
    for mark in marks:
        task = {**mark, "name": "task:llm[0-3]/F/0/dp0", "ts": mark["ts"] + 100, "dur": mark["dur"] - 300}
        content["traceEvents"].append(task)
    paths[0].write_text(json.dumps(content))
    replay = replay_traces(paths[:1]).replay
    assert recorded_step(replay) == pytest.approx(replay.measured_step_seconds - 300e-6, rel=1e-4)


@pytest.mark.parametrize("moved", [(), (64,), (64, 64, 64)])
def test_operators_that_move_alike_say_no_bandwidth(moved):
    alike = [ShapedOperator("aten::add", ((4, 4),), "float", size, False, 1e-5) for size in moved]
    with pytest.raises(InputError, match="no two operators") as raised:
        fit_rest(alike, library.read_named("cpu", Profile)[0].device, "trace.json")
    assert raised.value.where == "--from-trace" and raised.value.fix
