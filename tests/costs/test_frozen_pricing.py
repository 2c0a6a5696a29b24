"""Prices of what is frozen: by rates, by fits, and by fits of frozen layers; what adds up, and what is never less."""

import pytest

from planner.costs.compute import complete_rates
from planner.costs.pricing import pricing_of
from planner.errors import InputError
from planner.plan.tasks.expand import expand
from planner.scoring import score
from planner.specs.base import with_fields
from planner.specs.hardware.profile import ModuleCosts, PassCosts, PassFit
from planner.specs.layers.trained import Lora
from tests.runtime.multi_module_plans import joined, layout

ROWS = [
    {"vit": {(0,): (0, 1), (1,): (2,)}, "llm": {(0,): (0,), (1,): (1,)}},
    {"vit": {(1,): (3,)}, "llm": {(0, 1): (2, 3)}},
]
FIT = PassCosts(
    forward=PassFit(ms_per_token2=1e-5, ms_per_token=0.01, ms=0.5),
    backward=PassFit(ms_per_token2=3e-5, ms_per_token=0.02, ms=1.0),
)
ALONE = PassCosts(
    forward=PassFit(ms_per_token2=1e-5, ms_per_token=0.009, ms=0.3),
    backward=PassFit(ms_per_token2=3e-5, ms_per_token=0.011, ms=0.6),
)
COSTS = ModuleCosts(source="fitted", spread=0.1, layer=FIT, ends=FIT, tp=1)


def plan_of(trained, costs=None):
    """Two encoders' worth of images on two ranks; `costs`: fits of both modules, else rates."""
    plan = joined({name: layout(name, (0, 1), dp=2, zero=1) for name in ("llm", "vit")}, ROWS)
    models = {name: with_fields(spec, trained=trained.get(name, "all")) for name, spec in plan.uses.models.items()}
    rates = {kind: complete_rates(None, device.kind) for kind, device in plan.uses.devices.items()}
    priced = {"modules": dict.fromkeys(models, costs)} if costs else {"rates": rates}
    prices = with_fields(plan.uses.prices, **priced)
    return with_fields(plan, uses=with_fields(plan.uses, models=models, prices=prices))


def seconds_by_pass(plan):
    tasks, pricing = expand(plan), pricing_of(plan)
    return {(task.module, task.phase, task.micro_batch, task.group): pricing.price(task).value for task in tasks}


@pytest.mark.parametrize("costs", [None, COSTS, with_fields(COSTS, frozen=ALONE)])
def test_less_is_trained_in_less_time(costs):
    """Everything; the llm and the projector; the llm; the projector alone."""
    each = [{}, {"vit": "projector"}, {"vit": "none"}]
    values = [score(plan_of(trained, costs)).timeline.step_seconds for trained in each]
    assert values[0] > values[1] > values[2]
    alone = score(plan_of({"vit": "projector", "llm": "none"}, costs)).timeline.step_seconds
    assert alone < values[1]


@pytest.mark.parametrize("costs", [None, COSTS])
def test_a_frozen_backward_is_what_weights_leave_of_it(costs):
    """Of the llm, which passes gradients on: B as trained, less its W."""
    whole, frozen = (plan_of(trained, costs) for trained in ({}, {"llm": "none"}))
    pricing = pricing_of(whole)
    spared = seconds_by_pass(frozen)
    for task in expand(whole):
        if (task.module, task.phase) == ("llm", "B"):
            both, weights = (pricing.price(task.changed(phase=phase)).value for phase in ("B", "W"))
            assert weights > 0
            assert spared["llm", "B", task.micro_batch, task.group] == pytest.approx(both - weights)


def test_fits_of_frozen_layers_are_used_as_they_were_measured():
    plan = plan_of({"vit": "none"}, with_fields(COSTS, frozen=ALONE))
    (size,) = (24,)  # the one image of the second rank in the first micro-batch
    layers = plan.uses.models["vit"].layers
    layer = ALONE.forward.ms_per_token2 * size * size + ALONE.forward.ms_per_token * size + ALONE.forward.ms
    ends = FIT.forward.ms_per_token2 * size * size + FIT.forward.ms_per_token * size + FIT.forward.ms
    pricing = pricing_of(plan)
    (task,) = (
        task
        for task in expand(plan)
        if (task.module, task.phase, task.micro_batch) == ("vit", "F", 0) and task.items == (2,)
    )
    assert pricing.price(task).value * 1e3 == pytest.approx(layers * layer + ends)


def test_what_is_frozen_takes_less_memory():
    """A frozen encoder keeps no activations; its states are its weights."""
    peaks = [max(score(plan_of(trained)).memory.peaks) for trained in ({}, {"vit": "projector"}, {"vit": "none"})]
    assert peaks[0] > peaks[1] >= peaks[2]


def test_adapters_are_not_priced_by_fits():
    with pytest.raises(InputError, match="adapters") as error:
        pricing_of(plan_of({"llm": Lora(rank=2)}, COSTS))
    assert "rates" in error.value.fix
