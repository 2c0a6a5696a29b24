"""What a stage derives from its layout alone, without process groups."""

import pytest
import torch

from planner.plan.model import Layout
from planner.runtime.clock import Clock
from planner.runtime.stage import Stage
from planner.specs.base import Layers, Ranks, changed
from planner.specs.parts import Experts
from tests.meshes import meshed
from tests.runtime.worlds import DECODER

MOE = changed(DECODER, moe=Experts(experts=8, topk=2, ffn=16, dense_layers=2))


def stage(spec=DECODER, layers=range(4), dtype="float64", feeds=False, zero=1, **mesh):
    stages = (Layers(range(2)), Layers(range(2, 4))) if "pp" in mesh else ()
    layout = Layout(ranks=Ranks(range(4)), **meshed(mesh), stages=stages, zero=zero)
    return Stage(spec, layout, Layers(layers), dtype, Clock(torch.device("cpu"), rank=0), feeds)


@pytest.mark.parametrize("zero", range(4))
def test_without_others_that_have_its_states_fsdp_has_nothing_to_do(zero):
    assert stage(zero=zero, tp=4).alone
    assert stage(layers=range(2), zero=zero, pp=2, tp=2).alone
    assert not stage(zero=zero, tp=4, dtype="bf16").alone  # cast
    assert not stage(zero=zero, dp=2, tp=2).alone
    assert not stage(zero=zero, replica=2, tp=2).alone
    assert not stage(MOE, zero=zero, tp=4).alone  # experts are whole on each rank of a stage
    assert stage(MOE, range(2), zero=zero, pp=2, tp=2).alone  # of these layers none has experts


def test_encoders_under_zero_3_are_apart():
    assert stage(zero=3, dp=4, feeds=True).apart and stage(zero=3, dp=4, feeds=True).network.feeds
    assert not stage(zero=3, dp=4).apart and not stage(zero=2, dp=4, feeds=True).apart


def test_what_was_gathered_is_let_go_of_when_the_last_forward_ends():
    """Of two micro-batches whose forwards overlap."""
    one, released = stage(zero=3, dp=4, feeds=True), []
    one.release = lambda: released.append(one.open)
    one.begin()
    one.begin()
    released.clear()  # a gather lets go of what there was, as on other ranks
    one.end()
    assert released == []
    one.end()
    assert released == [0]
