"""Gradients of replicated parameters are summed in place, the small ones in one all-reduce."""

import pytest
import torch
import torch.distributed as dist

from planner.launch.communication.communication_meter import CommunicationMeter
from planner.launch.processes import launch
from planner.launch.worker import joined_world
from planner.plan.plan_file import Layout
from planner.runtime.state.replicated_gradients import (
    LARGE_BYTES,
    embedding_head_ranks,
    sum_over_group,
    ties_across_stages,
)
from planner.specs.base import Layers, Ranks
from planner.specs.layers import Decoder
from tests.meshes import meshed

TIED = Decoder(layers=4, hidden=8, heads=4, ffn=8, vocab=8, tied=True)
SHAPES = [(3, 2), (0, 5), (LARGE_BYTES // 4 + 1,), (4,)]  # float32


def body(worker):
    with joined_world(worker, timeout_s=60):
        own = [torch.full(shape, float(10**worker.rank)) for shape in SHAPES]
        meter, group = CommunicationMeter(), dist.group.WORLD
        sum_over_group(own, group, meter)
        sum_over_group([own[1]], group, meter)  # nothing to send
        return [x.unique().tolist() for x in own], meter.calls, meter.bytes


@pytest.mark.slow
def test_every_rank_has_the_sums():
    numbers = sum(torch.Size(shape).numel() for shape in SHAPES)
    assert launch(body, 2) == [([[11.0], [], [11.0], [11.0]], 2, 4 * numbers)] * 2


def layout(**mesh):
    stages = tuple(Layers(range(2 * s, 2 * s + 2)) for s in range(mesh.get("pp", 1))) if mesh.get("pp", 1) > 1 else ()
    return Layout(ranks=Ranks(range(8)), **meshed(mesh), stages=stages)


def test_ends_of_a_pipeline_that_share_a_table():
    assert ties_across_stages(TIED, layout(pp=2, dp=4))
    assert not ties_across_stages(TIED, layout(dp=8))
    assert [tuple(embedding_head_ranks(layout(pp=4, tp=2), rank)) for rank in range(8)] == [(0, 6), (1, 7)] * 4
    assert [tuple(embedding_head_ranks(layout(dp=2, pp=4), rank)) for rank in range(8)] == [(0, 3)] * 4 + [(4, 7)] * 4
