"""Orders written out: what is printed reads back, what a pipeline can do is legal, and what is wrong is found."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner import files
from planner.errors import InputError
from planner.plan.legal.plan_laws import violations
from planner.plan.plan_file import Plan, Step, TaskPlacement
from planner.plan.schedules import SCHEDULES, schedule_slots
from planner.plan.schedules.explicit import parse_slots, slot_lines
from planner.plan.tasks.expand import expand
from planner.plan.tasks.merge_orders import check_waits
from planner.specs.base import with_fields
from tests.plan.schedules.made import ordered_plan, some_order
from tests.plans import encoder_plan

SHAPES = st.tuples(st.integers(1, 4), st.integers(1, 5), st.integers(1, 3))
CHANCES = st.integers(0, 2**32).map(Random)


@given(CHANCES, SHAPES)
def test_what_is_printed_reads_back(chance, shape):
    pp, micro_batches, chunks = shape
    slots = some_order(chance, pp, micro_batches, chunks)
    assert parse_slots(slot_lines(slots, chunks), pp, chunks) == slots


@given(CHANCES, SHAPES)
def test_what_a_pipeline_can_do_is_legal_and_every_pass_becomes_a_task(chance, shape):
    pp, micro_batches, chunks = shape
    chunks = chunks if pp > 1 else 1
    slots = some_order(chance, pp, micro_batches, chunks)
    plan = ordered_plan(pp, micro_batches, slot_lines(slots, chunks), chunks)
    assert not violations(plan)
    tasks = expand(plan)
    check_waits(tasks)
    for rank, of_rank in enumerate(slots):
        done = [
            (t.phase, t.micro_batch, t.layers[0] // pp)
            for t in tasks
            if t.ranks == (rank,) and t.phase in ("F", "B", "I", "W")
        ]
        assert done == of_rank
    assert files.parse(files.dump(plan), Plan, "again") == plan


@pytest.mark.parametrize("name", [name for name in SCHEDULES if name not in ("interleaved", "forward_only")])
def test_a_generator_written_out_is_the_same_step(name):
    written = slot_lines(schedule_slots(name, 3, 5))
    assert expand(ordered_plan(3, 5, written)) == expand(ordered_plan(3, 5, name))


def test_interleaving_written_out_is_the_same_step():
    written = slot_lines(schedule_slots("interleaved", 2, 4, 3), 3)
    assert written[1].startswith("F0@1 F1@1 F0@3")
    assert expand(ordered_plan(2, 4, written, 3)) == expand(ordered_plan(2, 4, "interleaved", 3))


@pytest.mark.parametrize(
    ("lines", "where", "says"),
    [
        (("F0 B0",), "llm", "1 lines, and the pipeline 2 ranks"),
        (("F0 X0", "F0 B0"), "llm[0]", "`X0` is no slot"),
        (("F0 B0", "F0 B0@2"), "llm[1]", "`B0@2` is on a stage that rank 1 does not have"),
        (("F0 B0", "F0 B0@3"), "llm[1]", "`B0@3` is on a stage that rank 1 does not have"),
        (("F0 B0", "F0 F0 B0"), "llm[1]", "`F0` is there twice"),
        (("F0 F1 B0 B1", "F0 B0"), "llm[0]", "`F1`: there are 1 micro-batches"),
        (("F0 B0", "B0"), "llm[1]", "micro-batch 0 on stage 1: there is no F"),
        (("F0 B0", "F0"), "llm[1]", "micro-batch 0 on stage 1: there is no B"),
        (("F0 I0", "F0 B0"), "llm[0]", "micro-batch 0 on stage 0: there is no W"),
        (("F0 W0", "F0 B0"), "llm[0]", "micro-batch 0 on stage 0: there is no I"),
        (("F0 B0 W0", "F0 B0"), "llm[0]", "there is B, and I or W besides"),
        (("B0 F0", "F0 B0"), "llm[0]", "B comes before F"),
        (("I0 F0 W0", "F0 B0"), "llm[0]", "I comes before F"),
        (("F0 W0 I0", "F0 B0"), "llm[0]", "W comes before I"),
    ],
)
def test_what_is_wrong_is_found(lines, where, says):
    found = violations(ordered_plan(2, 1, lines))
    assert any(v.where == f"steps[0].order.{where}" and says in v.message and v.fix for v in found)


def test_a_slot_says_of_which_chunk():
    with pytest.raises(InputError, match="does not say which chunk"):
        parse_slots(("F0", "F0"), 2, 2)


def test_ranks_that_wait_for_each_other_are_named():
    """Rank 0 wants micro-batch 1 back first, which rank 1 sends last."""
    plan = ordered_plan(2, 2, ("F0 F1 B1 B0", "F0 F1 B0 B1"))
    assert not violations(plan)  # only late
    (found,) = violations(ordered_plan(2, 2, ("F0 B0 F1 B1", "F0 F1 B0 B1")))
    assert "wait for each other" in found.message


def with_order(plan: Plan, order: dict) -> Plan:
    return with_fields(plan, steps=(with_fields(plan.steps[0], order=order),))


def test_slots_and_placements_do_not_mix():
    place = TaskPlacement(do="vit.F0", on="v0", before="llm.F0@0")
    assert "this is no schedule" in violations(with_order(encoder_plan(), {"llm": (place,)}))[0].message
    assert "`F0` is no placement" in violations(with_order(encoder_plan(), {"place": ("F0",)}))[0].message


def test_what_makes_no_sense_with_a_backward_in_two_is_refused():
    assert not violations(ordered_plan(2, 2, "zb_h1"))
    for how in ("full", "selective"):
        assert "kept for W all the same" in violations(ordered_plan(2, 2, "zb_h1", recompute=how))[0].message
    plan = ordered_plan(2, 1, ("F0 I0 W0", "F0 B0"))
    text = files.dump(plan).replace("{dp0: [0]}", "{dp0: [{item: 0, offload: 0.5}]}")
    assert any("are fetched" in v.message for v in violations(files.parse(text, Plan, "plan")))


def test_forwards_alone_feed_nobody_back():
    plan = with_order(encoder_plan(), {"llm": "forward_only"})
    assert "waits for the gradients of `llm`" in violations(plan)[0].message
    assert "priced for a forward and its backward" in violations(ordered_plan(2, 2, "forward_only", zero=3))[0].message
    tasks = expand(ordered_plan(2, 3, "forward_only", dp=2))
    assert {t.phase for t in tasks} == {"F", "send", "recv"}


def test_a_step_without_an_order_is_as_before():
    plan = ordered_plan(2, 2, "1f1b")
    step = plan.steps[0]
    unsaid = with_fields(plan, steps=(Step(sync=step.sync, micro_batches=step.micro_batches),))
    assert expand(unsaid) == expand(plan)


@pytest.mark.parametrize("zero", [0, 1, 3])
def test_reductions_and_the_update_wait_for_what_completes_gradients(zero):
    """W, where backward is in two; B where it is whole: on every rank they are as many as there are micro-batches."""
    tasks = expand(ordered_plan(2, 2, ("F0 I0 F1 B1 W0", "F0 I0 F1 I1 W1 W0"), dp=2, zero=zero))
    waited = {i for t in tasks if t.phase in ("sync", "update") for i in t.after}
    complete = {t.id for t in tasks if t.phase in ("B", "W")}
    assert complete <= waited and not any("/I/" in i for i in waited)


def test_an_encoder_waits_for_the_gradient_of_its_outputs_alone():
    lines = slot_lines(schedule_slots("zb_h1", 4, 2))
    plan = with_order(encoder_plan(), {"llm": lines})
    assert not violations(plan)
    sent = [t for t in expand(plan) if t.phase == "send" and t.of == "B" and ">" in t.group]
    assert sent and all("/I/" in i for t in sent for i in t.after)
