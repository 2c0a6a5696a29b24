"""Loads, choices and sensitivities are what the simulator and the solver give for them."""

from dataclasses import replace

import pytest

from planner import pipeline
from planner.errors import InputError
from planner.plan.plan_file import assignments
from planner.scoring.score import score
from planner.specs.base import Ranks, with_fields
from planner.specs.hardware.cluster import Cluster, Level, RankKind
from planner.why import WhyGroup, WhyItem, WhyPlan
from planner.why.group_loads import group_loads
from planner.why.plan_problem import plan_inputs, single_step
from planner.why.resize_cluster import node_of, spans_nodes, with_bandwidth, with_memory, with_ranks
from tests.plans import degrees_of


def test_slowest_groups_and_constants_make_the_step(wide):
    scored = score(wide)
    placed = group_loads(wide, scored)
    spans = {load.micro_batch: load.seconds for load in placed if not load.waits_for}
    for load in placed:
        assert load.seconds + load.slack == pytest.approx(spans[load.micro_batch])
        assert load.tokens <= load.room
    others = sum(e.seconds for e in scored.timeline.critical_path() if e.phase not in ("F", "B"))
    assert sum(spans.values()) + others == pytest.approx(scored.step_seconds)


def test_an_item_is_where_the_plan_has_it(wide):
    row = wide.steps[0].micro_batches[0]
    placed = next(assignments(wide, row))
    answer = pipeline.why(wide, str(placed.items[0]))
    assert isinstance(answer, WhyItem)
    assert answer.load.group == placed.group
    assert answer.value == pytest.approx(wide.outcome.value)
    (chosen,) = [c for c in answer.choices if c.chosen]
    assert chosen.degree == degrees_of(wide)[placed.group]
    assert chosen.step_seconds == answer.value
    assert [c.degree for c in answer.choices] == sorted(wide.uses.degrees)


def test_alone_an_item_takes_what_its_own_micro_batch_takes(wide):
    """The longest item of this plan is alone in its group: the load is the choice."""
    item = max(wide.uses.items["llm"], key=lambda i: wide.uses.items["llm"][i])
    answer = pipeline.why(wide, str(item))
    assert isinstance(answer, WhyItem)
    assert answer.load.items == (item,)
    (chosen,) = [c for c in answer.choices if c.chosen]
    assert chosen.seconds == pytest.approx(answer.load.seconds)
    for c in answer.choices:
        assert c.fits == (answer.tokens <= c.room_per_rank * c.degree)
        assert c.crosses_nodes == (c.degree > 8)


@pytest.mark.slow
def test_the_step_with_another_degree_is_that_of_why_not(plan):
    item = min(plan.uses.items["llm"])
    answer = pipeline.why(plan, str(item))
    assert isinstance(answer, WhyItem)
    solved = [c for c in answer.choices if c.step_seconds is not None and not c.chosen]
    assert solved
    for c in solved:
        other = pipeline.why_not(plan, (f"items.{item}.degree={c.degree}",))
        assert other.after is not None
        assert other.after.value == c.step_seconds


@pytest.mark.slow
def test_a_group_has_a_load_for_every_micro_batch_it_works_in(wide):
    for name in [*wide.groups][::6]:  # each asks for the whole step once more
        answer = pipeline.why(wide, name)
        assert isinstance(answer, WhyGroup)
        rows = [at for at, row in enumerate(wide.steps[0].micro_batches) if name in row]
        assert [load.micro_batch for load in answer.loads] == rows
        assert sum(answer.sizes["llm"].values()) == sum(load.tokens for load in answer.loads)


@pytest.mark.parametrize("what", ["999999", "9" * 5000, "g7-9", ""])
def test_unknown_things_list_the_known(plan, what):
    with pytest.raises(InputError, match="one of"):
        pipeline.why(plan, what)


@pytest.mark.slow
def test_sensitivities_are_re_solves(wide):
    answer = pipeline.why(wide)
    assert isinstance(answer, WhyPlan)
    assert answer.again == pytest.approx(wide.outcome.value)
    memory, node, network = answer.sensitivities
    inputs = plan_inputs(single_step(wide, 0))
    faster = with_bandwidth(inputs, 2.0)
    assert faster is not None
    for said, machine in ((memory, with_memory(inputs, 1.0)[0]), (network, faster)):
        solved = score(pipeline.plan_of(machine)).step_seconds
        assert said.seconds == min(solved, answer.again, answer.facts.value)
        assert said.saved is not None
        assert said.saved >= 0
    assert node.seconds == score(pipeline.plan_of(with_ranks(inputs, 0, 72))).step_seconds


def test_links_between_nodes_alone_get_faster(wide):
    inputs = plan_inputs(single_step(wide, 0))
    faster = with_bandwidth(inputs, 2.0)
    assert faster is not None
    old, new = inputs.profile.collectives["all_to_all"].points, faster.profile.collectives["all_to_all"].points
    assert {p.ranks: q.gb_per_s / p.gb_per_s for p, q in zip(old, new, strict=True)} == {
        2: 1, 4: 1, 8: 1, 16: 2, 32: 2, 64: 2
    }  # fmt: skip
    assert [level.gb_per_s for level in faster.cluster.levels] == [300, 12.5]
    assert with_bandwidth(with_ranks(inputs, 0, 8), 2.0) is None


def test_memory_is_tokens_where_tokens_are_the_limit(wide):
    inputs = plan_inputs(single_step(wide, 0))
    more, what = with_memory(inputs, 1.0)
    (costs,) = inputs.profile.modules.values()
    tokens = int(2**20 / costs.layer.activation_kib_per_token)  # this profile's layer is the whole model
    assert more.job.limits.tokens_per_rank == inputs.job.limits.tokens_per_rank + tokens
    assert str(tokens) in what
    free = replace(inputs, job=with_fields(inputs.job, limits=with_fields(inputs.job.limits, tokens_per_rank=None)))
    assert with_memory(free, 1.0)[0].device.memory_gib == inputs.device.memory_gib + 1


def test_nodes_hold_ranks_of_one_kind():
    cluster = Cluster(
        format=Cluster.FORMAT,
        name="two kinds",
        source="made up",
        ranks=(RankKind(kind="a", count=6, per_node=4), RankKind(kind="b", count=4, per_node=2)),
        levels=(Level(name="all", ranks=10, gb_per_s=1.0, latency_us=1.0),),
    )
    assert [node_of(cluster, rank) for rank in range(10)] == [0, 0, 0, 0, 1, 1, 2, 2, 3, 3]
    assert not spans_nodes(cluster, Ranks((0, 3)))
    assert spans_nodes(cluster, Ranks((4, 6)))


@pytest.mark.parametrize("fields", [{"recompute": {0: "full"}}, {"gradients": "bf16"}], ids=["recompute", "gradients"])
def test_a_layout_that_no_job_asks_for_is_not_solved_again(wide, fields):
    by_hand = with_fields(wide, layouts={"llm": with_fields(wide.layouts["llm"], **fields)})
    with pytest.raises(InputError, match="no job can ask for this layout") as caught:
        plan_inputs(single_step(by_hand, 0))
    assert caught.value.where == "layouts.llm"


def test_a_word_that_ranges_of_layers_spell_is_solved_again(wide):
    layers = wide.uses.models["llm"].layers
    by_hand = with_fields(
        wide, layouts={"llm": with_fields(wide.layouts["llm"], recompute={f"0-{layers - 1}": "full"})}
    )
    assert plan_inputs(single_step(by_hand, 0)).job.layout.recompute == "full"
