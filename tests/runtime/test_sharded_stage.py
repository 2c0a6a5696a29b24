"""What a stage derives from its layout alone, without process groups."""

import pytest
import torch

from planner.plan.plan_file import Layout
from planner.runtime.measure.step_clock import StepClock
from planner.runtime.state.sharded_stage import ShardedStage
from planner.specs.base import Layers, Ranks, with_fields
from planner.specs.layers.components import Experts
from tests.meshes import meshed
from tests.runtime.training_worlds import DECODER

MOE = with_fields(DECODER, moe=Experts(experts=8, topk=2, ffn=16, dense_layers=2))


def stage(spec=DECODER, layers=range(4), dtype="float64", feeds=False, zero=1, **mesh):
    stages = (Layers(range(2)), Layers(range(2, 4))) if "pp" in mesh else ()
    layout = Layout(ranks=Ranks(range(4)), **meshed(mesh), stages=stages, zero=zero)
    return ShardedStage(spec, layout, Layers(layers), dtype, StepClock(torch.device("cpu"), rank=0), feeds)


@pytest.mark.parametrize("zero", range(4))
def test_where_nothing_is_sharded_fsdp_has_nothing_to_do(zero):
    assert stage(zero=zero, tp=4).unsharded
    assert stage(layers=range(2), zero=zero, pp=2, tp=2).unsharded
    assert not stage(zero=zero, tp=4, dtype="bf16").unsharded  # cast
    assert stage(zero=zero, dp=2, tp=2).unsharded == (zero == 0)
    assert stage(zero=zero, replica=2, tp=2).unsharded == (zero < 3)  # summed in every micro-batch
    assert stage(MOE, zero=zero, tp=4).unsharded == (zero == 0)  # experts are whole on each rank of a stage
    assert stage(MOE, range(2), zero=zero, pp=2, tp=2).unsharded  # of these layers none has experts


def test_encoders_under_zero_3_are_apart():
    assert stage(zero=3, dp=4, feeds=True).task_gathered
    assert not stage(zero=3, dp=4).task_gathered and not stage(zero=2, dp=4, feeds=True).task_gathered


def test_what_was_gathered_is_let_go_of_when_the_last_forward_ends():
    """Of two micro-batches whose forwards overlap."""
    one, released = stage(zero=3, dp=4, feeds=True), []
    one.reshard = lambda: released.append(one.open_forwards)
    one.begin_forward()
    one.begin_forward()
    released.clear()  # a gather lets go of what there was, as on other ranks
    one.end_forward()
    assert released == []
    one.end_forward()
    assert released == [0]
