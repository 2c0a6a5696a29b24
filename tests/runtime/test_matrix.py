"""Whatever is combined with whatever: the loss and every gradient are those of one process.

On four ranks every pair of choices that is possible at all is in some plan; on eight, where more can be combined, a few
plans. Every item is worked on exactly once (the verification of a run refuses anything else).
"""

import pytest

from planner.runtime.options import RunOptions
from tests.runtime.matrix import choices, name_of, pairs, pairwise, plan_of_choice
from tests.runtime.worlds import run_all

pytestmark = pytest.mark.slow

EIGHT = 12
CHOICES = {4: pairwise(4), 8: pairwise(8)[:EIGHT]}
EACH = [(size, name_of(choice)) for size, found in CHOICES.items() for choice in found]


@pytest.fixture(scope="module")
def results():
    once = RunOptions(steps=1, verify=True, seed=5)
    return {
        size: run_all(size, {name_of(choice): plan_of_choice(choice, size) for choice in found}, once)
        for size, found in CHOICES.items()
    }


@pytest.mark.parametrize(("size", "name"), EACH)
def test_loss_and_gradients_are_those_of_one_process(results, size, name):
    verified = results[size][name].verify
    assert verified.steps == 1
    assert (verified.loss_rel_err <= 1e-12, verified.grad_rel_err <= 1e-12) == (True, True), verified


def test_every_pair_is_somewhere():
    """Of all plans that there are for four ranks."""
    possible = set().union(*map(pairs, choices(4)))
    assert set().union(*map(pairs, CHOICES[4])) == possible
    assert len(CHOICES[8]) == EIGHT
