"""What-ifs of small traces are known exactly; those that cannot be answered are errors."""

import pytest

from planner.errors import InputError
from planner.replay import replay_graphs
from planner.replay.whatif import parse_changes, predict_changes
from planner.replay.whatif.graph_change import WhatIfOptions
from planner.replay.whatif.more_layers import find_layers
from planner.replay.whatif.pipeline_stages import pipeline_seconds
from tests.replay.handmade_traces import Recorder, two_streams

US = 1e-6


def predicted(graphs, **asked):
    return predict_changes(replay_graphs(graphs), parse_changes(WhatIfOptions(**asked)))


def network(count, world=1, gemm=100, launch=10):
    """So many layers of a gemm and a ReLU, forward and backward, an optimizer and a synchronisation; device-bound."""
    r, host, device = Recorder(0, world), 10, 30
    kernels = [("embedding_kernel", 20)]
    kernels += [("sgemm", gemm), ("relu_elementwise_kernel", 10)] * count
    kernels += [("loss_reduce_kernel", 30)]
    kernels += [("relu_backward_elementwise_kernel", 10), ("dgrad_gemm", gemm), ("wgrad_gemm", gemm)] * count
    kernels += [("multi_tensor_apply_adam", 12.5 * count)]
    for name, lasts in kernels:
        device = max(device, host + launch)
        r.launch(name, host, launch, 7, device, lasts)
        host, device = host + launch, device + lasts
    r.call("cudaDeviceSynchronize", host, device - host + 5)
    return r.step(0, 0, max(device, host) + 10)


def test_a_kind_of_work_scales(tmp_path):
    graph = two_streams().graph(tmp_path)
    found = predicted([graph], scale=("gemm=0.5",))
    assert found.replayed_seconds == pytest.approx(400 * US)
    assert found.step_seconds == pytest.approx(350 * US)
    assert found.speedup == pytest.approx(400 / 350)
    assert predicted([graph], scale=("^sgemm=0.5",)).step_seconds == pytest.approx(350 * US)


def test_changes_add_up_along_one_path(tmp_path):
    graph = two_streams().graph(tmp_path)
    both = predicted([graph], scale=("gemm=0.5",), bandwidth="2x")
    assert both.step_seconds == pytest.approx((400 - 50 - 25) * US)
    assert [said for said, _ in both.assumed] == ["--scale gemm=0.5", "--bandwidth 2x"]


def test_host_work_scales_and_what_it_waits_for_does_not(tmp_path):
    graph = network(4).graph(tmp_path)
    found = predicted([graph], scale=("host=0.1",))
    assert 0.95 * found.replayed_seconds < found.step_seconds < found.replayed_seconds  # the device is critical


@pytest.mark.parametrize("count", [3, 4, 7])
def test_layers_are_found(tmp_path, count):
    graph = network(count).graph(tmp_path)
    assert [region.layers for region in find_layers(graph, graph.steps[0])] == [count, count]


@pytest.mark.parametrize(("had", "asked"), [(4, 8), (4, 6), (6, 3), (3, 9)])
def test_more_layers_take_what_a_model_with_them_takes(tmp_path, had, asked):
    found = predicted([network(had).graph(tmp_path)], settings=(f"layers={asked / had}x",))
    true = replay_graphs([network(asked).graph(tmp_path)]).step_seconds
    assert found.step_seconds == pytest.approx(true, rel=0.005)


def test_width_scales_each_kind_by_its_power(tmp_path):
    graph = network(4).graph(tmp_path)
    found = predicted([graph], settings=("hidden=2x",))
    gemms, others = 4 * 3 * 100, 4 * 2 * 10 + 20 + 30
    assert found.step_seconds == pytest.approx(found.replayed_seconds + (3 * (gemms + 50) + others) * US, rel=1e-3)


@pytest.mark.parametrize(("ranks", "by"), [(1, 0.0), (2, 2 / 3), (4, 1.0), (8, 7 / 6)])
def test_other_data_parallel_degrees_scale_rings(tmp_path, ranks, by):
    r = two_streams()
    r.world = 4
    found = predicted([r.graph(tmp_path)], settings=(f"dp={ranks}",))
    assert found.step_seconds == pytest.approx((400 + 50 * (by - 1)) * US)


@pytest.mark.parametrize(("stages", "micro_batches"), [(1, 1), (1, 5), (2, 1), (2, 8), (4, 4), (4, 12)])
def test_even_stages_take_what_1f1b_takes(stages, micro_batches):
    """(m + p − 1)·(f + b) / p, f and b of one micro-batch through all layers."""
    found = pipeline_seconds(stages, micro_batches, 8, (2.0, 3.0))
    assert found == pytest.approx((micro_batches + stages - 1) * 5.0 / stages)


def test_a_pipeline_leaves_what_is_outside_the_layers(tmp_path):
    graph = network(4).graph(tmp_path)
    found = predicted([graph], settings=("pp=2:4",))
    layers_alone = 4 * (3 * 100 + 2 * 10) * US
    outside = found.replayed_seconds - layers_alone
    assert found.step_seconds == pytest.approx(outside + layers_alone / 4 * (4 + 1) / 2, rel=1e-3)


@pytest.mark.parametrize(
    "asked",
    [
        {"settings": ("layers=2x",)},
        {"settings": ("pp=2",)},
        {"settings": ("dp=4",)},
        {"settings": ("dp=many",)},
        {"settings": ("dp=2", "dp=4")},
        {"settings": ("pp=0",)},
        {"settings": ("pp=2", "pp=4")},
        {"settings": ("depth=2x",)},
        {"settings": ("hidden=0",)},
        {"scale": ("nothing like it=2",)},
    ],
)
def test_what_a_trace_does_not_tell_is_refused(tmp_path, asked):
    with pytest.raises(InputError) as refused:
        predicted([two_streams().graph(tmp_path)], **asked)
    assert refused.value.fix


def test_more_stages_than_layers_are_refused(tmp_path):
    with pytest.raises(InputError, match="stages"):
        predicted([network(3).graph(tmp_path)], settings=("pp=4",))


def host_network(layers, micro_batches=1, hidden=1, batch=1):
    """A host that does all the work: micro-batches of so many layers, forward and backward, then the optimizer."""
    calling, gemm, gelu, update = 5, 200 * hidden**2 * batch, 40 * hidden * batch, 90 * hidden**2
    r = Recorder()
    for step in range(3):
        t = begin = 10 + step * 100_000
        for _ in range(micro_batches):
            for name in ("aten::linear", "aten::gelu") * layers + ("aten::sum",):
                own = calling + {"aten::linear": gemm, "aten::gelu": gelu}.get(name, 0)
                r.op(name, t, own)
                t += own
            for name in ("AddmmBackward0", "GeluBackward0") * layers:
                own = calling + (gemm if name == "AddmmBackward0" else gelu)
                r.op(f"autograd::engine::evaluate_function: {name}", t, own)
                r.op("aten::mm" if name == "AddmmBackward0" else "aten::gelu_backward", t, own)
                t += own
        r.span("user_annotation", "Optimizer.step#AdamW.step", t, layers * (calling + update))
        for _ in range(layers):
            r.op("aten::_fused_adamw_", t, calling + update)
            t += calling + update
        r.step(step, begin, t - begin)
    return r


@pytest.mark.parametrize("micro_batches", [1, 2, 3])
def test_layers_are_found_within_micro_batches(tmp_path, micro_batches):
    graph = host_network(4, micro_batches).graph(tmp_path)
    assert [region.layers for region in find_layers(graph, graph.steps[1])] == [4] * 2 * micro_batches
    found = predicted([graph], settings=("layers=2x",))
    other = predicted([host_network(8, micro_batches).graph(tmp_path)], settings=("layers=1x",))
    assert found.step_seconds == pytest.approx(other.replayed_seconds, rel=1e-3)


@pytest.mark.parametrize(("setting", "more"), [("hidden=2x", {"hidden": 2}), ("batch=3x", {"batch": 3})])
def test_operators_of_a_host_without_a_device_are_scaled(tmp_path, setting, more):
    found = predicted([host_network(4, 2).graph(tmp_path)], settings=(setting,))
    other = predicted([host_network(4, 2, **more).graph(tmp_path)], settings=("layers=1x",))
    assert found.step_seconds == pytest.approx(other.replayed_seconds, rel=1e-3)
