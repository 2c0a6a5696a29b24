"""What a plan has for each part of a GPU's memory, and which step of a run stands beside it."""

from dataclasses import replace

import pytest

from planner.ledger.compared_run import fullest_rank, memory_uses, peak_memory_use, predicted_memory
from planner.runtime import RankMemory
from planner.scoring.score import score
from planner.units import GIB
from tests.replica_plans import replicas
from tests.scoring.priced import priced

PLAN = priced(replicas([[0, 1], [2, 0]], pp=2))
SCORE = score(PLAN)


def test_a_prediction_is_made_of_what_the_plan_is_judged_by():
    (device,) = PLAN.uses.devices.values()
    share = SCORE.plan_memory.accounting(0).fragmentation
    for rank, memory in enumerate(predicted_memory(PLAN, SCORE)):
        states = float(SCORE.plan_memory.static_footprint(rank).states)
        assert memory.passes * (1 + share) + memory.outside == pytest.approx(SCORE.memory.peaks[rank])
        assert 0 < memory.held < states < memory.passes
        assert memory.held < memory.update
        assert memory.reserved == pytest.approx(memory.peak * (1 + share))
        assert memory.outside == device.reserved_gib * GIB


def test_parts_add_up_to_what_torch_counts():
    memory = RankMemory(held=10, passes=25, update=30, reserved=36, outside=5)
    one, *_ = peak_memory_use(PLAN, [([memory] * PLAN.size, None)])
    held, passes, update, most, reserved, outside = (part.measured for part in memory_uses(one))
    assert held + max(passes, update) == most and most + reserved == memory.reserved
    assert (held + passes, held + update, outside) == (memory.passes, memory.update, memory.outside)
    assert {part.predicted for part in memory_uses(one)} == {None}


def test_every_rank_stands_in_the_step_in_which_it_held_most():
    steps = [[RankMemory(1, 10 + (rank + step) % 3, 5, 20, 0) for rank in range(PLAN.size)] for step in range(3)]
    ranks = peak_memory_use(PLAN, [(steps[0], SCORE), ((), SCORE), (steps[1], None), (steps[2], SCORE)])
    assert [one.rank for one in ranks] == [*range(PLAN.size)]
    for one in ranks:
        assert one.measured.passes == 12
        assert one.predicted == (
            None if one.rank % 3 == 1 else predicted_memory(PLAN, SCORE)[one.rank]
        )  # of the second step
    least = [replace(one, measured=replace(one.measured, update=one.rank)) for one in ranks]
    most = replace(least[2], measured=replace(least[2].measured, update=99))
    assert fullest_rank([*least[:2], most, *least[3:]]) is most


def test_nothing_counted_is_nothing_said():
    assert peak_memory_use(PLAN, [((), SCORE), ((), None)]) == () == peak_memory_use(PLAN, [])
