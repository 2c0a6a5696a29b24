"""A flipped bit on one rank is found, and the rank named."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import RunFailed
from planner.launch.processes import launch
from planner.launch.worker import joined_world
from planner.plan.tasks.expand import expand
from planner.runtime import RunOptions
from planner.runtime.execute.training_loop import prepare_executor
from planner.runtime.health.replica_digests import checksum, first_difference, require_equal_replicas
from planner.runtime.preflight.preflight_checks import require_runnable
from planner.specs.base import Ranks
from tests.runtime.training_worlds import spread

PLANS = {  # replicas of all states; of shards; of what tp does not split
    "replicas": spread(4, dp=4, zero=0, rows=[[(0,), (1,), (2,), (3,)]]),
    "replicas of shards": spread(4, dp=2, replica=2, zero=3, rows=[[(0,), (1,), (2,), (3,)]]),
    "tensor parallel": spread(4, tp=4, zero=0),
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@given(st.data())
def test_any_flipped_bit_changes_the_checksum(dtype, data):
    values = torch.randn(37, generator=torch.Generator().manual_seed(1)).to(dtype)
    before = checksum(values)
    raw = values.view(torch.uint8)
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    assert checksum(values) != before


def test_who_differs_from_most_is_odd_and_of_two_nobody_knows():
    group, names = Ranks((1, 3, 5)), ["a", "b", "c"]
    sums = torch.tensor([[1, 2, 3], [1, 2, 3], [1, 2, 3]])
    assert first_difference(group, names, sums) is None
    sums[1, 2] = 7
    found = first_difference(group, names, sums)
    assert (found.odd, found.name) == (Ranks((3,)), "c")
    pair = first_difference(Ranks((0, 1)), names, sums[:2])
    assert pair.odd == Ranks((0, 1))


def trained_and_flipped(worker, plan, flipped):
    """Two steps, with a comparison behind each, and before the second one a bit that is flipped on a rank."""
    with joined_world(worker, timeout_s=60):
        executor = prepare_executor(worker, plan, RunOptions())
        executor.step(expand(plan))
        require_equal_replicas(executor, 1)
        if worker.rank == flipped:
            shard = executor.local.stages["llm"][0].shards["layers.1.attention_norm.weight"]
            state = executor.optimizers["llm"].state[shard]["exp_avg"]
            local = state.to_local() if hasattr(state, "to_local") else state
            local.view(torch.int64)[0] ^= 1
        require_equal_replicas(executor, 2)
        return True


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANS)
@pytest.mark.every(2)
def test_the_odd_rank_is_named(name):
    require_runnable(PLANS[name], RunOptions())
    assert launch(trained_and_flipped, 4, PLANS[name], None) == [True] * 4
    with pytest.raises(RunFailed, match="replicas are not equal after step 2") as raised:
        launch(trained_and_flipped, 4, PLANS[name], 2)
    assert "attention_norm.weight (exp_avg)" in raised.value.message
    of_pair = "ranks 0,2 differ" if name == "replicas of shards" else "of ranks 0-3, 2 differ from the others"
    assert of_pair in raised.value.message
