"""The stack that is measured stands for the mean layer: of one with windows, the squared term has its own share."""

import numpy as np
import pytest

from planner.profiling.measurement import MeasuredSample
from planner.profiling.measurement_grid import STACK_LAYERS
from planner.profiling.profile_assembly import fitted_passes, squared_share, with_squared_share
from planner.specs import library
from planner.specs.layers import Decoder, Vit, layer_kinds
from planner.specs.model import Model

PLAIN = Vit(layers=4, hidden=8, heads=2, ffn=8, patch=2, out=8)
SQUARED, LINEAR = 3e-9, 2e-6  # seconds of a layer with full attention; of one with a window the linear part alone


def test_without_windows_it_is_the_first_layers():
    for spec in (PLAIN, Decoder(layers=4, hidden=8, heads=2, ffn=8, vocab=8)):
        stack = spec.short_stack(STACK_LAYERS)
        assert (layer_kinds(stack), squared_share(spec, STACK_LAYERS)) == (layer_kinds(spec)[:STACK_LAYERS], 1.0)


@pytest.mark.parametrize("name", ["qwen2.5-vl-7b", "qwen2.5-vl-72b", "qwen2.5-omni-7b"])
def test_seconds_of_the_whole_tower_come_back(name):
    """Samples of a stack of known seconds give the sum over all of the module's layers."""
    vision = library.read_named(name, Model)[0].modules["vision"]
    stack = vision.short_stack(STACK_LAYERS)

    def seconds(spec, sizes):
        squared = sum(spec.window_of(layer) is None for layer in range(spec.layers)) * SQUARED
        return squared * sum(s * s for s in sizes) + LINEAR * spec.layers * sum(sizes)

    samples = [
        MeasuredSample("here", "layer", sizes, 0, (seconds(stack, sizes), 2 * seconds(stack, sizes)))
        for sizes in ((256,), (1024,), (4096,), (64, 64, 256), (1024, 256))
    ]
    costs = with_squared_share(
        fitted_passes(samples, STACK_LAYERS, 0.0, asynchronous=False)[0], squared_share(vision, STACK_LAYERS)
    )
    for sizes in ((6256,), (1564, 400)):
        fit = costs.forward
        found = fit.ms_per_token2 * np.sum(np.square(sizes)) + fit.ms_per_token * sum(sizes) + fit.ms
        assert vision.layers * found / 1e3 == pytest.approx(seconds(vision, sizes), rel=2e-3)
