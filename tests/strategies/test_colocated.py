"""Samples on groups that change with every micro-batch beside encoders on all ranks: legal plans of all items, within
memory, no quicker than what is proven, and what cannot be says why.
"""

import tempfile
from collections import Counter
from dataclasses import replace
from math import prod
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.callbacks import silent
from planner.costs import pricing_of
from planner.errors import Infeasible, Unsupported
from planner.files import dump
from planner.layouts import with_joint_fields
from planner.plan.legal.plan_laws import violations
from planner.plan.plan_file import Layout, assignments
from planner.scoring import BOUNDS, require_memory, score
from planner.scoring.bounds.bounded_step import BoundedStep
from planner.solve_job import solve_job, solve_with
from planner.specs.base import Ranks, with_fields
from planner.specs.inputs import JobOptions, load_job
from planner.specs.parallelism import Parallelism
from planner.strategies.assignment.encoder_orders import EncoderOrder
from planner.strategies.colocated.encoder_layouts import encoder_layouts
from planner.strategies.colocated.grouped_plan import with_hidden_offload
from tests.examples import examples
from tests.grouped_jobs import GROUPED, any_grouped_plan, grouped_job

LONG_TAIL = (4000, 300, 250, 9000, 500, 700, 120, 2500, 900, 100)
PICTURES = "patches,row\n160,0\n160+800,3\n3200,3\n800,4\n2400,7\n320,9\n"


def solved(inputs):
    return solve_job(inputs, silent).plan


def placed(plan):
    each = (a for step in plan.steps for row in step.micro_batches for a in assignments(plan, row))
    return Counter((a.module, item) for a in each for item in a.items)


def degrees(plan):
    rows = (row for step in plan.steps for row in step.micro_batches)
    return {len(plan.groups[a.group].ranks) for row in rows for a in assignments(plan, row) if a.module == "llm"}


@pytest.mark.slow
@pytest.mark.parametrize("strategy", GROUPED)
@pytest.mark.every(2)
def test_every_item_is_in_one_legal_plan_with_groups_of_several_degrees_and_numbers_of_its_own(tmp_path, strategy):
    inputs = grouped_job(tmp_path, strategy)
    plan = solved(inputs)
    batch = inputs.batches[0]
    every = {"llm": batch.items, **batch.streams}
    assert placed(plan) == {(module, item): 1 for module, items in every.items() for item in items}
    assert violations(plan) == [] and len(degrees(plan)) > 1
    assert plan.outcome.value == pytest.approx(score(plan).step_seconds, rel=1e-8)
    assert plan.outcome.bound <= plan.outcome.value and not BOUNDS[plan.outcome.bound_by].same_work
    assert plan.layouts["vit"].ranks == Ranks(range(4)) and plan.made.strategy == strategy
    assert dump(plan) == dump(solved(inputs))


@pytest.mark.slow
@pytest.mark.parametrize("strategy", GROUPED)
@pytest.mark.every(2)
def test_batches_that_follow_keep_the_layouts_of_the_first(tmp_path, strategy):
    grouped_job(tmp_path, strategy, more="", data=((*LONG_TAIL, *LONG_TAIL[::-1]), PICTURES))
    text = (tmp_path / "job.yaml").read_text().replace("batch_rows: 20", "batch_rows: 10")
    (tmp_path / "job.yaml").write_text(text)
    plan = solved(load_job(str(tmp_path / "job.yaml"), JobOptions(batches=2)))
    assert len(plan.steps) == 2 and violations(plan) == []
    assert sorted(item for module, item in placed(plan) if module == "llm") == [*range(20)]


@pytest.mark.slow
@given(st.integers(0, 2**32 - 1), st.sampled_from(GROUPED))
@examples(30)
def test_no_packing_with_any_encoders_beside_it_is_below_a_bound(seed, strategy):
    random = Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        inputs = grouped_job(Path(folder), strategy, more="", data=(LONG_TAIL, PICTURES))
        plan = any_grouped_plan(inputs, encoder_layout(random, strategy), encoder_order(random), random)
    assert violations(plan) == []
    found = score(plan)
    step = BoundedStep(plan, 0, pricing_of(plan), found.tasks, found.timeline)
    applied = {by: each.seconds(step) for by, each in BOUNDS.items() if each.applies(step)}
    assert max(applied.values()) <= found.step_seconds * (1 + 1e-9), applied


def encoder_order(random: Random) -> EncoderOrder:
    serves = random.choice((1, 2, None))
    return EncoderOrder(serves, random.choice((0, 1, 3)) if serves == 1 else 0, random.random() < 0.5)


def encoder_layout(random: Random, strategy: str) -> Layout:
    mesh = random.choice(({"dp": 4}, {"tp": 2, "dp": 2}, {"tp": 4}, {"dp": 2, "cp": 2, "ulysses": 2}))
    assert prod(mesh[dim] for dim in ("tp", "dp", "cp") if dim in mesh) == 4
    return Layout(
        ranks=Ranks(range(4)),
        **mesh,
        zero=1 if strategy == "data_ranks" else random.choice((0, 1, 2, 3)),
        recompute=random.choice(("none", "selective", "full")),
        dtype="float32",
    )


def on_h100(folder: Path, margin: float):
    """A job of a model of 7B parameters, whose states and activations leave a rank not too much."""
    cluster = """\
format: planner.cluster/1
name: h100s
source: made up
ranks: [{kind: h100-80gb, count: 8, per_node: 8}]
levels: [{name: node, ranks: 8, gb_per_s: 450, latency_us: 6.5}]
"""
    job = f"""\
format: planner.job/1
name: long-tail
model: qwen2.5-vl-7b
cluster: cluster.yaml
strategy: sequence_groups
degrees: [1, 2, 4, 8]
limits: {{memory_margin: {margin}}}
workload:
  lengths:
    from: sample_mix
    text: {{from: mix, parts: [{{weight: 1, median: 2000, sigma: 1.4}}]}}
    images: {{name: coco, each: 3}}
    multimodal: 5
    text_only: 5
  batch_rows: 24
  max_tokens: 32768
  module: llm
"""
    (folder / "cluster.yaml").write_text(cluster)
    (folder / "job.yaml").write_text(job)
    return load_job(str(folder / "job.yaml"), JobOptions(effort=1))


@pytest.mark.slow
def test_encoders_states_and_activations_are_counted_beside_the_samples(tmp_path):
    inputs = on_h100(tmp_path, 0.06)
    plan = solved(inputs)
    found = score(plan)
    require_memory(plan, found)
    assert found.plan_memory.static_bytes(0) < found.peak_bytes <= found.plan_memory.allowed_bytes(0)
    assert violations(plan) == [] and plan.outcome.bound <= plan.outcome.value


def test_what_fits_with_no_layout_of_the_encoders_says_what_binds(tmp_path):
    with pytest.raises(Infeasible) as error:
        solved(on_h100(tmp_path, 0.9))
    assert error.value.where and error.value.fix


@pytest.mark.parametrize(
    ("fixed", "more", "says"),
    [
        ("llm: {tp: 2}", "", "tp of `llm`"),
        ("vit: {ranks: 0-1}", "", "ranks of `vit`"),
        ("vit: {pp: 2}", "", "pp of `vit`"),
        ("", "planning: per_batch\n", "ahead of training"),
        ("", "limits: {inputs_per_rank: {llm: 300}}\n", "inputs_per_rank"),
    ],
)
@pytest.mark.parametrize("strategy", GROUPED)
def test_what_groups_cannot_keep_is_refused_with_a_fix(tmp_path, strategy, fixed, more, says):
    inputs = grouped_job(tmp_path, strategy, fixed=fixed, more=more)
    with pytest.raises(Unsupported) as error:
        solved(inputs)
    assert says in error.value.message and error.value.fix


def test_an_encoder_shards_as_often_as_ranks_synchronise(tmp_path):
    """Ranks that synchronise once a step gather nothing in every micro-batch: no ZeRO-3, and one that is fixed is
    refused.
    """
    inputs = grouped_job(tmp_path, "data_ranks", fixed="vit: {zero: 3}")
    with pytest.raises(Unsupported, match="zero: 3 of `vit`"):
        solved(inputs)
    job = with_fields(inputs.job, trained={"vit": "none"}, fix=with_fields(inputs.job.fix, layouts={}))
    free = replace(inputs, job=with_fields(job, layout=with_fields(job.layout, zero=None)))
    found = [layouts["vit"].zero for layouts, _ in encoder_layouts(free)]
    assert found and max(found) < 3


def test_encoders_offload_what_hides_of_their_shortest_item():
    """Copies hide behind an item's own compute, so the shortest says how much; what a job fixes is kept."""
    inputs = load_job("qwen2.5-omni-7b-h100x16", JobOptions())
    every = Layout(ranks=Ranks(range(16)), dp=16, zero=2, offload=1.0)
    layouts = dict.fromkeys(inputs.model.modules, every)
    found = with_hidden_offload(inputs, layouts)
    assert 0.0 < found["vision"].offload < 1.0 and found["llm"].offload == 1.0
    again = with_hidden_offload(inputs, {**layouts, "vision": with_fields(every, offload=found["vision"].offload / 2)})
    assert again["vision"].offload == found["vision"].offload / 2
    fix = with_fields(inputs.job.fix, layouts={"vision": Parallelism(offload=1.0)})
    kept = with_hidden_offload(replace(inputs, job=with_fields(inputs.job, fix=fix)), layouts)
    assert kept["vision"].offload == 1.0 and kept["audio"].offload == found["audio"].offload


@pytest.mark.slow
def test_an_encoder_keeps_what_the_job_fixes_of_it(tmp_path):
    fixed = "vit: {tp: 2, zero: 0, recompute: full}"
    plan = solved(grouped_job(tmp_path, "sequence_groups", fixed=fixed))
    found = plan.layouts["vit"]
    assert (found.tp, found.zero, found.recompute) == (2, 0, "full")
    assert plan.layouts["llm"].zero == 3 and plan.layouts["llm"].dp == 4


@pytest.mark.soak
def test_best_is_no_slower_than_groups_or_static_layouts_and_names_the_others(tmp_path):
    inputs = grouped_job(tmp_path, "sequence_groups", more="", data=(LONG_TAIL, PICTURES))
    inputs = replace(inputs, job=with_fields(inputs.job, strategy="best"), effort=1)
    best = solved(inputs)
    alone = {name: solve_with(name, inputs, silent).plan for name in ("sequence_groups", "modality_layout")}
    assert all(best.outcome.value <= each.outcome.value * (1 + 1e-9) for each in alone.values())
    assert best.outcome.bound <= min(each.outcome.bound for each in alone.values()) * (1 + 1e-9)
    names = {best.made.strategy, *(each.strategy for each in best.alternatives)}
    assert {"sequence_groups", "data_ranks", "modality_layout"} <= names
    assert best.uses.fix == with_joint_fields(inputs).job.fix and violations(best) == []
