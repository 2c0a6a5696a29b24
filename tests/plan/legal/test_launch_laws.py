"""A plan carries what its software can launch, and is illegal where its layouts cannot be."""

import pytest

from planner import files
from planner.plan.legal.plan_laws import violations
from planner.plan.plan_file import Plan
from planner.specs.base import with_fields
from planner.specs.framework.knobs import Knobs
from planner.specs.framework.software import Framework, Software
from planner.specs.library import read_named, shipped_names
from tests.plans import staged_plan

STAGED = staged_plan(2, 3)


def by_software(plan, software):
    return with_fields(plan, uses=with_fields(plan.uses, software=software))


def test_a_plan_of_no_software_in_particular_breaks_no_rule():
    assert STAGED.uses.software == Framework() and violations(STAGED) == []


def test_a_layout_that_the_software_cannot_launch_is_illegal():
    (found,) = violations(by_software(STAGED, Framework(name="ours", knobs=Knobs(pp=False))))
    assert found.where == "layouts.llm"
    assert found.message == "ours cannot launch this plan: it has no pipeline, and pp is 2 (rule: pipeline)"
    assert found.fix.startswith("pp: 1; or uses.software: {name: any}")


@pytest.mark.parametrize("name", shipped_names(Software))
def test_what_a_plan_says_of_its_software_survives_its_file(name):
    software = read_named(name, Software)[0]
    plan = by_software(STAGED, software.framework)
    assert files.parse(files.dump(plan), Plan, "again") == plan
    assert plan.uses.software == Framework(name=name, knobs=with_fields(software.knobs, sources={}))
