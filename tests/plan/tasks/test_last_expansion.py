"""Tasks in an order of readers that was kept are those that a plan has, whatever was asked for in between."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.plan.plan_file import Plan
from planner.plan.tasks.expand import LAST_READERS, expand, step_tasks
from planner.specs.base import with_fields
from tests.examples import examples
from tests.several import legal

PLANS = [*legal(0, 6).values()]


def changed(plan: Plan, what: str) -> Plan:
    """A plan with other tasks, or with the same in another order."""
    (step,) = plan.steps
    uses = plan.uses
    if what == "sizes":
        uses = with_fields(
            uses, items={**uses.items, "vit": {item: size + 4 for item, size in uses.items["vit"].items()}}
        )
    elif what == "readers' sizes":
        uses = with_fields(
            uses, items={**uses.items, "llm": {item: size + 4 for item, size in uses.items["llm"].items()}}
        )
    elif what == "readers' recomputation":
        llm = with_fields(plan.layouts["llm"], recompute="full")
        return with_fields(plan, layouts={**plan.layouts, "llm": llm})
    elif what == "order of keys":
        step = with_fields(step, micro_batches=tuple(dict(reversed(row.items())) for row in step.micro_batches))
    elif what == "groups":
        return with_fields(plan, groups={name: with_fields(group, split={}) for name, group in plan.groups.items()})
    elif what == "layouts":
        vit = with_fields(plan.layouts["vit"], zero=1)
        return with_fields(plan, layouts={**plan.layouts, "vit": vit})
    elif what == "copies":
        step = with_fields(step, micro_batches=tuple(map(dict, step.micro_batches)))
    return with_fields(plan, steps=(step,), uses=uses)


CHANGES = ["", "sizes", "readers' sizes", "readers' recomputation", "order of keys", "groups", "layouts", "copies"]


@pytest.mark.slow
@given(st.lists(st.tuples(st.sampled_from(PLANS), st.sampled_from(CHANGES)), max_size=8))
@examples(100)
def test_the_tasks_are_those_of_the_plan(asked):
    for plan, what in asked:
        plan = changed(plan, what) if what else plan
        found = expand(plan)
        kept, LAST_READERS.kept = LAST_READERS.kept, []
        assert found == step_tasks(plan, plan.steps[0], ())
        LAST_READERS.kept = kept


def test_plans_that_differ_in_encoders_share_the_order_of_their_readers():
    plan = PLANS[0]
    for what in ("", "layouts", "copies"):
        expand(changed(plan, what) if what else plan)
        _, order = LAST_READERS.kept[0]
        expand(changed(plan, "layouts"))
        assert LAST_READERS.kept[0][1] is order


def test_ids_that_passes_hand_on_are_those_of_their_tasks():
    for task in (task for plan in PLANS for task in expand(plan)):
        assert task.id == task.changed().id  # formatted anew
