"""Whatever is combined with whatever: the loss and every gradient are those of one process.

On four ranks every pair of choices that is possible at all is in some plan; on eight, where more can be combined, in
some of a dozen. On four the first plans, which have most of the pairs, always run; the rest are for `make soak`. Every
item is worked on exactly once (the verification of a run refuses anything else).
"""

import pytest

from planner.runtime.run_options import RunOptions
from tests.examples import soaked
from tests.runtime.layout_pairs import choices, name_of, pairs, pairwise, plan_of_choice
from tests.runtime.training_worlds import run_all

ALL = {4: None, 8: 12}
FIRST = {4: 7, 8: 1}
WARM = {4: 1, 8: 1}  # of these so many have a warm-up before, which takes as long as what they are for


def verified(size, found, warm=None):
    once = RunOptions(steps=1, verify=True, seed=5)
    ran = run_all(size, {name_of(choice): plan_of_choice(choice, size) for choice in found}, once, warm=warm)
    return {name: run.verify for name, run in ran.items()}


def wrong(verified):
    return {name: v for name, v in verified.items() if v.steps != 1 or max(v.loss_rel_err, v.grad_rel_err) > 1e-12}


@pytest.mark.slow
@pytest.mark.parametrize("size", soaked(ALL, [4]))
def test_loss_and_gradients_are_those_of_one_process(size):
    first = pairwise(size, ALL[size])[: FIRST[size]]
    warm, others = first[: WARM[size]], first[WARM[size] :]
    found = verified(size, warm, warm=True) | (verified(size, others) if others else {})
    assert len(found) == FIRST[size]
    assert wrong(found) == {}


@pytest.mark.soak
@pytest.mark.parametrize("size", ALL)
def test_and_so_are_those_of_all_others(size):
    assert wrong(verified(size, pairwise(size, ALL[size])[FIRST[size] :])) == {}


@pytest.mark.soak
def test_every_pair_is_somewhere():
    """Of all plans that there are for four ranks; most of them in the first plans."""
    possible = set().union(*map(pairs, choices(4)))
    assert set().union(*map(pairs, pairwise(4, ALL[4]))) == possible
    assert len(set().union(*map(pairs, pairwise(4, ALL[4])[: FIRST[4]]))) > 0.55 * len(possible)
