"""`why-not` of plans of several modules: the answer is what the changed job gives when it is solved, and everything
that a screen prints goes back in and gives the same.
"""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from planner import pipeline
from planner.errors import InputError
from planner.plan.plan_file import Plan
from planner.scoring import score
from planner.simulate import mean_seconds, rank_counts, rank_parts
from planner.specs.base import with_fields
from planner.specs.inputs import JobOptions
from planner.specs.parallelism import Parallelism, decided_fields
from planner.strategies import STRATEGIES, StrategyEntry
from planner.strategies.static import plan_of_layouts
from planner.units import GIB
from planner.why import ModuleFacts, WhyNot, step_facts
from planner.why.plan_problem import plan_inputs, single_step
from planner.why.step_facts import part_name
from tests.placed_jobs import EVERY, PLACEMENTS, ROWS, SOME, placed_job

QUICK = JobOptions(effort=1)
FEW_IMAGES, FEW_CLIPS = "patches,row\n16,0\n16+8,3\n", "row,frames\n0,8\n"


def solved(folder: Path, fixed, **other) -> Plan:
    return pipeline.solve(placed_job(folder, fixed, **other)).plan


def asked(plan: Plan, *words: str) -> WhyNot:
    answer = pipeline.why_not(plan, words)
    assert isinstance(answer.before, ModuleFacts)
    return answer


def braces(text: str) -> str:
    """The layout of a screen's line."""
    return text[: text.rindex("}") + 1]


@EVERY
@pytest.mark.every(6)
def test_the_problem_of_a_plan_gives_the_plan_again(placed, name):
    plan = placed(name)
    again = plan_of_layouts(plan_inputs(plan), plan.layouts)
    assert (again.layouts, again.groups, again.edges) == (plan.layouts, plan.groups, plan.edges)
    assert again.steps[0].micro_batches == plan.steps[0].micro_batches
    assert score(again).step_seconds == score(plan).step_seconds


@SOME
@pytest.mark.every(3)
def test_layouts_as_screens_show_them_change_nothing(placed, name):
    plan = placed(name)
    shown = step_facts(plan, score(plan)).layouts
    answer = asked(plan, *(f"{module}={braces(text)}" for module, text in shown.items()))
    assert answer.seconds == 0.0 and not answer.follows and not answer.because
    assert answer.after == answer.before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "words", "other"),
    [
        ("first stage", ["llm.pp=1"], {"llm": "pp: 1"}),
        ("first stage", ["vit.ranks=0-3"], {"vit": "ranks: 0-3"}),
        ("first stage", ["vit.tp=2"], {"vit": "tp: 2, ranks: first_stage"}),
        ("all ranks", ["vit.zero=3", "llm.tp=4"], {"llm": "tp: 4", "vit": "dp: 4, zero: 3"}),
        ("all ranks", ["llm.tp=1", "llm.pp=2", "llm.vpp=2"], {"llm": "pp: 2, vpp: 2"}),
        ("all ranks", ["vit.ranks=first_stage"], {"vit": "tp: 1, dp: 4"}),
        ("1 + 3", ["llm.ranks=2-3", "vit.ranks=0-1"], {"llm": "ranks: 2-3", "vit": "ranks: 0-1"}),
        ("2 + 2", ["ear.recompute=full"], {"ear": "ranks: 0-1, tp: 2, recompute: full"}),
        ("all ranks", ["llm.recompute=norm,attention"], {"llm": "tp: 2, recompute: [norm, attention]"}),
    ],
)  # fmt: skip
@pytest.mark.every(5)
def test_a_change_costs_what_the_changed_job_gives(placed, tmp_path, name, words, other):
    answer = asked(placed(name), *words)
    wanted = solved(tmp_path, PLACEMENTS[name] | other)
    assert answer.after is not None and answer.kept
    assert answer.after.value == score(wanted).step_seconds
    assert answer.after == step_facts(wanted, score(wanted))
    assert answer.seconds == answer.after.value - answer.before.value


@pytest.mark.slow
def test_what_follows_goes_back_in_and_gives_the_same(placed):
    plan = placed("first stage")
    answer = asked(plan, "llm.pp=1")
    assert {"llm.dp=4", "vit.dp=4", "vit.ranks=0-3"} <= {*answer.follows}
    again = asked(plan, "llm.pp=1", *answer.follows)
    assert again.after == answer.after and not again.follows


@EVERY
@pytest.mark.every(3)
def test_seconds_by_module_add_up_to_the_step_and_to_its_breakdown(placed, name):
    plan = placed(name)
    found = score(plan)
    facts, parts = step_facts(plan, found), found.timeline.breakdown()
    assert sum(facts.parts.values()) == pytest.approx(facts.value, rel=1e-9)
    assert sum(facts.binds.values()) == pytest.approx(facts.value, rel=1e-9)
    by_use = mean_seconds(found.timeline, lambda part: part.use)
    assert by_use["compute"] == pytest.approx(parts.compute, rel=1e-9)
    assert by_use.get("exchange", 0.0) + by_use["transfer"] == pytest.approx(parts.exposed_comm, rel=1e-9)
    assert by_use.get("wait", 0.0) == pytest.approx(parts.idle, rel=1e-9, abs=1e-9)
    assert {name.rpartition(" ")[2] for name in facts.parts} <= {*plan.layouts, "idle"}
    assert sum(facts.memory.values()) == pytest.approx(facts.peak_memory_gib, rel=1e-6)
    for module, load in facts.loads.items():
        assert load.uneven >= 1.0 - 1e-12 and load.fullest_rank in plan.layouts[module].ranks


@EVERY
@pytest.mark.every(3)
def test_every_moment_of_every_rank_is_put_down_once(placed, name):
    """Parts of a rank follow one another without gaps, and what it waits for runs on ranks that have no part in it."""
    timeline = score(placed(name)).timeline
    assert sum(rank_counts(timeline).values()) == timeline.ranks
    for rank, parts in rank_parts(timeline, tuple(rank_counts(timeline))).items():
        assert sum(part.seconds for part in parts) == pytest.approx(timeline.step_seconds, rel=1e-9)
        for part in parts:
            assert part.event is not None and part_name(part) != "idle"
            inside = part.event.start - 1e-12 <= part.start and part.start + part.seconds <= part.event.end + 1e-9
            assert inside, (rank, part)
            if part.use == "wait":
                assert rank not in part.event.ranks


@pytest.mark.soak
def test_what_does_not_fit_says_what_else_to_change(tmp_path):
    """The fix of a change that needs too much memory goes back in with it, and is possible; without it nothing is."""
    plan = solved(tmp_path, PLACEMENTS["all ranks"] | {"llm": "tp: 4"})
    asked_for = ("llm.tp=1", "llm.zero=0")
    free = asked(plan, *asked_for)
    assert free.after is not None and free.after.peak_memory_gib > free.before.peak_memory_gib
    tight = with_memory(plan, (free.after.peak_memory_gib + free.before.peak_memory_gib) / 2)
    refused = asked(tight, *asked_for)
    assert refused.after is None and refused.infeasible is not None and refused.infeasible.where == "memory"
    instead = tuple(refused.infeasible.fix.removesuffix(" as well").split(" and "))
    possible = asked(tight, *asked_for, *instead)
    assert possible.after is not None and not {word.partition("=")[0] for word in instead} & {"llm.tp", "llm.zero"}


def with_memory(plan: Plan, allowed_gib: float) -> Plan:
    """The plan on devices that allow so much: what they allow is a share of what they have."""
    times = allowed_gib * GIB / score(plan).plan_memory.allowed_bytes(0)
    devices = {
        kind: with_fields(device, memory_gib=device.memory_gib * times) for kind, device in plan.uses.devices.items()
    }
    return with_fields(plan, uses=with_fields(plan.uses, devices=devices))


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("zero=1", "llm.zero=1 or vit.zero=1 or ear.zero=1"),
        ("llm.zero=4", "zero"),
        ("llm.colour=red", "colour"),
        ("nose.tp=2", "MODULE.FIELD"),
        ("llm.tp", "KEY=VALUE"),
        ("llm.ranks=3-1", "rise"),
        ("vit.inputs_per_rank=many", "whole number"),
        ("degrees=4", "MODULE.FIELD"),
    ],
)
def test_what_cannot_be_asked_says_what_can(placed, word, said):
    with pytest.raises(InputError) as refused:
        pipeline.why_not(placed("all ranks"), (word,))
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("llm.tp=3",), "3"),
        (("llm.dp=3",), "ranks"),
        (("vit.ranks=0-9",), "rank 9"),
        (("llm.vpp=2",), "pipeline"),
    ],
)
@pytest.mark.every(2)
def test_what_cannot_be_says_what_binds(placed, words, said):
    answer = asked(placed("all ranks"), *words)
    assert answer.after is None and answer.seconds is None
    assert answer.infeasible is not None and said in answer.infeasible.message and answer.infeasible.fix


@pytest.mark.slow
def test_packs_are_made_again_for_another_budget(tmp_path):
    job = Path(placed_job(tmp_path, PLACEMENTS["all ranks"]))
    limits = "limits: {inputs_per_rank: {llm: 40, vit: 64}}\n"
    job.write_text(job.read_text() + limits)
    plan = pipeline.solve(str(job)).plan
    answer = asked(plan, "llm.inputs_per_rank=100")
    job.write_text(job.read_text().replace("llm: 40, vit", "llm: 100, vit"))
    wanted = pipeline.solve(str(job)).plan
    assert answer.after is not None and answer.after.value == score(wanted).step_seconds
    assert answer.before.packs and answer.after.packs
    assert answer.after.packs.micro_batches < answer.before.packs.micro_batches
    written = json.loads(pipeline.files.json_text({"packs": answer.before.packs}))["packs"]
    assert written["micro_batches"] == answer.before.packs.micro_batches and len(written["modules"]) == 2


SUMMARY = "this file as a strategy, for the test below: the LLM's tp as fixed, else the quicker of 1 and 2"


def supports(inputs) -> None:
    return None


def plan(inputs, base) -> Plan:
    every = {name: inputs.job.fix.layouts.get(name, Parallelism()) for name in inputs.model.modules}
    tried = []
    for tp in (1, 2):
        fixed = {**every, "llm": with_fields(Parallelism(tp=tp), **decided_fields(every["llm"]))}
        job = with_fields(inputs.job, strategy="by_hand", fix=with_fields(inputs.job.fix, layouts=fixed))
        found = pipeline.decide(replace(inputs, job=job)).plan
        tried.append((found.outcome.value, tp, found))
    best = min(tried)[2]
    return decided_by(best, inputs.job.strategy, inputs.job.fix.layouts)


def decided_by(plan: Plan, strategy: str, fixed) -> Plan:
    """The plan as a strategy's, whose job fixed these layouts."""
    uses = with_fields(plan.uses, fix=with_fields(plan.uses.fix, layouts=fixed))
    return with_fields(plan, made=with_fields(plan.made, strategy=strategy), uses=uses)


@pytest.mark.soak
def test_a_strategy_that_decided_the_layouts_decides_the_others_again(placed, monkeypatch):
    monkeypatch.setitem(STRATEGIES, "either", StrategyEntry(__name__, decides=("layouts",)))
    made = placed("all ranks")
    own = decided_by(made, "either", {})
    free = asked(own, "vit.zero=1")
    kept = asked(made, "vit.zero=1")
    assert free.after is not None and kept.after is not None
    assert free.kept_seconds == kept.after.value
    assert free.after.value <= kept.after.value
    assert free.kept == (free.after.value == kept.after.value)
    fixed = asked(own, "llm.tp=1")
    assert fixed.after is not None and "tp: 1" in fixed.after.layouts["llm"]


def test_one_step_of_several_has_its_own_items_of_every_module(placed):
    plan = placed("first stage")
    assert single_step(plan, 0).uses.items == plan.uses.items
    assert single_step(plan, 0).uses.feeds == plan.uses.feeds


@pytest.mark.soak
def test_each_step_of_several_is_asked_by_itself(tmp_path):
    """Items of another step, of any module, have no part in the answer: it is that of the step's own batch alone."""
    job = Path(placed_job(tmp_path, PLACEMENTS["first stage"]))
    job.write_text(job.read_text().replace("batch_rows: 12", "batch_rows: 6"))
    plan = pipeline.solve(str(job), JobOptions(batches=2)).plan
    job.write_text(job.read_text().replace("vit: {ranks: first_stage}", "vit: {ranks: first_stage, zero: 3}"))
    for number in range(2):
        alone = pipeline.solve(str(job), JobOptions(first_row=6 * number)).plan
        answer = pipeline.why_not(plan, ("vit.zero=3",), number)
        assert isinstance(answer.before, ModuleFacts) and answer.after is not None
        assert answer.after.value == score(alone).step_seconds
        assert isinstance(pipeline.why(plan, step=number).facts, ModuleFacts)


@pytest.mark.soak
@pytest.mark.parametrize(
    ("word", "fixed"),
    [("llm.pp=2", "llm: {pp: 2}"), pytest.param("vit.zero=3", "vit: {zero: 3}", marks=pytest.mark.soak)],
)
def test_what_the_search_of_joint_layouts_decides_is_decided_again(tmp_path, word, fixed):
    """The answer is the better of what its strategy gives with the field fixed, and of the layouts that it had."""
    job = Path(placed_job(tmp_path, {"llm": "pp: 2"}, rows=ROWS[:4], images=FEW_IMAGES, clips=FEW_CLIPS))
    text = job.read_text().replace("fix: {layouts: {llm: {pp: 2}}}", "strategy: modality_layout\nFIX")
    job.write_text(text.replace("FIX\n", ""))
    made = pipeline.solve(str(job), QUICK).plan
    job.write_text(text.replace("FIX", f"fix: {{layouts: {{{fixed}}}}}"))
    wanted = score(pipeline.solve(str(job), QUICK).plan).step_seconds
    answer = asked(made, word)
    assert answer.after is not None
    known = [wanted, *([answer.kept_seconds] if answer.kept_seconds else [])]
    assert answer.after.value == pytest.approx(min(known), rel=1e-8)
    assert pipeline.why(made).again == pytest.approx(made.outcome.value, rel=1e-8)
