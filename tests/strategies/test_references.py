"""A frozen reference beside an LLM, whose loss reads its log-probabilities, is planned as a module that only runs
forward.
"""

import pytest

from planner.costs.pricing import pricing_of
from planner.errors import InputError
from planner.plan.legal.plan_laws import require_legal, violations
from planner.plan.tasks.expand import expand
from planner.runtime.preflight.preflight_checks import require_supported
from planner.scoring import score
from planner.specs.base import with_fields
from planner.specs.inputs import JobOptions, load_job
from planner.specs.parameters import parameter_counts
from planner.strategies import modality_layout
from planner.strategies.static.layouts_plan import solve_together
from tests.modality_jobs import CLUSTER

DECODER = "kind: decoder, layers: 4, hidden: 64, heads: 4, ffn: 96, vocab: 64"
VIT = "  vit: {kind: vit, layers: 2, hidden: 32, heads: 4, ffn: 64, patch: 2, merge: 2, out: 64}\n"
EDGE = "{from: reference, to: llm, by: log_probabilities}"
FROZEN, TEXT = "trained: {reference: none}\n", "lengths: 400, batch_rows: 8, module: llm"


def job(folder, fixed="", edges=EDGE, **said):
    """`said`: `reference`, its shape; `others`, modules; `workload`; `more`, keys of the job."""
    reference, others = said.get("reference", DECODER), said.get("others", "")
    workload, more = said.get("workload", TEXT), said.get("more", FROZEN)
    (folder / "model.yaml").write_text(
        f"format: planner.model/1\nname: dpo\nsource: made up\nmodules:\n  llm: {{{DECODER}}}\n"
        f"  reference: {{{reference}}}\n{others}edges: [{edges}]\n"
    )
    (folder / "cluster.yaml").write_text(CLUSTER.replace("RANKS", "4"))
    (folder / "job.yaml").write_text(
        "format: planner.job/1\nname: dpo\nmodel: ./model.yaml\ncluster: ./cluster.yaml\nprofile: cpu\n"
        f"strategy: modality_layout\nlayout: {{dtype: float32}}\nfix: {{layouts: {{{fixed}}}}}\n"
        f"{more}workload: {{{workload}}}\n"
    )
    return load_job(str(folder / "job.yaml"), JobOptions(effort=1))


APART = "llm: {ranks: 0-1, zero: 1, micro_batch: 1}, reference: {ranks: 2-3, zero: 0}"


def test_it_only_runs_forward_and_reads_every_sample(tmp_path):
    plan = solve_together(job(tmp_path, "llm: {zero: 1}, reference: {zero: 0}"))
    assert not violations(plan)
    tasks = [task for task in expand(plan) if task.module == "reference"]
    assert {task.phase for task in tasks} == {"F", "send", "recv"}
    assert sorted(item for task in tasks if task.phase == "F" for item in task.items) == [*range(8)]
    assert plan.uses.items["reference"] == plan.uses.items["llm"]


@pytest.mark.parametrize("stages", [1, 2, 4])
def test_the_loss_reads_it_on_the_last_stage(tmp_path, stages):
    """One float32 of each token is sent there, wherever the reference is."""
    plan = solve_together(job(tmp_path, f"llm: {{pp: {stages}, zero: 1, micro_batch: 1}}, reference: {{zero: 0}}"))
    tasks = expand(plan)
    received = {task.id for task in tasks if task.module == "reference" and task.phase == "recv"}
    reading = [task for task in tasks if task.phase == "F" and task.module == "llm" and received & {*task.after}]
    assert reading and {task.layers[-1] for task in reading} == {3}
    sends = [task for task in tasks if task.module == "reference" and task.phase == "send"]
    assert all(pricing_of(plan).sent_bytes(task) == 4 * task.tokens for task in sends)


def test_it_holds_its_weights_and_nothing_of_training(tmp_path):
    plan = solve_together(job(tmp_path, APART))
    found = score(plan)
    states = found.plan_memory.static_footprint(2)
    weights = 4 * parameter_counts(plan.uses.models["reference"]).total
    assert (states.weights, states.gradients, states.optimizer) == (weights, 0.0, 0.0)
    static, ends = found.plan_memory.static_bytes(2), [event.end for event in found.timeline.events if 2 in event.ranks]
    waiting = sum(4 * task.tokens for task in found.tasks if task.phase == "send" and 2 in task.ranks)
    behind = [held for when, held in found.memory.curves[2] if when >= max(ends)]
    assert behind and all(static <= held <= static + waiting for held in behind)  # no activations wait for a backward


def test_a_step_takes_no_less_than_the_llm_and_no_more_than_both_one_after_the_other(tmp_path):
    plan = solve_together(job(tmp_path, "llm: {zero: 1}, reference: {zero: 0}"))
    price = pricing_of(plan).price
    forwards = {}
    for task in expand(plan):
        if task.module == "reference" and task.phase == "F":
            forwards[task.ranks] = forwards.get(task.ranks, 0.0) + price(task).value
    models = {"llm": plan.uses.models["llm"]}
    uses = with_fields(plan.uses, models=models, items={"llm": plan.uses.items["llm"]}, feeds={})
    uses = with_fields(uses, fix=with_fields(uses.fix, layouts={}))
    (step,) = plan.steps
    rows = tuple({"llm": row["llm"]} for row in step.micro_batches)
    alone = with_fields(
        plan, uses=uses, edges=(), layouts={"llm": plan.layouts["llm"]}, steps=(with_fields(step, micro_batches=rows),),
        groups={name: group for name, group in plan.groups.items() if name.startswith("llm")},
    )  # fmt: skip
    llm = score(alone).step_seconds
    assert llm < score(plan).step_seconds <= llm + max(forwards.values()) * (1 + 1e-9)


@pytest.mark.slow
def test_it_is_searched_for_and_its_log_probabilities_may_be_kept(tmp_path):
    again = TEXT + ", repeated: {epochs: 3, samples: 1000}"
    plan = modality_layout.plan(job(tmp_path, workload=again), None)
    assert plan.layouts["reference"].features == "host" and plan.outcome.bound <= plan.outcome.value
    once = modality_layout.plan(job(tmp_path), None)
    assert once.layouts["reference"].features == "computed" and once.outcome.value > plan.outcome.value
    assert not violations(plan) and not violations(once)


@pytest.mark.parametrize(
    ("changes", "told", "place"),
    [
        ({"more": ""}, "`reference` is a reference, whose log-probabilities are constants", "trained"),
        ({"reference": DECODER.replace("64}", "64").replace("vocab: 64", "vocab: 60")}, "has 60", "model.yaml"),
        ({"edges": "{from: reference, to: llm}"}, "ends in a loss and has no outputs", "model.yaml"),
        ({"edges": "{from: llm, to: reference, by: log_probabilities}"}, "constants of the loss", "trained"),
        ({"edges": EDGE.replace("}", ", marks: 2}")}, "log-probabilities are of all tokens", "model.yaml"),
        ({"others": VIT, "edges": f"{EDGE}, {{from: llm, to: vit}}"}, "no plan knows before it has run", "model.yaml"),
        ({"more": FROZEN + "rollout: {samples: 8}\n"}, "`rollout`", "job.yaml"),
    ],
)
def test_what_cannot_be_is_a_located_error(tmp_path, changes, told, place):
    with pytest.raises(InputError) as raised:
        job(tmp_path, **changes)
    assert told in raised.value.message and place in raised.value.where and raised.value.fix


def test_a_rollout_is_refused_with_the_reason(tmp_path):
    with pytest.raises(InputError) as raised:
        job(tmp_path, more=FROZEN + "rollout: {samples: 8}\n")
    assert "samples are known when they begin" in raised.value.fix


def test_a_run_is_refused_with_the_reason(tmp_path):
    plan = solve_together(job(tmp_path, APART))
    with pytest.raises(InputError, match="log-probabilities of `reference` cannot be run yet") as raised:
        require_supported(plan)
    assert raised.value.where == "edges[0].by"


def test_a_plan_whose_reference_is_trained_is_illegal(tmp_path):
    plan = solve_together(job(tmp_path, APART))
    models = {**plan.uses.models, "reference": with_fields(plan.uses.models["reference"], trained="all")}
    with pytest.raises(InputError, match="constants of the loss"):
        require_legal(with_fields(plan, uses=with_fields(plan.uses, models=models)), "made up")
