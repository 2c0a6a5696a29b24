"""Several tasks in waves: what a plan must hold, its bound against every split, baselines, and what cannot be."""

from collections import Counter
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner import pipeline
from planner.costs import CostLine, TowerSeconds, pricing_of
from planner.errors import Infeasible, InputError, PlannerError
from planner.plan.legal.plan_laws import violations
from planner.plan.plan_file import Plan, assignments
from planner.plan.tasks.expand import expand
from planner.scoring import score
from planner.scoring.bounds.wave_bound import least_seconds, wave_seconds
from planner.specs.base import with_fields
from planner.specs.inputs import Inputs, JobOptions, load_job
from planner.strategies.task_waves import longest_exchange_first, replica_lanes
from planner.strategies.waves.exchange_search import ExchangeSearch, samples_of
from planner.strategies.waves.towers import layouts_by_memory, layouts_on_all_ranks, towers_of
from planner.strategies.waves.wave_baselines import longest_first, marginal_gain, sequential
from planner.strategies.waves.wave_passes import malleable_optimum, wave_passes
from planner.strategies.waves.wave_plan import TowerPass, wave_plan

MODEL = """format: planner.model/1
name: three-towers
source: made for tests
modules:
  image: {kind: vit, layers: 8, hidden: 512, heads: 8, ffn: 2048, patch: 16, out: 256, positions: rope}
  text: {kind: text_encoder, layers: 6, hidden: 256, heads: 4, ffn: 1024, vocab: 1000, positions: rope}
  sound: {kind: vit, layers: 4, hidden: 256, heads: 4, ffn: 1024, patch: 16, channels: 1, out: 256, positions: rope}
tasks:
  named: {modules: [image, text], loss: contrastive}
  heard: {modules: [image, sound], loss: contrastive, weight: 0.5}
"""
JOB = """format: planner.job/1
name: three-towers
model: model.yaml
cluster: a800x8
strategy: task_waves
software: megatron
workload:
  tasks:
    named: {batch_rows: 24, streams: {image: 256, text: 77}}
    heard: {batch_rows: 16, streams: {image: {from: mix, parts: [{weight: 1, median: 200, sigma: 0.5}]}, sound: 128}}
"""


def job_in(folder: Path, job: str = JOB, model: str = MODEL) -> str:
    (folder / "model.yaml").write_text(model)
    (folder / "job.yaml").write_text(job)
    return str(folder / "job.yaml")


def inputs_in(folder: Path, job: str = JOB, model: str = MODEL) -> Inputs:
    return load_job(job_in(folder, job, model), JobOptions())


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    return pipeline.solve(job_in(tmp_path_factory.mktemp("waves")), JobOptions(effort=1)).plan


def test_every_sample_is_in_every_module_of_its_task_once(plan: Plan) -> None:
    given = Counter(
        (a.module, item) for each in plan.steps[0].micro_batches for a in assignments(plan, each) for item in a.items
    )
    asked = Counter(
        (name, sample) for task in plan.uses.tasks.values() for name in task.modules for sample in task.samples
    )
    assert given == asked and not violations(plan)
    assert [len(task.samples) for task in plan.uses.tasks.values()] == [24, 16]


def test_a_loss_waits_for_all_features_of_its_task_and_gradients_for_it(plan: Plan) -> None:
    tasks = {task.id: task for task in expand(plan)}
    losses = [task for task in tasks.values() if task.phase == "loss"]
    assert [task.group for task in losses] == ["named", "heard"]
    for loss in losses:
        own = plan.uses.tasks[loss.group]
        features = [
            t for t in tasks.values() if t.phase == "F" and t.module in own.modules and {*t.items} & {*own.samples}
        ]
        gradients = [
            t for t in tasks.values() if t.phase == "B" and t.module in own.modules and {*t.items} & {*own.samples}
        ]
        assert {*loss.after} == {task.id for task in features}
        assert all(loss.id in task.after for task in gradients) and gradients
        assert {*loss.ranks} == {rank for task in features for rank in task.ranks}
        assert loss.items == own.samples


def test_value_lies_between_bound_and_baselines(plan: Plan) -> None:
    others = {each.strategy: each for each in plan.alternatives}
    assert plan.outcome.bound_by == "waves" and plan.outcome.bound <= plan.outcome.value
    assert all(each.value is None or each.value >= plan.outcome.value for each in others.values())
    assert {*others} >= {"malleable_seconds"} and len(others) >= 2
    found = score(plan)
    assert wave_seconds(plan, 0, pricing_of(plan)) == pytest.approx(found.bound.seconds)


def test_a_step_counts_its_constant_once_on_each_rank(plan: Plan) -> None:
    updates = [event for event in score(plan).timeline.events if event.phase == "update"]
    constant = plan.uses.prices.timing.step_ms / 1e3
    for rank in range(plan.size):
        own = [event for event in updates if rank in event.ranks]
        assert sum(event.end - event.start >= constant for event in own) >= (1 if own else 0)
    whole = [event for event in updates if event.end - event.start >= constant]
    covered = [rank for event in whole for rank in event.ranks]
    assert {*covered} == {rank for event in updates for rank in event.ranks}


LINES = st.builds(
    CostLine,
    lin=st.floats(0.001, 0.1),
    const=st.sampled_from([0.0, 0.05, 1.0]),
)


@given(st.lists(st.tuples(LINES, st.integers(1, 3)), min_size=1, max_size=2), st.integers(1, 3))
def test_no_split_over_replicas_and_passes_beats_the_bound(towers: list[tuple[CostLine, int]], replicas: int) -> None:
    made = [TowerSeconds(str(at), dict.fromkeys(range(count), 10), line) for at, (line, count) in enumerate(towers)]
    places = [(at, row) for at, tower in enumerate(made) for row in tower.samples]
    least = float("inf")
    for where in product(range(replicas), repeat=len(places)):
        busy = [0.0] * replicas
        for (at, replica), count in Counter((at, r) for (at, _), r in zip(places, where, strict=True)).items():
            busy[replica] += made[at].by_count[count]  # a replica's samples in one pass: more would repeat constants
        least = min(least, max(busy))
    assert least_seconds(made, replicas) <= least * (1 + 1e-9)
    if replicas == 1:
        assert least_seconds(made, 1) == pytest.approx(least, rel=1e-6)


def test_baselines_and_placements_split_all_samples(tmp_path: Path) -> None:
    inputs = inputs_in(tmp_path)
    layouts = layouts_on_all_ranks(inputs, 1, "none")
    towers, lanes = towers_of(inputs, layouts), replica_lanes(inputs, layouts)
    exchange = longest_exchange_first(inputs, layouts, [*towers.values()], lanes)
    search = ExchangeSearch(exchange)
    baselines = (sequential(towers, 8), longest_first(inputs, towers, [range(8)]), marginal_gain(inputs, towers, 8))
    for passes in (*baselines, *wave_passes(exchange, lanes, 500)):
        samples = samples_of(exchange.towers, passes, 8)
        assert samples.sum(axis=1).tolist() == [len(tower.samples) for tower in exchange.towers]
        better = search.improved(samples, 60)
        assert search.step(better)[0] <= search.step(samples)[0]
        assert better.min() >= 0 and (better.sum(axis=1) == samples.sum(axis=1)).all()
        assert not violations(wave_plan(inputs, layouts, towers, search.passes(better)))
    ends = [max(each.start + towers[each.tower].seconds(len(each.replicas), len(each.samples)) for each in passes)]
    assert min(ends) >= malleable_optimum(exchange, lanes) * (1 - 1e-9)


def test_more_tasks_than_replicas_are_dealt_longest_first(tmp_path: Path) -> None:
    inputs = inputs_in(tmp_path)
    towers = towers_of(inputs, layouts_on_all_ranks(inputs, 1, "none"))
    passes = marginal_gain(inputs, towers, 1)
    assert [each.tower for each in passes] == ["image", "text", "image", "sound"]
    assert {each.replicas for each in passes} == {(0,)} and [each.start for each in passes] == sorted(
        each.start for each in passes
    )


def test_passes_of_one_replica_are_in_waves_of_their_own(tmp_path: Path) -> None:
    inputs = inputs_in(tmp_path, JOB.replace("software: megatron", "layout: {gradients: bf16}"))
    layouts = layouts_on_all_ranks(inputs, 1, "none")
    towers = towers_of(inputs, layouts)
    image, text, sound = (tuple(tower.samples) for tower in towers.values())
    passes = [
        TowerPass("image", image, (0, 1), 0.0),
        TowerPass("text", text, (2,), 0.0),
        TowerPass("sound", sound, (1, 2), 1.0),
    ]
    made = wave_plan(inputs, layouts, towers, passes)
    assert [[*each] for each in made.steps[0].micro_batches] == [["image", "text"], ["sound"]]
    assert not violations(made) and made.layouts["text"].gradients == "float32"  # of one replica, nothing is sent
    assert {name: str(layout.ranks) for name, layout in made.layouts.items()} == {
        "image": "0-1",
        "text": "2",
        "sound": "1-2",
    }


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (JOB[JOB.index("  tasks:") :], "  tasks: {}\n", "`lengths` is missing"),
        (JOB[JOB.index("  tasks:") :], "  {lengths: 128, batch_rows: 8}\n", "no samples of any"),
        ("heard: {batch_rows: 16", "seen: {batch_rows: 16", "has no task `seen`"),
        ("image: 256, text: 77", "image: 256", "has items of image"),
        ("strategy: task_waves", "strategy: modality_layout", "plans one loss"),
        ("software: megatron", "software: megatron\nlayout: {zero: 3}", "ZeRO-3"),
        ("software: megatron", "software: megatron\nlayout: {pp: 2}", "in replicas of tensor ranks"),
        ("software: megatron", "software: megatron\nlimits: {oom_chance: 0.05, memory_margin: 0.999}", "states of"),
        ("software: megatron", "layout: {tp: 16}", "which divide their heads and the ranks of a node"),
        ("software: megatron", "fix: {layouts: {image: {tp: 2}, text: {tp: 1}}}", "of equally many ranks"),
        ("software: megatron", "layout: {schedule: 1f1b}", "plans no schedule of its own"),
        ("software: megatron", "limits: {tokens_per_rank: 300}", "memory limits them"),
    ],
)
def test_what_cannot_be_is_a_located_error(tmp_path: Path, old: str, new: str, message: str) -> None:
    job = job_in(tmp_path, JOB.replace(old, new))
    with pytest.raises((InputError, Infeasible)) as caught:
        pipeline.solve(job, JobOptions(effort=1))
    assert message in caught.value.message and caught.value.where and caught.value.fix


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("modules: [image, text]", "modules: [image, nose]", "is no module"),
        ("out: 256, positions: rope}\n  text", "out: 128, positions: rope}\n  text", "of the same width"),
        ("loss: contrastive}", "loss: own}", "no loss of its own"),
        ("  heard: {modules: [image, sound], loss: contrastive, weight: 0.5}\n", "", "is in no task"),
        ("tasks:", "edges: [{from: sound, to: text}]\ntasks:", "leave out edges"),
    ],
)
def test_tasks_that_no_model_has(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(PlannerError) as caught:
        inputs_in(tmp_path, model=MODEL.replace(old, new))
    assert message in f"{caught.value.message} {caught.value.fix}" and caught.value.where


def test_a_job_leaves_out_tasks_and_their_modules(tmp_path: Path) -> None:
    inputs = inputs_in(tmp_path, JOB[: JOB.index("    heard")])
    assert [*inputs.model.modules] == ["image", "text"] and inputs.job.workload.batch_rows == 24


def test_one_tower_that_fixes_tensor_ranks_has_all_do_so(tmp_path: Path) -> None:
    inputs = inputs_in(tmp_path, JOB.replace("software: megatron", "fix: {layouts: {image: {tp: 2}}}"))
    found = layouts_by_memory(inputs)
    assert {layout.tp for layouts in found for layout in layouts.values()} == {2}
    assert [layouts["text"].recompute for layouts in found] == ["none", "selective", "full"]


def test_a_frozen_tower_takes_no_constant_out_of_the_bound(plan: Plan) -> None:
    frozen = with_fields(plan.uses.models["image"], trained="none")
    alone = with_fields(plan, uses=with_fields(plan.uses, models={**plan.uses.models, "image": frozen}))
    bound = wave_seconds(alone, 0, pricing_of(alone))
    assert plan.uses.prices.timing.step_ms / 1e3 < bound <= wave_seconds(plan, 0, pricing_of(plan))


def test_a_law_wants_all_items_of_a_sample_in_one_step(plan: Plan) -> None:
    first, second = plan.steps[0].micro_batches[:1], plan.steps[0].micro_batches[1:]
    step = plan.steps[0]
    halves = (with_fields(step, micro_batches=first), with_fields(step, micro_batches=second))
    if second:
        broken = violations(with_fields(plan, steps=halves))
        assert any("in different steps" in each.message for each in broken)
    heard = with_fields(plan.uses, tasks={"heard": plan.uses.tasks["heard"]})
    untold = [each.message for each in violations(with_fields(plan, uses=heard))]
    assert untold == [
        "item 0 of `image` is a sample of no task (24 such)",
        "item 0 of `text` is a sample of no task (24 such)",
    ]
    unknown = with_fields(plan.uses.tasks["named"], modules=("image", "nose"))
    uses = with_fields(plan.uses, tasks={**plan.uses.tasks, "named": unknown})
    assert any("has no layout" in each.message for each in violations(with_fields(plan, uses=uses)))
