"""Layers with only some blocks are priced by those they have, in the closed form as in prices of tasks."""

import pytest

from planner.costs.layout_columns import LayoutColumns
from planner.costs.network.layer_traffic import layer_groups
from planner.costs.rate_lines import mean_layer_line
from planner.costs.step.stage_seconds import mean_layer_seconds
from planner.specs.layers import Decoder, TextEncoder
from planner.specs.layers.components import StateSpace
from planner.specs.shapes import step_flops
from tests.costs.machines import shipped

SHAPE = {"layers": 4, "hidden": 4096, "heads": 32, "ffn": 16384, "vocab": 32000}
APART = Decoder(**SHAPE, pattern="* - *- -")
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
