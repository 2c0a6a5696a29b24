"""Layers with only some blocks are priced by those they have, in the closed form as in prices of tasks."""

from dataclasses import replace

import pytest

from planner.costs.compute.layer_work import layer_work
from planner.costs.layout_columns import LayoutColumns
from planner.costs.memory.footprint import token_bytes
from planner.costs.network.layer_traffic import layer_groups
from planner.costs.rate_lines import mean_layer_line
from planner.costs.step.stage_seconds import mean_layer_seconds
from planner.specs.framework.memory_coefficients import MemoryCoefficients
from planner.specs.layers import Decoder, TextEncoder
from planner.specs.layers.components import StateSpace
from planner.specs.shapes import step_flops
from tests.costs.machines import shipped

SHAPE = {"layers": 4, "hidden": 4096, "heads": 32, "ffn": 16384, "vocab": 32000}
APART = Decoder(**SHAPE, pattern="* - *- -")
READER = Decoder(**SHAPE, cross=1024, pattern="*- X- *- X-")
HYBRID = Decoder(**SHAPE, pattern="M - M *", state_space=StateSpace(heads=128, head_dim=64, state=128, groups=8))


@pytest.mark.parametrize(
    ("module", "spread"),
    [(APART, {"cp": 4, "ulysses": 4}), (APART, {"cp": 4}), (APART, {"tp": 4}), (HYBRID, {"tp": 4}), (HYBRID, {})],
    ids=str,
)
def test_closed_form_and_lines_agree(module, spread):
    """What ranks send around attention counts where there is some, and layers without any need none."""
    at, machine = LayoutColumns(ranks=4, seq=4096.0, batch=4, **spread), shipped()
    whole = mean_layer_seconds(module, at, machine)
    for forward, one in ((True, whole.forward), (False, whole.backward)):
        line = mean_layer_line(module, at, machine, layer_groups(at, machine.network.per_node), forward)
        assert line.seconds((4096,)) == pytest.approx(float(one.seconds), rel=2e-3)


READING = {"cross_reads": 3.0, "cross_pairs": 2.5, "readers": 0.4}


@pytest.mark.parametrize("spread", [{}, {"tp": 4}], ids=str)
def test_closed_form_and_lines_agree_where_some_layers_read(spread):
    at, machine = LayoutColumns(ranks=4, seq=4096.0, batch=4, **READING, **spread), shipped()
    whole = mean_layer_seconds(READER, at, machine)
    for forward, one in ((True, whole.forward), (False, whole.backward)):
        line = mean_layer_line(READER, at, machine, layer_groups(at, machine.network.per_node), forward)
        assert line.seconds((4096,)) == pytest.approx(float(one.seconds), rel=2e-3)


def test_work_and_bytes_are_of_the_tokens_that_read_something():
    """Layers of cross attention alone: in proportion to these tokens, and nothing without any."""
    kind, whole = "cross_attention+mlp", LayoutColumns(ranks=1, seq=4096.0, batch=1, cross_reads=3.0, cross_pairs=3.0)
    part = replace(whole, cross_reads=0.75, cross_pairs=0.75, readers=0.25)
    every, some = (layer_work(READER, kind, at) for at in (whole, part))
    none = layer_work(READER, kind, replace(whole, cross_reads=0.0, cross_pairs=0.0, readers=0.0))
    for one, other in zip(every.matmuls, some.matmuls, strict=True):
        assert other.flops == pytest.approx(one.flops / 4)
    assert some.cross_attention.flops == pytest.approx(every.cross_attention.flops / 4)
    assert some.memory_bytes == pytest.approx(every.memory_bytes / 4)
    assert sum(each.flops for each in none.matmuls) == none.memory_bytes == none.cross_attention.flops == 0.0
    kept = [token_bytes(READER, kind, at, MemoryCoefficients()) for at in (whole, part)]
    for one, other in zip(*kept, strict=True):
        assert other == pytest.approx(one / 4)


def test_flops_of_items_that_read_nothing_are_those_without_the_layers_that_only_read():
    plain, own = Decoder(**{**SHAPE, "layers": 2}), (64, 128)
    read = (512, 0)
    each = [step_flops(READER, (tokens,), (outputs,)) for tokens, outputs in zip(own, read, strict=True)]
    assert step_flops(READER, own, read) == pytest.approx(sum(each), rel=1e-12)
    assert each[1] == pytest.approx(step_flops(plain, own[1:]), rel=1e-12)
    projected = 2 * (2 * 4096 * 4096 * 64 + 2 * 4096 * 1024 * 512)
    pairs = 2 * (4096 + 4096) * 64 * 512
    rest = 2 * 64 * (3 * 4096 * 16384 + 2 * 4096)  # the MLP, and two norms, as every parameter counts
    assert each[0] - step_flops(plain, own[:1]) == pytest.approx(3 * 2 * (projected + pairs + rest), rel=1e-9)


def test_flops_of_cross_attention_are_of_what_is_read():
    """An encoder's and a decoder's FLOPs; of cross attention, pairs, and keys and values of what is read."""
    plain, reader = Decoder(**SHAPE), Decoder(**SHAPE, cross=1024)
    assert TextEncoder(**SHAPE, max_positions=512).feature_width == 4096
    own, read = (64, 128), (512, 256)
    more = step_flops(reader, own, read) - step_flops(plain, own)
    norms = 2 * 4096 * sum(own)  # of weights, as every parameter counts
    projected = 2 * 4096 * (4096 + 4096) * sum(own) + 2 * (2 * 1024 * 4096) * sum(read)
    pairs = 2 * (4096 + 4096) * (64 * 512 + 128 * 256)
    assert more == pytest.approx(3 * 4 * (norms + projected + pairs), rel=1e-9)
