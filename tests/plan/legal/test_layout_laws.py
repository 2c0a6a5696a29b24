"""Laws of one layout: what it says of replicas, of experts, of gradients and of recomputation is of what there is."""

import re

import pytest

from planner import files
from planner.errors import InputError
from planner.plan.descriptions import layout_text
from planner.plan.legal.plan_laws import violations
from planner.plan.plan_file import ExpertLayout, Layout, Plan
from planner.plan.tasks.expand import expand
from planner.specs.base import Ranks, with_fields
from planner.specs.job import Fix
from planner.specs.layers.components import Experts, StateSpace
from planner.specs.parallelism import Parallelism
from tests.plans import decoder, encoder_plan, sharded_plan, staged_plan, stages_of

SHARDED = sharded_plan(4, [[(0, 2), (2, 2)], [(0, 4)]])
STAGED = staged_plan(2, 3)  # four layers, no replicas
HYBRID = with_fields(decoder(), state_space=StateSpace(heads=4, head_dim=8, state=8), pattern="M *- M- -")
RELATIVE = with_fields(decoder(), positions="relative", buckets=8)
MOE = with_fields(decoder(), moe=Experts(experts=4, topk=2, ffn=32))
LATE = with_fields(MOE, moe=with_fields(MOE.moe, dense_layers=2))
TWO = ExpertLayout(ep=2)


def layout(plan: Plan, module=None, **fields) -> Plan:
    plan = with_fields(plan, layouts={"llm": with_fields(plan.layouts["llm"], **fields)})
    return with_fields(plan, uses=with_fields(plan.uses, models={"llm": module})) if module else plan


def fixed(plan: Plan, **fields) -> Plan:
    uses = with_fields(plan.uses, fix=Fix(layouts={"llm": Parallelism(**fields)}))
    return with_fields(plan, uses=uses)


@pytest.mark.parametrize(
    ("plan", "where", "message"),
    [
        (layout(SHARDED, replica=3, dp=2), "", "dp 2 · replica 3 makes 6 ranks, and the layout has 4"),
        (layout(SHARDED, dp=1), "", "dp 1 makes 1 ranks, and the layout has 4"),
        (layout(SHARDED, dp=4, cp=2), "", "cp 2 · dp 4 makes 8 ranks, and the layout has 4"),
        (layout(SHARDED, rank_order="tp-pp"), ".rank_order", "tp-pp does not say where dp is, and dp is 4"),
        (layout(STAGED, vpp=2), "", "2 stages for pp = 2 and vpp = 2"),
        (layout(SHARDED, vpp=2), "", "0 stages for pp = 1 and vpp = 2"),
        (layout(SHARDED, stages=stages_of(4, 2)), "", "2 stages for pp = 1"),
        (layout(SHARDED, recompute={"0-4": "full"}), ".recompute", "layer 4 does not exist, there are 4"),
        (layout(SHARDED, recompute={"0-2": "full", 2: "none"}), ".recompute", "layer 2 is in 2 of the ranges"),
        (layout(SHARDED, recompute={"2-1": "full"}), ".recompute", "the indices in `2-1` do not rise"),
        (layout(SHARDED, recompute={"first": "full"}), ".recompute", "`first` is no set of indices"),
        (layout(SHARDED, dispatch="all_gather"), "", "the module has none"),
        (layout(STAGED, gradients="bf16"), "", "no parameter has replicas"),
        (layout(SHARDED, HYBRID, dp=2, cp=2), ".cp", "state spaces scan whole documents, and cp = 2 shards them"),
        (layout(SHARDED, RELATIVE, dp=2, cp=2), ".cp", "relative positions are of tokens on one rank, and cp = 2"),
        (layout(STAGED, RELATIVE), ".pp", "the table of relative positions is on the first stage alone, and pp = 2"),
        (layout(SHARDED, HYBRID, dp=2, tp=2), ".tp", "1 groups of heads cannot be sharded over tp = 2"),
        (layout(SHARDED, experts={"0-3": TWO}), ".experts.0-3", "layers 0-3 have no experts"),
        (layout(SHARDED, LATE, experts={"0-1": TWO}), ".experts.0-1", "layers 0-1 have no experts"),
        (layout(SHARDED, MOE, experts={"0-4": TWO}), ".experts", "layer 4 does not exist, there are 4"),
        (layout(SHARDED, MOE, experts={"0-2": TWO, 2: TWO}), ".experts", "layer 2 is in 2 of the ranges"),
        (layout(SHARDED, MOE, experts={"3-2": TWO}, gradients="bf16"), ".experts", "the indices in `3-2` do not rise"),
        (fixed(layout(SHARDED, MOE, ep=4, experts={1: TWO}), ep=4), ".ep", "ep is fixed to 4, and the layout has 2"),
        (layout(SHARDED, MOE, ep=2, experts={1: ExpertLayout(etp=4)}), ".experts.1", "the experts' mesh holds 8"),
        (layout(SHARDED, MOE, experts={1: ExpertLayout(ep=3)}), ".experts.1", "cannot be sharded over ep = 3"),
    ],
    ids=lambda value: value if isinstance(value, str) and " " in value else "",
)
def test_a_broken_law_is_found(plan, where, message):
    found = violations(plan)
    assert any(v.where == f"layouts.llm{where}" and message in v.message and v.fix for v in found), found


@pytest.mark.parametrize("spec", [HYBRID, RELATIVE])
def test_groups_part_no_documents_of_what_wants_them_whole(spec):
    found = violations(layout(SHARDED, spec))
    assert {v.where for v in found} == {"groups.g0-1.split", "groups.g2-3.split", "groups.g0-3.split"}
    assert "the group shards them over 2 ranks" in found[0].message and found[0].fix


def test_state_spaces_lie_on_stages():
    assert not violations(layout(STAGED, HYBRID))


@pytest.mark.parametrize(
    "plan",
    [
        layout(SHARDED, replica=2, dp=2),
        layout(SHARDED, dp=2, replica=2, rank_order="replica-dp", gradients="bf16"),
        layout(SHARDED, replica=4, dp=1),
        layout(SHARDED, recompute={"0,2": "full", 3: "selective"}),
        layout(SHARDED, recompute={}),
        layout(SHARDED, MOE, ep=4, dispatch="all_gather"),
        layout(SHARDED, LATE, ep=4, experts={"1-2": ExpertLayout(dispatch="all_gather"), 3: ExpertLayout(ep=1, etp=2)}),
    ],
    ids=["replicas", "gradients", "only replicas", "recompute", "nothing said", "dispatch", "experts by layer"],
)
def test_what_a_plan_can_say(plan):
    assert violations(plan) == []
    assert files.parse(files.dump(plan), Plan, "again") == plan


ORDERED = staged_plan(2, 4, "gpipe")  # by its step
INTERLEAVED = layout(
    with_fields(staged_plan(2, 4), steps=(with_fields(staged_plan(2, 4).steps[0], order={}),)),
    vpp=2,
    stages=stages_of(4, 4),
)
BACK = layout(SHARDED, dp=2, replica=2, rank_order="replica-dp")


@pytest.mark.parametrize(
    ("plan", "where", "message"),
    [
        (fixed(SHARDED, zero=1), "layouts.llm.zero", "zero is fixed to 1, and the layout has 3"),
        (fixed(SHARDED, tp=2, dp=2), "layouts.llm.dp", "dp is fixed to 2, and the layout has 4"),
        (
            fixed(SHARDED, recompute={"0": "full"}),
            "layouts.llm.recompute",
            "fixed to {0: full}, and the layout has none",
        ),
        (fixed(SHARDED, overlap=("tp",)), "layouts.llm.overlap", "fixed to [tp], and the layout has []"),
        (fixed(SHARDED, sequence_parallel=False), "layouts.llm.sequence_parallel", "fixed to false"),
        (fixed(BACK, rank_order="dp-replica"), "layouts.llm.rank_order", "the layout has replica-dp"),
        (fixed(ORDERED, schedule="1f1b"), "steps[0].order.llm", "fixed to 1f1b, and the plan has gpipe"),
        (fixed(INTERLEAVED, schedule="1f1b"), "layouts.llm.schedule", "the plan has interleaved"),
        (
            fixed(staged_plan(2, 1, ("F0 B0", "F0 B0")), schedule="1f1b"),
            "steps[0].order.llm",
            "the plan has another, slot by slot",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) and " " in value else "",
)
def test_what_was_fixed_and_is_otherwise_is_found(plan, where, message):
    assert any(v.where == where and message in v.message and v.fix for v in violations(plan)), violations(plan)


@pytest.mark.parametrize(
    "plan",
    [
        fixed(SHARDED, zero=3, dp=4, tp=1, rank_order="dp-pp-tp"),
        fixed(SHARDED, recompute={"0-3": "none"}, micro_batch=1),
        fixed(BACK, rank_order="pp-replica-dp-tp"),
        fixed(ORDERED, schedule="gpipe", pp=2),
        fixed(INTERLEAVED, schedule="interleaved", vpp=2),
    ],
)
def test_what_was_fixed_and_is_so_is_legal(plan):
    assert violations(plan) == []


def test_a_layout_says_the_schedule_of_steps_that_do_not():
    """As an order of the step would: the same tasks, and the same laws."""
    step = staged_plan(2, 3).steps[0]
    said = with_fields(layout(staged_plan(2, 3), schedule="zb_h1"), steps=(with_fields(step, order={}),))
    assert violations(said) == []
    assert expand(said) == expand(staged_plan(2, 3, "zb_h1")) != expand(staged_plan(2, 3))
    offloads = layout(said, offload=0.5)
    assert [v.where for v in violations(offloads) if "I is a part" in v.message] == ["layouts.llm.schedule"]
    again = with_fields(offloads, steps=(step,))
    assert not any("I is a part" in v.message for v in violations(again))  # the step says 1f1b


def test_a_schedule_that_nothing_asks_for_is_found():
    plan = encoder_plan()
    plan = with_fields(plan, layouts={**plan.layouts, "vit": with_fields(plan.layouts["vit"], schedule="1f1b")})
    assert any(v.where == "layouts.vit.schedule" and "has no effect" in v.message for v in violations(plan))


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("rank_order: tp-copies-dp", "no dim of a layout is called `copies`"),
        ("rank_order: tp-dp-tp", "`tp` is in the order twice"),
        ("cp: 4, ulysses: 3", "ulysses 3 does not divide cp 4"),
    ],
)
def test_what_no_layout_can_be_is_refused_where_it_is_read(tmp_path, said, message):
    text = files.dump(SHARDED)
    assert text.count("dp: 4") == 1
    (tmp_path / "plan.yaml").write_text(text.replace("dp: 4", f"dp: 4, {said}"))
    with pytest.raises(InputError, match=message) as refused:
        files.read(tmp_path / "plan.yaml", Plan)
    line = text[: text.index("dp: 4")].count("\n") + 1
    assert re.search(rf"plan\.yaml:{line}:\d+", refused.value.where), refused.value.where


def test_gradients_of_experts_that_the_ranks_of_tp_share_are_summed():
    """Of one data-parallel rank: the dense part is split, the experts have a copy on each."""
    alone = with_fields(staged_plan(1, 1), steps=(with_fields(SHARDED.steps[0], sync="step"),))
    spread = {"ranks": Ranks(range(4)), "dp": 1, "tp": 4, "zero": 0, "gradients": "bf16"}
    plan = with_fields(SHARDED, steps=alone.steps)
    messages = [
        [v.message for v in violations(layout(plan, MOE, **spread, **experts)) if "gradients" in v.message]
        for experts in ({}, {"ep": 2}, {"ep": 4}, {"ep": 2, "etp": 2})
    ]
    assert [len(each) for each in messages] == [0, 0, 1, 1]


def test_layers_that_are_made_again_cannot_have_their_backward_in_two():
    parted = layout(staged_plan(2, 3, "zb_h1"), recompute={0: "full"})
    assert any("recompute {0: full} recomputes activations in I" in v.message for v in violations(parted))
    assert violations(layout(parted, recompute={"0-3": "none"})) == []


def test_what_each_layer_makes_again():
    said = Layout(ranks=Ranks((0,)), recompute={"0-1,5": "full", 3: "selective"})
    assert [said.layer_recompute(layer) for layer in range(6)] == ["full", "full", "none", "selective", "none", "full"]
    assert said.recompute_counts(range(6)) == {"full": 3, "none": 2, "selective": 1}
    assert with_fields(said, recompute="full").recompute_counts(range(2, 4)) == {"full": 2}


def test_a_layout_in_words():
    said = Layout(ranks=Ranks(range(8)), replica=2, dp=4, zero=1)
    degrees, states = "tp: 1, cp: 1, pp: 1, dp: 4, replica: 2, zero: 1", "micro_batch: 1, dtype: bf16"
    assert layout_text(said) == f"{{{degrees}, recompute: none, {states}}}"
    more = with_fields(said, recompute={"0-3": "full", 9: "selective"}, gradients="bf16", dispatch="all_gather")
    words = "dispatch: all_gather, gradients: bf16"
    assert layout_text(more) == f"{{{degrees}, recompute: {{0-3: full, 9: selective}}, {states}, {words}}}"
    other = Layout(
        ranks=Ranks(range(8)),
        tp=2,
        cp=4,
        ulysses=2,
        rank_order="cp-tp",
        sequence_parallel=False,
        offload=0.5,
        micro_batch=2,
    )
    degrees, states = "tp: 2, cp: 4, ulysses: 2, pp: 1, dp: 1, zero: 0", "micro_batch: 2, dtype: bf16"
    words = "rank_order: cp-tp, sequence_parallel: false, offload: 0.5"
    assert layout_text(other) == f"{{{degrees}, recompute: none, {states}, {words}}}"


def test_each_layer_has_the_experts_that_are_said_of_it():
    """What is not said is as in all layers; parts of the layers are asked for once for each way."""
    said = layout(SHARDED, MOE, ep=4, experts={1: ExpertLayout(ep=2, etp=2), 2: ExpertLayout(dispatch="all_gather")})
    said = said.layouts["llm"]
    each = [said.at_layer(layer) for layer in range(4)]
    assert [at.expert_placement for at in each] == [
        (4, 1, "all_to_all"),
        (2, 2, "all_to_all"),
        (4, 1, "all_gather"),
        (4, 1, "all_to_all"),
    ]
    assert all(at == said.with_expert_placement(at.expert_placement) and not at.experts for at in each)
    assert [(at.expert_placement, own) for at, own in said.by_expert_placement((0, 1, 3))] == [
        (each[0].expert_placement, (0, 3)),
        (each[1].expert_placement, (1,)),
    ]
    assert layout_text(said).endswith("}, experts of layers 1 ep 2 etp 2, 2 dispatch all_gather")
    plain = SHARDED.layouts["llm"]
    assert plain.by_expert_placement((1, 2)) == [(plain, (1, 2))] and plain.at_layer(3) is plain
