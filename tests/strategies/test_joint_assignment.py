"""Which sample and which item goes where: a permutation of the batch, balanced over modules, and quicker for it."""

import tempfile
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.plan.legal.plan_laws import violations
from planner.plan.plan_file import Layout, Plan, assignments
from planner.scoring import step_seconds
from planner.specs.base import Ranks, with_fields
from planner.specs.inputs import Inputs, JobOptions, load_job
from planner.strategies.assignment.encoder_orders import EncoderOrder, few_orders
from planner.strategies.assignment.joint_assignment import JointItems
from planner.strategies.assignment.joint_streams import encoder_work, pass_places
from planner.strategies.assignment.pipeline_turns import first_stage_slots, pipeline_turns, turns_without_pipeline
from planner.strategies.assignment.rank_loads import PipelineLoads, pipeline_loads
from planner.strategies.assignment.step_estimate import EncoderWork, PipelineWork, Read, step_estimate
from planner.strategies.static.layouts_plan import (
    draft_of_layouts,
    falling_sizes,
    plan_of_layouts,
    plan_together,
    pricing_for,
)
from planner.strategies.static.placement import placed_layouts
from tests.examples import examples
from tests.placed_jobs import EVERY_RANK, LONG_IMAGE, PLACEMENTS, placed_job

CLUSTER = """\
format: planner.cluster/1
name: h100x16
source: made up
ranks: [{kind: h100-80gb, count: 16, per_node: 8}]
levels:
  - {name: node, ranks: 8, gb_per_s: 450, latency_us: 6.5}
  - {name: cluster, ranks: 16, gb_per_s: 50, latency_us: 15}
"""
JOB = """\
format: planner.job/1
name: images
model: qwen2.5-vl-7b
cluster: cluster.yaml
workload:
  lengths:
    from: sample_mix
    text: {{from: mix, parts: [{{weight: 1, median: 1024, sigma: 0.6}}]}}
    images: {{name: coco, each: 4}}
    multimodal: 5
    text_only: 5
  batch_rows: 32
  max_tokens: 8192
  module: llm
fix: {{layouts: {{llm: {{{llm}}}, vision: {{{vision}}}}}}}
"""


def images_job(folder: Path, llm: str, vision: str, seed: int = 0) -> Inputs:
    (folder / "cluster.yaml").write_text(CLUSTER)
    (folder / "job.yaml").write_text(JOB.format(llm=llm, vision=vision))
    return load_job(str(folder / "job.yaml"), JobOptions(seed=seed))


def joint_of(inputs: Inputs) -> JointItems:
    layouts = placed_layouts(inputs, False)
    return JointItems(pricing_for(inputs, layouts), inputs, layouts, few_orders(inputs, layouts)[0])


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.every(2)
def test_a_pipeline_whose_ranks_all_encode_is_no_slower_than_by_the_llm_alone(tmp_path, seed):
    inputs = images_job(tmp_path, "tp: 2, pp: 4, zero: 1", "tp: 1, zero: 2", seed)
    alone = draft_of_layouts(inputs, placed_layouts(inputs, False), JointItems.by_samples)
    assert step_seconds(plan_together(inputs)) <= step_seconds(alone)


def test_later_stages_encode_more_as_they_wait_for_the_first_and_the_one_with_the_head_less(tmp_path):
    inputs = images_job(tmp_path, "tp: 2, pp: 4, zero: 1, micro_batch: 2", "tp: 1, zero: 2")
    plan = draft_of_layouts(inputs, placed_layouts(inputs, False))
    layout, taken = plan.layouts["llm"], np.zeros(4)
    for row in plan.steps[0].micro_batches:
        for a in assignments(plan, row):
            (rank, *_) = plan.groups[a.group].ranks
            taken[rank // (layout.tp * layout.dp)] += len(a.items) if a.module == "vision" else 0
    assert taken[0] < taken[1] < taken[2] and taken[3] < taken[1]


@pytest.mark.parametrize("name", PLACEMENTS)
@pytest.mark.every(3)
def test_no_candidate_has_a_lower_estimate_and_all_have_the_same_items(tmp_path, name):
    joint = joint_of(load_job(placed_job(tmp_path, PLACEMENTS[name]), JobOptions()))
    best, every = joint.best(), [*joint.candidates()]
    assert best.seconds <= min(each.seconds for each in every) * (1 + 1e-9)
    for each in every:
        for module, cells in each.cells.items():
            placed = sorted(item for row in cells for items in row for item in items)
            assert placed == sorted(joint.batch.items if module == "llm" else joint.batch.streams[module])
        sizes = [len(items) for row in each.cells["llm"] for items in row]
        assert max(sizes) <= joint.layout.micro_batch


@pytest.mark.parametrize("name", PLACEMENTS)
@pytest.mark.every(6)
def test_a_rule_gives_its_assignment_again_and_that_of_other_layouts_a_complete_one(tmp_path, name):
    joint = joint_of(load_job(placed_job(tmp_path, PLACEMENTS[name]), JobOptions()))
    every = [*joint.candidates()]
    for each in every:
        assert joint.by_rule(each.rule) == each
    for other in (joint_of(load_job(placed_job(tmp_path, fixed), JobOptions())) for fixed in PLACEMENTS.values()):
        for rule in {each.rule for each in every}:
            cells = other.by_rule(rule).cells
            assert sorted(item for row in cells["llm"] for items in row for item in items) == sorted(other.batch.items)
            for module, stream in other.batch.streams.items():
                assert sorted(item for row in cells[module] for items in row for item in items) == sorted(stream)


def test_a_long_image_is_split_and_short_ones_stay_whole(tmp_path):
    """The split is by heads over all ranks, which compute short images besides; whole, one rank would hold up all."""
    path = placed_job(tmp_path, EVERY_RANK, **LONG_IMAGE)
    plan = plan_together(load_job(path, JobOptions()))
    assert not violations(plan)
    (row,) = plan.steps[0].micro_batches
    assert row["vit"]["vit.g0-3"] == (0,) and sorted(sum(row["vit"].values(), ())) == [0, 1, 2, 3]
    whole = plan_together(load_job(placed_job(tmp_path, {**EVERY_RANK, "vit": "cp: 1"}, **LONG_IMAGE), JobOptions()))
    assert not any(group.split for group in whole.groups.values())
    assert step_seconds(plan) < 0.9 * step_seconds(whole)


def test_items_are_split_only_where_they_may_be(tmp_path):
    for fields in ("cp: 1", "zero: 3", "cp: 2, dp: 2", "pp: 2, dp: 2"):
        joint = joint_of(load_job(placed_job(tmp_path, {**EVERY_RANK, "vit": fields}, **LONG_IMAGE), JobOptions()))
        assert not any(name == "vit" for name, _ in joint.split_streams), fields
    joint = joint_of(load_job(placed_job(tmp_path, EVERY_RANK, **LONG_IMAGE), JobOptions()))
    assert [degree for name, degree in joint.split_streams if name == "vit"] == [2, 4]


def when_read(plan: Plan) -> dict[tuple[str, int], int]:
    """Item of an encoder → the first micro-batch in which the LLM reads it."""
    at = {
        item: number
        for number, row in enumerate(plan.steps[0].micro_batches)
        for a in assignments(plan, row)
        for item in a.items
        if a.module == "llm"
    }
    return {
        (edge.source, item): min(at[reader] for reader in readers)
        for edge in plan.edges
        for item, readers in plan.feeds_of(edge).items()
    }


@examples(12)
@given(st.sampled_from([*PLACEMENTS]), st.integers(1, 4), st.integers(1, 4))
def test_items_are_computed_in_the_first_of_as_many_micro_batches_as_a_pass_serves(name, vit, ear):
    orders = {"vit": EncoderOrder(serves=vit), "ear": EncoderOrder(serves=ear)}
    with tempfile.TemporaryDirectory() as folder:
        inputs = load_job(placed_job(Path(folder), PLACEMENTS[name]), JobOptions())
        plan = plan_of_layouts(inputs, placed_layouts(inputs, True), orders=[orders])
    assert not violations(plan)
    read, served = when_read(plan), {"vit": vit, "ear": ear}
    for number, row in enumerate(plan.steps[0].micro_batches):
        for a in assignments(plan, row):
            for item in a.items if a.module in served else ():
                assert number == read[a.module, item] // served[a.module] * served[a.module]


def test_packs_are_served_by_themselves(tmp_path):
    inputs = load_job(placed_job(tmp_path, PLACEMENTS["all ranks"]), JobOptions())
    limits = with_fields(inputs.job.limits, inputs_per_rank={"llm": 100, "vit": 100, "ear": 100})
    packed = replace(inputs, job=with_fields(inputs.job, limits=limits))
    assert {
        each.serves for orders in few_orders(packed, placed_layouts(packed, False)) for each in orders.values()
    } == {1}


def test_stages_wait_for_those_in_front_of_them(tmp_path):
    """Two replicas of two stages, passes of 3 s on each stage: the second stage waits 1 s for the first forward, and 2
    s behind its last backward.
    """
    joint = joint_of(load_job(placed_job(tmp_path, PLACEMENTS["first stage"]), JobOptions()))
    found = pipeline_loads(joint.replicas, joint.layout, np.array([0.5, 0.5]), np.full((2, 5), 6.0), 4)
    assert found.busy.tolist() == [15.0] * 4
    assert found.warm_up.tolist() == [0.0, 0.0, 1.0, 1.0] and found.drain.tolist() == [0.0, 0.0, 2.0, 2.0]


PAIR, TWO_READ = [Ranks((0,)), Ranks((1,))], [[Read(range(0, 1), 0, 1), Read(range(1, 2), 0, 1)], []]
NONE = np.full((2, 2), 2)


def work(forward, backward, before=((0, 0), (2, 2)), behind=NONE, reads=TWO_READ, synchronised=False) -> EncoderWork:
    seconds = [np.array([each, (0.0, 0.0)]) for each in (forward, backward)]
    return EncoderWork(PAIR, *seconds, np.array(before), np.array(behind), reads, synchronised)


def in_turns(passes) -> PipelineWork:
    """The work of two replicas of one rank, micro-batch by micro-batch."""
    return PipelineWork(PAIR, turns_without_pipeline(passes), np.zeros(2), np.zeros(2), synchronised=False)


def test_the_estimate_of_a_step_by_hand():
    """Two replicas of one rank, two micro-batches of 10 s. The second replica encodes for both ahead of its first
    micro-batch (3 s), and backwards take 5 s; kept at home, each encodes its own.
    """
    llm = in_turns(np.full((2, 2), 10.0))
    given_away = work((0.0, 3.0), (0.0, 5.0))
    assert step_estimate(llm, [given_away]) == 3 + 20 + 5
    at_home = work((1.0, 2.0), (3.0, 2.0), reads=[[Read(range(0, 1), 0, 0), Read(range(1, 2), 0, 1)], []])
    assert step_estimate(llm, [at_home]) == 24
    assert step_estimate(llm, [replace(at_home, synchronised=True)]) == 2 + 20 + 3
    assert step_estimate(replace(llm, drain=np.array([4.0, 1.0])), [at_home]) == 23
    assert step_estimate(replace(llm, synchronised=True), [at_home]) == 2 + 20 + 3
    at_once = replace(at_home, behind=np.array([(0, 0), (2, 2)]))
    assert step_estimate(replace(llm, drain=np.array([4.0, 1.0])), [at_once]) == 24  # then no drain helps


@pytest.mark.parametrize(("trained", "ahead"), [("all", 1 / 3), ("none", 1.0)])
def test_an_encoder_that_is_not_trained_computes_forwards_alone(tmp_path, trained, ahead):
    """All seconds of its items are ahead of who reads them, where one that is trained has a third of them there."""
    job = Path(placed_job(tmp_path, PLACEMENTS["all ranks"]))
    job.write_text(f"{job.read_text()}trained: {{vit: {trained}}}\n")
    inputs = load_job(str(job), JobOptions())
    stream, reader = joint_of(inputs).streams["vit"], ("llm", Ranks((0,)))
    items, seconds = [*stream.sizes], np.ones((1, len(stream.places)))
    cells = [[items, *([] for _ in stream.places[1:])]]
    read = dict.fromkeys(items, 0), dict.fromkeys(items, reader)
    found = encoder_work(stream, EncoderOrder(), cells, seconds, read, {})
    assert found.forward == pytest.approx(ahead * seconds)
    assert found.forward + found.backward == pytest.approx(seconds)


def test_outputs_that_are_read_later_are_not_waited_for_before():
    """Of 3 s ahead of the first micro-batch, which nobody reads until the second, only the rank that computes them
    stops; if its pipeline fills meanwhile, not even that.
    """
    llm = in_turns(np.array([[10.0, 10.0], [5.0, 5.0]]))
    early = work((0.0, 3.0), (0.0, 0.0), reads=[[], [Read(range(0, 1), 0, 1)]])
    assert step_estimate(llm, [early]) == 20
    slower = in_turns(np.full((2, 2), 10.0))
    assert step_estimate(slower, [early]) == 23
    assert step_estimate(replace(slower, warm_up=np.array([0.0, 2.0])), [early]) == 21


def test_encoders_apart_wait_for_the_gradients_of_who_reads_them():
    """One replica of two micro-batches of 10 s; an encoder on a rank of its own takes 1 s for each forward and 3 s for
    each backward. Of all but the first forward and the last backward, the replica does other things meanwhile; where
    backwards come last, they follow one another behind it.
    """
    llm = replace(in_turns(np.full((1, 2), 10.0)), replicas=PAIR[:1])
    reads = [[Read(range(1), 0, 0)], [Read(range(1), 1, 0)]]
    own = EncoderWork(
        [Ranks((1,))], np.ones((2, 1)), np.full((2, 1), 3.0), np.zeros((2, 1)), np.full((2, 1), 2), reads, False
    )
    assert step_estimate(llm, [own]) == 1 + 20 + 6
    assert step_estimate(llm, [replace(own, behind=np.array([[0], [1]]))]) == 1 + 20 + 3
    slow = replace(own, backward=np.full((2, 1), 30.0), behind=np.array([[0], [1]]))
    assert step_estimate(llm, [slow]) == 1 + 10 + 60  # which begins when the first micro-batch has ended


def test_turns_follow_the_schedule_of_the_first_stage(tmp_path):
    """1F1B over two stages runs F0 F1 B0 F2 B1 B2 on the first, interleaved with two chunks each micro-batch again."""
    idle = PipelineLoads(np.zeros(2), np.array([0.0, 1.0]), np.array([0.0, 2.0]))
    layout = joint_of(load_job(placed_job(tmp_path, PLACEMENTS["first stage"]), JobOptions())).layout
    turns = pipeline_turns(first_stage_slots(layout, 3), np.full((1, 3), 3.0), idle, [Ranks((0, 1))])
    assert [(turn.phase, turn.number) for turn in turns] == [*zip("FFBFBB", (0, 1, 0, 2, 1, 2), strict=True)]
    assert [turn.seconds.item() for turn in turns] == [0.0, 1.0, 1.0 + 2.0 + 2.0, 0.0, 1.0 + 2.0, 2.0 + 1.0]
    chunks = with_fields(layout, vpp=2, schedule="interleaved")
    turns = pipeline_turns(first_stage_slots(chunks, 4), np.full((1, 4), 1.5), idle, [Ranks((0, 1))])
    assert sum(turn.seconds.item() for turn in turns) == pytest.approx(4 * 3.0 + 3.0)
    assert [turn.number for turn in turns if turn.phase == "B"] == [0, 1, 2, 3]


def test_passes_run_as_far_ahead_as_their_order_says():
    cells, when = [[[0], []], [[], []], [[1, 2], [3]], [[], []]], {0: 1, 1: 3, 2: 2, 3: 3}
    before, behind = pass_places(cells, when, EncoderOrder(), False)
    assert before.tolist() == [[1, 4], [4, 4], [2, 3], [4, 4]] and (behind == 4).all()
    before, behind = pass_places(cells, when, EncoderOrder(ahead=2, at_once=True), False)
    assert before.tolist() == [[0, 4], [4, 4], [0, 1], [4, 4]] and behind.tolist() == [[1, 4], [4, 4], [3, 3], [4, 4]]
    before, behind = pass_places(cells, when, EncoderOrder(ahead=None), False)
    assert before.tolist() == [[0, 4], [4, 4], [0, 0], [4, 4]] and (behind == 4).all()
    before, behind = pass_places(cells, when, EncoderOrder(at_once=True), True)
    assert before.tolist() == [[1, 1], [4, 4], [2, 2], [4, 4]] and behind.tolist() == [[1, 1], [4, 4], [3, 3], [4, 4]]


@given(st.integers(1, 64), st.integers(1, 8), st.integers(1, 300))
def test_micro_batches_get_smaller_until_they_have_one_sample(size, replicas, samples):
    layout = Layout(tp=1, dp=replicas, micro_batch=size, ranks=Ranks(range(replicas)))
    sizes = [*falling_sizes(layout, samples)]
    assert sizes[0] == size and sizes[-1] == 1
    assert all(after < before for before, after in pairwise(sizes))
