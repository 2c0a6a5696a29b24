"""Random plans of an encoder and a decoder, of several steps, train as one process; or are refused before launch."""

from dataclasses import replace

import pytest

from planner.errors import InputError
from planner.launch.processes import launch
from planner.plan.legal.plan_laws import require_legal
from planner.runtime.preflight.preflight_checks import require_executable, require_runnable
from planner.runtime.run_options import RunOptions, TrainingOptions
from tests.examples import thorough
from tests.runtime.one_process import differences, trained_to_the_end
from tests.several import at_other_times
from tests.several_steps import LOSSES, drawn, legal_and_refused

# AdamW divides a gradient that is zero up to rounding, 1e-17, by its epsilon, 1e-8: times this rate that is 1e-13. An
# update or a decay too many or too few is 1e-4 or 1e-6.
OPTIONS = RunOptions(verify=True, seed=5, training=TrainingOptions(1e-4, clip=1.0, decay=0.1))
EXACT = 1e-12
FAST, SOME, MANY = 100, 3, 300
AT_ONCE = 100  # plans in one world of processes


def require_equal_to_one_process(plans) -> None:
    """Every step is verified on its own, and the weights at the end are those of all steps together. Encoders of every
    second plan run at other times than right before what reads them, and after everything else.
    """
    plans = {seed: at_other_times(plan, seed) if seed % 2 else plan for seed, plan in plans.items()}
    runs = {}
    for seed, plan in plans.items():
        runs[seed] = plan, max(2, len(plan.steps))
        require_runnable(plan, replace(OPTIONS, steps=runs[seed][1]))
    found = launch(trained_to_the_end, 4, runs, OPTIONS, thorough())[0]
    assert found.keys() == plans.keys()
    for seed, (run, weights) in found.items():
        verified = run.verify
        assert (verified.loss_rel_err <= EXACT, verified.grad_rel_err <= EXACT) == (True, True), (seed, verified)
        worst = differences(plans[seed], OPTIONS, run, weights)
        assert max(worst) <= EXACT, (seed, worst)


@pytest.mark.slow
def test_a_plan_that_is_not_legal_is_refused_with_a_place_and_a_way_out():
    found, refused = legal_and_refused(0, FAST)
    for seed in refused:
        with pytest.raises(InputError) as error:
            require_legal(drawn(seed), f"plan {seed}")
        assert error.value.where.startswith(f"plan {seed}") and error.value.fix and error.value.message
    for plan in found.values():
        require_executable(plan)
    assert len(refused) < FAST / 2


@pytest.mark.slow
def test_the_plans_have_what_they_are_for():
    """Steps without an image between others, ranks without a module, and every ZeRO stage and weighting."""
    plans = legal_and_refused(0, FAST)[0].values()
    assert {plan.uses.loss for plan in plans} == {*LOSSES}
    assert len({tuple(each.zero for each in plan.layouts.values()) for plan in plans}) >= 14
    with_images = [[any("vit" in row for row in step.micro_batches) for step in plan.steps] for plan in plans]
    assert sum(True in steps and False in steps for steps in with_images) > 20
    assert sum({*plan.layouts["llm"].ranks} != {*plan.layouts["vit"].ranks} for plan in plans) > 50
    for dim in ("tp", "cp", "pp", "dp"):
        assert sum(len({getattr(each, dim) for each in plan.layouts.values()}) > 1 for plan in plans) > 20, dim


@pytest.mark.slow
def test_some_random_plans_train_as_one_process_does():
    require_equal_to_one_process(legal_and_refused(0, SOME)[0])


@pytest.mark.soak
@pytest.mark.parametrize("first", range(0, MANY, AT_ONCE))
def test_many_random_plans_train_as_one_process_does(first):
    plans = legal_and_refused(0, MANY)[0]
    require_equal_to_one_process({seed: plans[seed] for seed in [*plans][first : first + AT_ONCE]})
