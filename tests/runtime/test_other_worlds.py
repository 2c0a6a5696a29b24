"""What four ranks saved is resumed on two and three, under other layouts: losses and states are those of the four."""

from functools import partial

import pytest

from planner.launch.processes import launch
from planner.launch.worker import joined_world
from tests.examples import thorough
from tests.runtime.test_resuming import (
    CUT,
    FOUR,
    HALF,
    MOE,
    OPTIONS,
    SEEING_APART,
    TOGETHER,
    require_same_losses,
    require_same_states,
    run,
    told,
    two_steps,
)
from tests.runtime.training_worlds import choose_warm_up, spread

pytestmark = pytest.mark.slow

ALL, LOW, HIGH = (0, 1, 2, 3), (0, 1), (2, 3)
SAVED = {
    "shards": two_steps(spread(4, dp=4, zero=3, rows=[[LOW, HIGH]] * 2), 1),
    "experts": two_steps(spread(4, MOE, dp=4, zero=1, ep=2, rows=[[ALL]] * 4), 2),
    "encoders": FOUR["an encoder elsewhere"][0],
}
RESUMED = {
    2: {
        "tensors": ("shards", two_steps(spread(2, tp=2, zero=1, rows=TOGETHER), 2)),
        "stages": ("shards", two_steps(spread(2, pp=2, zero=0, rows=TOGETHER), 2)),
        "experts": ("experts", two_steps(spread(2, MOE, dp=2, zero=2, rows=TOGETHER), 2)),
        "encoders apart": ("encoders", SEEING_APART),
    },
    3: {
        "shards": ("shards", two_steps(spread(3, dp=3, zero=3, rows=[[(0,), (1,)], [(2,), (0,)]]), 1)),
        "replicas": ("shards", two_steps(spread(3, dp=3, zero=0, rows=[[(2,), (1,)], [(1,), (0,)]]), 1)),
    },
}


LATER = ("stages", "replicas", "experts")  # in the soak: others end at as many ranks; `test_resuming.py` moves experts


def resumptions():
    return {
        ranks: {name: each for name, each in plans.items() if thorough() or name not in LATER}
        for ranks, plans in RESUMED.items()
    }


def saved(worker, folder, warm, names):
    """Whole runs of these plans, saved on the way."""
    choose_warm_up(warm)
    with joined_world(worker, timeout_s=60):
        plans = {name: SAVED[name] for name in names}
        at = {name: partial(told, OPTIONS, folder / name) for name in plans}
        return {name: run(worker, plan, at[name](save="whole", save_every=CUT, keep=2)) for name, plan in plans.items()}


def resumed(worker, folder, warm, plans):
    """By name, the rest of such a run on these ranks."""
    choose_warm_up(warm)
    found = {}
    with joined_world(worker, timeout_s=60):
        for name, (of, plan) in plans.items():
            options = told(OPTIONS, folder, save=f"{worker.world_size} {name}/end", resume=f"{of}/{HALF}")
            found[name] = run(worker, plan, options)
    return found


def test_other_numbers_of_ranks_go_on_the_same(tmp_path):
    asked = resumptions()
    names = {of for plans in asked.values() for of, _ in plans.values()}
    whole = launch(saved, 4, tmp_path, thorough(), sorted(names))[0]
    for ranks, plans in asked.items():
        rest = launch(resumed, ranks, tmp_path, thorough(), plans)[0]
        for name, (of, plan) in plans.items():
            require_same_losses(whole[of], rest[name])
            (tmp_path / f"{ranks} {name}" / "whole").symlink_to(tmp_path / of / "whole")
            require_same_states(tmp_path / f"{ranks} {name}", plan.layouts)
