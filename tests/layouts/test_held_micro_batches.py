"""What some rank of a pipeline holds, whatever the assignment: no more than the schedules themselves show, where
replicas have nothing in any of the micro-batches of others.
"""

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.costs import LayoutColumns
from planner.costs.memory.pipeline_activations import in_flight
from planner.layouts.held_micro_batches import held_micro_batches, kept_share
from planner.layouts.layout_fields import TrainingSetup
from planner.layouts.layout_space import micro_batch_sizes
from planner.plan.mesh.even_stages import even_stages
from planner.plan.schedules import schedule_slots
from planner.plan.schedules.zero_bubble import KEPT_FOR_WEIGHTS
from planner.specs.layers import Decoder
from tests.examples import examples

MODULE = Decoder(layers=2, hidden=8, heads=2, ffn=8, vocab=8)


def spread(random: Random, tokens: list[int], replicas: int) -> list[list[int]]:
    """By replica, the tokens of its micro-batches, of any samples each; 0 where only others have some."""
    cells: list[list[list[int]]] = [[[] for _ in range(random.randrange(1, len(tokens) + 1))] for _ in range(replicas)]
    for size in tokens:
        random.choice(random.choice(cells)).append(size)
    return [[sum(cell) for cell in of_replica] for of_replica in cells]


def most_held(schedule: str, pp: int, vpp: int, cells: list[int], stage: int, backward: float) -> float:
    """Tokens that a stage holds before any of its backwards, and a share of the tokens of that backward."""
    count = -(-len(cells) // pp) * pp if vpp > 1 else len(cells)
    sizes, now, most = [*cells, *[0] * (count - len(cells))], 0.0, 0.0
    for phase, number, _ in schedule_slots(schedule, pp, count, vpp)[stage]:
        own = sizes[number] / vpp
        if phase in ("B", "I"):
            most = max(most, now + backward * sizes[number])
        now += {"F": own, "B": -own, "I": (KEPT_FOR_WEIGHTS - 1.0) * own, "W": -KEPT_FOR_WEIGHTS * own}[phase]
    return max(most, now)


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe", "interleaved", "zb_h1", "zb_h2"])
@given(st.integers(0, 10**6))
@examples(200)
def test_some_rank_holds_as_much(schedule, seed):
    random = Random(seed)
    pp, vpp = (
        random.randrange(1 if schedule == "1f1b" else 2, 6),
        random.randrange(2, 5) if schedule == "interleaved" else 1,
    )
    replicas, backward = random.randrange(1, 4), random.choice([0.0, 0.2, 3.0])
    tokens = [random.choice([1, 1, 10, 50, 100]) for _ in range(random.randrange(1, 24))]
    cells = spread(random, tokens, replicas)
    trained = TrainingSetup(MODULE, pp * replicas, tuple(tokens), any_assignment=True)
    in_mean = len(tokens) / sum(size > 0 for of_replica in cells for size in of_replica)
    able = [size for size in micro_batch_sizes(trained, 1, len(tokens)) if size >= in_mean]
    at = LayoutColumns(
        ranks=pp * replicas, seq=trained.mean_tokens, batch=trained.mean_sequences, pp=pp, vpp=vpp, schedule=schedule,
        micro_batch=np.array([able[0] * trained.mean_share]),
    )  # fmt: skip
    _, held = held_micro_batches(trained, at)
    for stage in range(pp):
        claimed = held.micro_batch * held.seq * (in_flight(held, stage) + backward * (schedule != "gpipe"))
        real = max(most_held(schedule, pp, vpp, of_replica, stage, backward) for of_replica in cells)
        assert claimed <= real * (1 + 1e-9)


@given(st.integers(1, 8), st.integers(1, 5), st.integers(0, 30))
@examples(100)
def test_a_stage_keeps_a_micro_batch_while_others_have_it(pp, vpp, more):
    """Layers that take as long each, forward and backward, one after another: by each layer's own time on the way."""
    module = Decoder(layers=pp * vpp + more, hidden=8, heads=2, ffn=8, vocab=8)
    chunks = even_stages(module.layers, pp * vpp) or (range(module.layers),)
    at = LayoutColumns(ranks=pp, seq=1.0, batch=1.0, pp=pp, vpp=vpp)
    for stage in range(pp):
        own = [layers for number, layers in enumerate(chunks) if number % pp == stage]
        kept = sum(len(layers) * (module.layers - layers[0]) / module.layers for layers in own)
        share = float(kept_share(module, at, stage))
        assert 0.0 < share <= kept / sum(map(len, own)) + 1e-9
        assert stage or share == kept_share(module, at, -pp)
    assert vpp > 1 or kept_share(module, at, 0) == 1.0
