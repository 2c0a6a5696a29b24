"""The whole stack on one rank: FSDP2, Ulysses of degree one, bfloat16; on the CPU and, where there is one, on a GPU."""

import math

import pytest
import torch
import torch.distributed as dist
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from planner.launch.communication.collectives import COLLECTIVES, time_collective
from planner.launch.communication.communication_meter import CommunicationMeter
from planner.launch.communication.ulysses import UlyssesAttention
from planner.launch.processes import launch
from planner.launch.worker import joined_world
from planner.models.build import build, init_weights
from planner.models.inputs.training_items import synthetic_batch
from planner.specs.layers import Decoder

SPEC = Decoder(layers=2, hidden=64, heads=4, kv_heads=2, ffn=96, vocab=80)


def step(worker):
    """Loss and gradient norm of one batch, calls, bytes and seconds of its all-to-alls, seconds of each collective."""
    with joined_world(worker, timeout_s=60):
        model = build(SPEC, device=torch.device("meta"))
        policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32, cast_forward_inputs=False)
        for unit in [*model.layers.values(), model]:
            fully_shard(unit, mp_policy=policy)
            unit.set_force_sum_reduction_for_comms(True)
            unit.set_gradient_divide_factor(1.0)
        model.to_empty(device=worker.device)
        init_weights(model, 0)
        meter, world = CommunicationMeter(), dist.group.WORLD
        exchange = UlyssesAttention(world, (24,), meter)
        loss = model(synthetic_batch(SPEC, [(0, 16), (1, 8)], 0, sequence_parallel=exchange, device=worker.device)) / 24
        loss.backward()
        norm = torch.stack([parameter.grad.full_tensor().norm() for parameter in model.parameters()]).norm()
        times = [time_collective(name, world, 4096, worker.device) for name in COLLECTIVES if name != "p2p"]
        return loss.item(), norm.item(), meter.calls, meter.bytes, meter.seconds, times


@pytest.mark.parametrize("kind", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_one_step(kind):
    ((loss, norm, calls, sent, seconds, times),) = launch(step, 1, kind=kind)
    assert 0.5 * math.log(SPEC.vocab) < loss < 2 * math.log(SPEC.vocab)
    assert math.isfinite(norm) and norm > 0
    assert (calls, sent) == (4 * SPEC.layers, 0)
    assert 0 < seconds < 10
    assert all(min(series) > 0 for series in times)
