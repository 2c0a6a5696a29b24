"""When passes of encoders run: ahead of their readers or for them, backwards at once or last, as rules say."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.costs.cost_lines import Cost
from planner.plan.legal.plan_laws import violations
from planner.plan.plan_file import Edge, Group, Layout, Plan, Step, TaskPlacement
from planner.plan.tasks.expand import expand
from planner.simulate import simulate
from planner.specs.base import Ranks, with_fields
from planner.strategies.assignment.encoder_orders import EncoderOrder, orders_of
from tests.examples import share
from tests.plan.tasks.test_encoder_tasks import check_order
from tests.plans import decoder, encoder_plan, plan_of, stages_of, timed, uses, vit
from tests.several import at_other_times, legal

STAGES = 4
SCHEDULES = ("1f1b", "gpipe", "zb_h1", "interleaved")


def colocated(micro_batches: int, schedule: str = "1f1b", ranks: Ranks | None = None, **times) -> Plan:
    """An encoder on every rank of a pipeline, or on others; each rank works on an image of each micro-batch."""
    chunks = 2 if schedule == "interleaved" else 1
    stages, seeing = Ranks(range(STAGES)), ranks or Ranks(range(STAGES))
    size = 1 + max(*stages, *seeing)
    images = {n: 4 for n in range(micro_batches * len(seeing))}
    texts = {n: 4 * len(seeing) + 8 for n in range(micro_batches)}
    facts = uses(
        size,
        {"llm": decoder(2 * STAGES), "vit": vit()},
        {"llm": texts, "vit": images},
        {"vit": {n: n // len(seeing) for n in images}},
    )
    rows = tuple(
        {"vit": {f"v{at}": (m * len(seeing) + at,) for at in range(len(seeing))}, "llm": {"all": (m,)}}
        for m in range(micro_batches)
    )
    layouts = {
        "llm": Layout(ranks=stages, pp=STAGES, vpp=chunks, stages=stages_of(2 * STAGES, chunks * STAGES)),
        "vit": Layout(ranks=seeing, dp=len(seeing)),
    }
    groups = {"all": Group(ranks=stages)} | {f"v{at}": Group(ranks=Ranks((rank,))) for at, rank in enumerate(seeing)}
    step = Step(sync="step", micro_batches=rows, order={"llm": schedule})
    return timed(plan_of(size, facts, layouts, groups, step, (Edge(source="vit", target="llm"),)), "vit", **times)


def without_encoder(plan: Plan) -> Plan:
    facts = with_fields(
        plan.uses, models={"llm": plan.uses.models["llm"]}, items={"llm": plan.uses.items["llm"]}, feeds={}
    )
    step = with_fields(
        plan.steps[0], micro_batches=tuple({"all": row["llm"]["all"]} for row in plan.steps[0].micro_batches)
    )
    layouts = {"llm": plan.layouts["llm"]}
    return with_fields(plan, uses=facts, layouts=layouts, edges=(), steps=(step,), groups={"all": plan.groups["all"]})


def passes(plan: Plan, rank: int) -> list[str]:
    """The passes of micro-batches on a rank, in order: F3 of the encoder, llm.F3 of its reader."""
    return [
        ("" if task.module == "vit" else f"{task.module}.") + f"{task.phase}{task.micro_batch}"
        for task in expand(plan)
        if rank in task.ranks and task.phase in ("F", "B", "I", "W")
    ]


def unit_step(plan: Plan, **seconds: float) -> float:
    """The step where a forward of the decoder takes a second, its backward two, and the encoder's as they are said."""
    own = {"F": 1.0, "B": 2.0, "I": 1.0, "W": 1.0}

    def price(task) -> Cost:
        return Cost((own if task.module == "llm" else seconds).get(task.phase, 0.0), "analytic", 0.0)

    return simulate(expand(plan), price).step_seconds


TIMES = [(ahead, at_once) for ahead in (0, 1, 3, None) for at_once in (False, True)]


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(("ahead", "at_once"), TIMES)
@pytest.mark.every(4)
def test_an_encoder_without_any_work_delays_nothing(schedule, ahead, at_once):
    """On all ranks, some of them, or its own, whenever it runs: the step is that of the decoder alone."""
    alone = unit_step(without_encoder(colocated(8, schedule)))
    assert alone == {"1f1b": 33, "gpipe": 33, "zb_h1": 27, "interleaved": 57}[schedule]
    for ranks in (None, Ranks((0,)), Ranks((1, 2)), Ranks((3, 4)), Ranks((4, 5))):
        plan = colocated(8, schedule, ranks, ahead=ahead, at_once=at_once)
        if ranks == Ranks((4, 5)) and ahead == 0:
            continue
        assert unit_step(plan) == alone, ranks


@pytest.mark.parametrize(("ahead", "at_once"), TIMES)
def test_an_encoder_on_all_ranks_adds_no_more_than_its_work(ahead, at_once):
    for part in (0.1, 0.25, 0.5, 1.0):
        plan = colocated(8, ahead=ahead, at_once=at_once)
        assert unit_step(plan, F=part, B=2 * part) <= 33 + 8 * 3 * part + 1e-9


@pytest.mark.parametrize("ahead", range(1, 7))
def test_on_the_first_stage_forwards_run_ahead_from_when_the_last_begins(ahead):
    """While the pipeline fills each runs for the micro-batch that reads it, then so many before."""
    count = 10
    plan = colocated(count, ahead=ahead)
    assert not violations(plan)
    own = passes(plan, 0)
    for m in range(count):
        follower = next(name for name in own[own.index(f"F{m}") :] if name.startswith("llm."))
        if m < STAGES:
            assert follower == f"llm.F{m}"
        elif m - ahead < STAGES:
            assert follower == f"llm.F{STAGES - 1}"
        else:
            assert follower == f"llm.F{m - ahead}"


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.every(2)
def test_the_decoder_has_its_own_order(schedule):
    for rank in range(STAGES):
        usual = [name for name in passes(without_encoder(colocated(8, schedule)), rank)]
        for ahead, at_once in TIMES:
            own = passes(colocated(8, schedule, ahead=ahead, at_once=at_once), rank)
            assert [name for name in own if name.startswith("llm.")] == usual


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_ahead_of_all_micro_batches_is_a_phase_before_the_pipeline(schedule):
    tasks = expand(colocated(8, schedule, ahead=8))
    kinds = [task.module for task in tasks if task.phase == "F"]
    assert kinds == sorted(kinds, reverse=True)  # vit, then llm
    assert [task.micro_batch for task in tasks if (task.module, task.phase) == ("vit", "F")] == sorted(
        [*range(8)] * STAGES
    )


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("ahead", [1, 3])
def test_no_stage_begins_later_for_what_is_ahead(schedule, ahead):
    """While the pipeline fills, all but the last have the passes before theirs that they have with nothing ahead."""
    usual, other = colocated(8, schedule), colocated(8, schedule, ahead=ahead)
    for rank in range(STAGES - 1):
        until = [passes(plan, rank).index("llm.F0") for plan in (usual, other)]
        assert until[0] == until[1]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_between_the_gradient_of_its_outputs_and_a_backward_at_once_is_no_pass_of_the_decoder(schedule):
    own = passes(colocated(8, schedule, at_once=True), 0)
    gradient = "I" if schedule == "zb_h1" else "B"
    for m in range(8):
        made = max(at for at, name in enumerate(own) if name == f"llm.{gradient}{m}")
        assert not any(name.startswith("llm.") for name in own[made + 1 : own.index(f"B{m}")])


@pytest.mark.parametrize("ahead", [0, 1, None])
def test_ranks_of_their_own_have_forwards_as_far_ahead(ahead):
    """What is at once behind the gradients of micro-batch m is in front of the forward of a later one, by `ahead`."""
    plan = colocated(12, ranks=Ranks((4,)), ahead=ahead, at_once=True)
    own = passes(plan, 4)
    before = {m: sum(name[0] == "F" for name in own[: own.index(f"B{m}")]) for m in range(12)}
    assert before == {m: min(12, STAGES + m + ahead) if ahead is not None else 12 for m in range(12)}


def held(plan: Plan, name: str) -> dict[tuple[int, str], int]:
    """By rank and pass of the decoder: layers of an encoder whose forwards are kept then."""
    count: dict[int, int] = {}
    found = {}
    for task in expand(plan):
        change = {"F": 1, "B": -1, "W": -1}.get(task.phase, 0) * bool(task.items)
        for rank in task.ranks if task.micro_batch is not None else ():
            if task.module == name:
                count[rank] = count.get(rank, 0) + change * len(task.layers)
            elif task.module == "llm" and change:
                found[rank, task.id] = count.get(rank, 0)
    return found


def exceeds(more: Mapping, less: Mapping) -> bool:
    assert more.keys() == less.keys()
    return any(more[key] < count for key, count in less.items())


def test_what_is_further_ahead_keeps_more_and_what_is_at_once_less_at_every_pass_of_the_decoder():
    """Of any encoders, pipelines of them, under any ZeRO stage, read by a decoder or by each other."""
    different = 0
    for plan in legal(0, share(150)).values():
        if plan.steps[0].placements:
            continue
        for name in {edge.source for edge in plan.edges}:
            kept = [held(timed(plan, name, ahead=ahead), name) for ahead in (0, 1, 2, None)]
            assert not any(exceeds(kept[at + 1], kept[at]) for at in range(3))
            at_once = held(timed(plan, name, at_once=True), name)
            assert not exceeds(kept[0], at_once)
            different += (kept[-1] != kept[0]) + (at_once != kept[0])
    assert different > share(40)


def test_random_plans_are_in_order_whenever_their_encoders_run():
    for seed, plan in legal(0, share(200)).items():
        other = at_other_times(plan, seed)
        check_order(expand(other))
        assert not violations(other), seed


def test_a_placed_task_stays_where_it_is_placed():
    places = (
        TaskPlacement(do="vit.F1", on="v1", before="llm.F0@0"),
        TaskPlacement(do="vit.B0", on="v0", after="llm.B1@0"),
    )
    plan = encoder_plan(places)
    usual, other = ([task.id for task in expand(each)] for each in (plan, timed(plan, "vit", ahead=1, at_once=True)))
    for ids in (usual, other):
        assert ids.index("vit[4-7]/F/1/v1") < ids.index("llm[0-1]/F/0/all")
        assert ids.index("vit[4-7]/B/0/v0") > ids.index("llm[0-1]/B/1/all")
    assert other.index("vit[0-3]/B/1/v1") < usual.index("vit[0-3]/B/1/v1")  # which is not placed


def test_a_frozen_encoder_has_no_backward_at_any_time():
    plan = colocated(4, ahead=2, at_once=True)
    models = {**plan.uses.models, "vit": with_fields(plan.uses.models["vit"], trained="none")}
    frozen = with_fields(plan, uses=with_fields(plan.uses, models=models))
    assert not violations(frozen)
    assert {task.phase for task in expand(frozen) if task.module == "vit"} == {"F", "send", "recv"}


def test_a_rule_is_of_a_module_and_who_reads_it():
    plan = colocated(4)

    def told(do: str, **where: str) -> list[str]:
        steps = (with_fields(plan.steps[0], order={"place": (TaskPlacement(do=do, **where),)}),)
        return [each.message for each in violations(with_fields(plan, steps=steps))]

    assert told("vit.F", before="llm.F-1") == told("vit.F", before="llm.F0") == told("vit.B", after="llm.B") == []
    assert "feeds no module" in told("llm.F", before="vit.F-1")[0]
    assert "reads nothing" in told("vit.F", before="vit.F-1")[0]


@pytest.mark.parametrize(
    ("do", "where"),
    [
        ("vit.F", {"after": "llm.F-1"}), ("vit.F", {"before": "llm.F2"}), ("vit.B", {"before": "llm.B"}),
        ("vit.B", {"after": "llm.B1"}), ("vit.F", {"beside": "llm.F0"}), ("vit.F1", {"before": "llm.F-1"}),
        ("vit.F[0]", {"before": "llm.F-1"}), ("vit.F-1", {"before": "llm.F-1"}), ("vit.F1", {"before": "llm.F"}),
        ("vit.W", {"after": "llm.B"}),
    ],
)  # fmt: skip
def test_a_rule_says_how_far_ahead_or_behind_what(do, where):
    with pytest.raises(ValueError, match="names no micro-batch"):
        TaskPlacement(do=do, **where)


@given(st.none() | st.integers(0, 5), st.booleans(), st.sampled_from((1, 2, 4, None)))
def test_orders_are_read_back_from_the_rules_and_passes_of_a_plan(ahead, at_once, serves):
    plan = colocated(8)
    rows = [dict(row) for row in plan.steps[0].micro_batches]
    for number, row in enumerate(rows):
        if number % (serves or 8):
            del row["vit"]
    plan = timed(
        with_fields(plan, steps=(with_fields(plan.steps[0], micro_batches=tuple(rows)),)),
        "vit",
        ahead=ahead,
        at_once=at_once,
    )
    assert orders_of(plan) == {"vit": EncoderOrder(serves, ahead, at_once)}
