"""FSDP2's own work is added once for each of its units, where it runs them, and nowhere else."""

import pytest

from planner.costs.compute.fit_lines import fsdp_line, resharding
from planner.costs.pricing import pricing_of
from planner.plan.plan_file import Layout
from planner.plan.tasks.expand import expand
from planner.specs.base import Ranks, with_fields
from planner.specs.hardware.profile import FsdpUnit, FsdpUnits, ModuleCosts
from tests.costs.compute.test_measured_recompute import MEASURED, measured
from tests.meshes import meshed
from tests.plans import sharded_plan, staged_plan

NONE = FsdpUnits(layer=FsdpUnit(), ends=FsdpUnit())
FSDP = {
    "held": FsdpUnits(layer=FsdpUnit(forward_ms=0.25, backward_ms=0.5), ends=FsdpUnit(forward_ms=3.0, backward_ms=5.0)),
    "resharded": FsdpUnits(
        layer=FsdpUnit(forward_ms=1.0, backward_ms=2.0), ends=FsdpUnit(forward_ms=4.0, backward_ms=7.0)
    ),
}
WRAPPED: ModuleCosts = with_fields(MEASURED, fsdp=FSDP)


def laid(mesh, zero, dtype="float32"):
    size = 1
    for each in mesh.values():
        size *= each
    return Layout(ranks=Ranks(range(size)), **meshed(mesh), zero=zero, dtype=dtype)


@pytest.mark.parametrize(
    ("layout", "how"),
    [
        (laid({"dp": 1}, 3), None),
        (laid({"pp": 2, "tp": 2}, 1), None),
        (laid({"dp": 1}, 1, "bf16"), "held"),  # whose weights are cast
        (laid({"dp": 2}, 0), None),
        (laid({"dp": 2}, 0, "bf16"), "held"),
        (laid({"replica": 2}, 2), None),
        (laid({"replica": 2}, 3), "resharded"),  # summed in every micro-batch
        (laid({"dp": 2, "pp": 2}, 3), "resharded"),
    ],
)
def test_fsdp_runs_what_is_sharded_or_cast(layout, how):
    assert resharding(layout) == how
    for forward in (True, False):
        units = FSDP[how] if how else NONE
        layer, ends = (unit.forward_ms if forward else unit.backward_ms for unit in (units.layer, units.ends))
        assert fsdp_line(WRAPPED, layout, 3, False, forward).const == pytest.approx(3e-3 * layer)
        assert fsdp_line(WRAPPED, layout, 3, True, forward).const == pytest.approx(3e-3 * layer + 1e-3 * ends)


@pytest.mark.parametrize("plan", [staged_plan(2, 3), sharded_plan(4, [[(0, 4)], [(0, 2), (2, 2)]])])
def test_each_pass_takes_that_much_longer(plan):
    plain = measured(plan, "none")
    prices = with_fields(plain.uses.prices, modules={"llm": WRAPPED})
    ours = with_fields(plain, uses=with_fields(plain.uses, prices=prices))
    units = FSDP.get(resharding(plan.layouts["llm"]), NONE)
    for task in expand(plain):
        each, outside = (
            {"F": u.forward_ms, "B": u.backward_ms}.get(task.phase, 0.0) for u in (units.layer, units.ends)
        )
        last = task.layers[-1] == plan.uses.models["llm"].layers - 1
        more = 1e-3 * (len(task.layers) * each + last * outside)
        assert pricing_of(ours).price(task).value == pytest.approx(pricing_of(plain).price(task).value + more)
