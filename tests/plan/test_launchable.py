"""What a framework can launch: each rule alone, one layout as a million, and published commands of two frameworks."""

from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.plan.launchable.launch_refusals import launch_refusals, launchable
from planner.plan.launchable.launch_rules import (
    CODED_FIELDS,
    NUMERIC_FIELDS,
    RULES,
    TrainedFacts,
    trained_facts,
)
from planner.specs.base import with_fields
from planner.specs.framework.knobs import Knobs
from planner.specs.framework.software import Software
from planner.specs.library import read_named, shipped_names
from planner.specs.model import Model
from planner.specs.parallelism import DEFAULT_RANK_ORDER, Parallelism, Schedule

SHIPPED = shipped_names(Software)
FACTS = TrainedFacts(ranks=64, layers=80, heads=64, kv_heads=8, tied=True, sequences=128, tokens=8192)
DENSE = ("attention", "norm", "mlp")
ONES = Parallelism(tp=1, cp=1, ulysses=1, pp=1, vpp=1, ep=1, etp=1, zero=0, recompute="none", micro_batch=1, replica=1)

# Rule → the knob that it reads and that restricts it, and fields of a layout that it refuses.
REFUSED = {
    "tensor parallelism": ({"tp": False}, {"tp": 2}),
    "sequence parallelism": ({"sequence_parallel": (True,)}, {"tp": 2, "sequence_parallel": False}),
    "key/value heads": ({"kv_heads": "sharded"}, {"tp": 16}),
    "context parallelism": ({"cp": ("ring",)}, {"cp": 4, "ulysses": 2}),
    "heads of Ulysses": ({"ulysses_heads": "key_value"}, {"tp": 2, "cp": 8, "ulysses": 8}),
    "length of sequences": ({"sequence_multiple": "2cp"}, {"cp": 3}),
    "pipeline": ({"pp": False}, {"pp": 2}),
    "chunks need a pipeline": ({"schedules": ()}, {"pp": 2, "vpp": 2}),
    "schedule": ({"schedules": ("interleaved",)}, {"pp": 2, "schedule": "zb_h1"}),
    "even stages": ({"uneven_stages": False}, {"pp": 32}),
    "tied embedding in a pipeline": ({"tied_stages": False}, {"pp": 2}),
    "micro-batches of 1F1B": ({"least_micro_batches": "stages"}, {"pp": 2, "micro_batch": 4}),
    "micro-batches of interleaving": ({"interleaved_micro_batches": "multiple"}, {"pp": 4, "vpp": 5, "micro_batch": 4}),
    "even batch": ({"even_batch": True}, {"micro_batch": 3}),
    "expert parallelism": ({"ep": False}, {"ep": 2}),
    "width of experts": ({"etp": ("one", "tp")}, {"tp": 4, "etp": 2}),
    "mesh of experts": ({"expert_mesh": "replica"}, {"replica": 2, "ep": 64}),
    "dispatch": ({"dispatch": ("all_to_all",)}, {"ep": 2, "dispatch": "all_gather"}),
    "dispatch to nodes": ({"node_level_etp": "one"}, {"tp": 2, "etp": 2, "dispatch": "node_level"}),
    "ZeRO stage": ({"zero": (0, 2, 3)}, {"zero": 1}),
    "ZeRO stage in a pipeline": ({"zero_in_pipeline": (0, 1)}, {"pp": 2, "zero": 2}),
    "ZeRO stage of experts": ({"zero_with_experts": (0, 1, 2)}, {"ep": 2, "zero": 3}),
    "unsharded replicas": ({"unsharded_replicas": "alone"}, {"tp": 2, "zero": 0}),
    "replicas of shards": ({"replica": False}, {"replica": 2, "zero": 1}),
    "replicas without shards": ({"replica_shards": "sharded"}, {"tp": 8, "replica": 8, "zero": 3}),
    "recomputation": ({"recompute": ("none", "full")}, {"recompute": "selective"}),
    "recomputed parts": ({"recomputed_parts": ("norm", "mlp")}, {"recompute": ("attention", "norm")}),
    "offload": ({"offload": "alone"}, {"offload": 0.5, "pp": 2}),
    "offloaded kinds": ({"offload_shares": "none"}, {"offload": 0.5}),
    "optimizer offload": ({"optimizer_offload": (1,)}, {"optimizer_offload": 0.5, "zero": 3}),
    "dtype": ({"dtypes": ("bf16",)}, {"dtype": "fp8"}),
    "dtype of gradients": ({"gradients": ("float32",)}, {"gradients": "bf16"}),
    "overlap": ({"overlap": ("tp",)}, {"overlap": ("ep",), "ep": 2}),
    "overlap of tp": ({"tp_overlap": "sequence_parallel"}, {"overlap": ("tp",), "tp": 2, "sequence_parallel": False}),
    "overlap of ep": ({"ep_overlap": "interleaved"}, {"overlap": ("ep",), "ep": 2, "pp": 2}),
    "kept features": ({"kept_features": False}, {"features": "host"}),
    "rank order": ({"rank_orders": (DEFAULT_RANK_ORDER,)}, {"tp": 2, "cp": 2, "rank_order": "cp-tp-dp-replica-pp"}),
}  # fmt: skip
FIVE = {"pp": 2, "vpp": 2, "dp": 2, "micro_batch": 13}  # micro-batches
# More ways to break a rule: its name, knobs, and fields.
OTHERS = [
    ("key/value heads", {"kv_heads": "replicated"}, {"tp": 12}),
    ("context parallelism", {"cp": ()}, {"cp": 2}),
    ("context parallelism", {"cp": ("ulysses", "both")}, {"cp": 4}),
    ("context parallelism", {"cp": ("ring", "both")}, {"cp": 4, "ulysses": 4}),
    ("length of sequences", {"sequence_multiple": "tp_2cp"}, {"tp": 3}),
    ("micro-batches of interleaving", {"interleaved_micro_batches": "stages"}, {"pp": 4, "vpp": 5, "micro_batch": 4}),
    ("micro-batches of interleaving", {"interleaved_micro_batches": "rounds"}, FIVE),
    ("width of experts", {"etp": ("tp",)}, {"tp": 4, "etp": 1}),
    ("mesh of experts", {"expert_mesh": "dp"}, {"tp": 8, "ep": 16}),
    ("offload", {"offload": "none"}, {"offload": 0.5}),
    ("offload", {"offload": "alone"}, {"offload": 0.5, "recompute": "full"}),
    ("offload", {"offload": "none"}, {"offload": ("norm",)}),
    ("offloaded kinds", {"offloaded_parts": ("norm",)}, {"offload": ("norm", "attention")}),
    ("optimizer offload", {"optimizer_offload": ()}, {"optimizer_offload": 0.5, "zero": 1}),
    ("recomputation", {"recompute": ("none", "full")}, {"recompute": {"4-7": "full"}}),
    ("recomputation", {"recompute": ("none", "full")}, {"recompute": {"0-3,41-43": "full"}, "pp": 2}),
    ("recomputation", {"recompute": ("none", "full"), "recompute_block": False}, {"recompute": {"0-3": "full"}}),
    ("overlap of ep", {"ep_overlap": "interleaved"}, {"overlap": ("ep",), "ep": 2, "recompute": "full"}),
    ("recomputation", {"recompute": ("none", "full")}, {"recompute": ("norm",)}),
    ("recomputed parts", {"recomputed_parts": ()}, {"recompute": {"0-3": "full", "4-7": ("norm",)}}),
    ("overlap of ep", {"ep_overlap": "interleaved"}, {"overlap": ("ep",), "ep": 2, "recompute": {"0-3": "full"}}),
    ("overlap of ep", {"ep_overlap": "interleaved"}, {"overlap": ("ep",), "ep": 2, "recompute": ("moe",)}),
]  # fmt: skip


def layout(**fields):
    return with_fields(ONES, **fields)


def names(*case):
    return [refusal.rule for refusal in launch_refusals(*case)]


@pytest.mark.parametrize(
    "fields", [{"recompute": {"0-3": "full"}}, {"recompute": {"0-3,40-43": "full"}, "pp": 2}], ids=str
)
def test_a_block_is_the_first_layers_of_each_chunk(fields):
    """Which frameworks can say that name no ranges."""
    assert names(layout(**fields), FACTS, Knobs(recompute=("none", "full"))) == []


def test_every_rule_has_a_case():
    assert [rule.name for rule in RULES] == list(REFUSED)


@pytest.mark.parametrize(
    ("rule", "knobs", "fields"), [*((rule, *case) for rule, case in REFUSED.items()), *OTHERS], ids=str
)
def test_a_rule_refuses_and_turned_off_does_not(rule, knobs, fields):
    """Alone, with what is wrong and a fix; without it the layout passes."""
    (refusal,) = launch_refusals(layout(**fields), FACTS, Knobs(**knobs))
    assert refusal.rule == rule and len(refusal.message) > 10 and refusal.fix
    assert not launch_refusals(layout(**fields), FACTS, Knobs())
    assert not launch_refusals(ONES, FACTS, Knobs(**knobs))


@pytest.mark.parametrize(
    ("knobs", "fields"),
    [
        ({"kv_heads": "replicated"}, {"tp": 16}),
        ({"cp": ("both",)}, {"cp": 4, "ulysses": 2}),
        ({"interleaved_micro_batches": "rounds"}, {"pp": 4, "vpp": 5, "micro_batch": 4}),
        ({"zero": (3,)}, {"tp": 64}),  # one rank with each parameter: nothing to shard
        ({"unsharded_replicas": "alone"}, {"tp": 8, "pp": 8}),
        ({"dispatch": ("all_to_all",)}, {"dispatch": "all_gather"}),  # experts are not sharded
        ({"rank_orders": (DEFAULT_RANK_ORDER,)}, {"tp": 2, "rank_order": "cp-tp-dp-replica-pp"}),  # cp is 1
        ({"rank_orders": (DEFAULT_RANK_ORDER, "tp-cp-pp-dp-replica")}, {"pp": 2, "rank_order": "tp-pp-dp"}),
    ],
    ids=str,
)
def test_what_a_rule_leaves(knobs, fields):
    assert not launch_refusals(layout(**fields), FACTS, Knobs(**knobs))


@pytest.mark.parametrize("rule", REFUSED)
def test_a_rule_does_not_ask_for_what_is_not_decided(rule):
    """Of a field alone no rule refuses what another value of the open ones would allow."""
    knobs, _ = REFUSED[rule]
    assert not launch_refusals(Parallelism(), FACTS, Knobs(**knobs))
    assert not launch_refusals(Parallelism(vpp=2, micro_batch=3), FACTS, Knobs(even_batch=True, uneven_stages=False))


@pytest.mark.parametrize(
    ("rule", "knobs", "fields"), [*((rule, *case) for rule, case in REFUSED.items()), *OTHERS], ids=str
)
@pytest.mark.parametrize("mesh", [{}, {"tp": 1, "cp": 1, "pp": 1}], ids=str)
def test_a_rule_has_a_reason_where_little_is_decided(rule, knobs, fields, mesh):
    for refusal in launch_refusals(Parallelism(**{**mesh, **fields}), FACTS, Knobs(**knobs)):
        assert refusal.rule == rule and refusal.message and refusal.fix


# ------------------------------------------------------------------------------------------- one, and many at once

POWERS = st.sampled_from([1, 2, 4, 8])
RECOMPUTE = st.sampled_from(["none", "selective", "full"])


@st.composite
def layouts(draw):
    """Layouts with the same options."""
    schedule = draw(st.sampled_from([None, *get_args(Schedule)]))
    options = {
        "schedule": schedule,
        "dispatch": draw(st.sampled_from(["all_to_all", "node_level", "all_gather"])),
        "dtype": draw(st.sampled_from(["bf16", "fp8"])),
        "overlap": draw(st.sampled_from([(), ("tp",), ("ep",)])),
        "offload": draw(st.sampled_from([None, 0.5, ("norm",), ("mlp", "moe")])),
        "optimizer_offload": draw(st.sampled_from([None, 0.5])),
        "sequence_parallel": draw(st.booleans()),
        "rank_order": draw(st.sampled_from([None, "tp-cp-pp-dp-replica", "cp-tp-dp-replica-pp"])),
    }
    found = []
    for _ in range(draw(st.integers(1, 6))):
        degrees = {name: draw(POWERS) for name in ("tp", "cp", "pp", "ep", "etp", "replica", "micro_batch")}
        recompute = "none" if schedule in ("zb_h1", "zb_h2") else draw(RECOMPUTE)
        vpp = draw(POWERS) if schedule in (None, "interleaved") else 1
        ulysses = draw(st.sampled_from([n for n in (1, 2, 4, 8) if degrees["cp"] % n == 0]))
        found.append(
            Parallelism(
                **options, **degrees, vpp=vpp, ulysses=ulysses, recompute=recompute, zero=draw(st.integers(0, 3))
            )
        )
    return found


@given(layouts(), st.sampled_from(SHIPPED), st.sampled_from([None, 96, 128]))
def test_a_layout_passes_alone_as_among_many(found, software, sequences):
    knobs = read_named(software, Software)[0].knobs
    facts = TrainedFacts(512, 80, 64, 8, False, sequences, 8192 if sequences else None)
    numbers = [name for name in NUMERIC_FIELDS if name not in ("dp", "recompute")]
    columns = {name: np.array([getattr(each, name) for each in found], dtype=np.int64) for name in numbers}
    columns["recompute"] = np.array([CODED_FIELDS["recompute"].index(each.recompute) for each in found])
    options = with_fields(found[0], **dict.fromkeys((*numbers, "recompute")))
    passed = launchable(columns, options, facts, knobs)
    assert passed.shape == (len(found),) and passed.dtype == bool
    assert passed.tolist() == [not launch_refusals(each, facts, knobs) for each in found]


def test_kinds_are_refused_with_the_nearest_that_can_be_offloaded():
    """Experts that are recomputed keep nothing to offload; a share stands for all kinds of a module."""
    knobs, facts = (
        Knobs(offload_shares="none", offloaded_parts=("attention", "norm", "moe")),
        replace(FACTS, parts=DENSE),
    )
    cases = [
        ({"offload": 1.0}, "not 1.0", "offload: [attention, norm]"),
        ({"offload": ("norm", "mlp")}, "not [norm, mlp]", "offload: [norm]"),
        ({"offload": ("mlp",)}, "not [mlp]", "offload: 0"),
        ({"offload": ("norm", "moe"), "recompute": ("moe",)}, "not [norm, moe]", "offload: [norm]"),
    ]
    for fields, message, fix in cases:
        (refusal,) = launch_refusals(layout(**fields), facts, knobs)
        assert message in refusal.message and refusal.fix == fix
    assert not launch_refusals(layout(offload=("norm", "attention")), facts, knobs)


def test_a_million_layouts_are_judged_at_once():
    rng = np.random.default_rng(0)
    columns = {name: 2 ** rng.integers(0, 4, 10**6) for name in ("tp", "cp", "pp", "vpp", "ep", "etp", "micro_batch")}
    said = [code for code, how in enumerate(CODED_FIELDS["recompute"]) if how != "ranges"]
    columns |= {"zero": rng.integers(0, 4, 10**6), "recompute": rng.choice(said, 10**6)}
    facts = TrainedFacts(4096, 80, 64, 8, False, 4096, 8192)
    knobs = read_named("megatron", Software)[0].knobs
    passed = launchable(columns, Parallelism(), facts, knobs)
    assert 0 < passed.sum() < 10**6
    for place in rng.integers(0, 10**6, 50):
        one = {name: int(column[place]) for name, column in columns.items()}
        one["recompute"] = CODED_FIELDS["recompute"][one["recompute"]]
        assert passed[place] == (not launch_refusals(Parallelism(**one), facts, knobs))


# --------------------------------------------------------------------------------- Llama-3-70B on 64 GPUs, as it is run

LLAMA = trained_facts(read_named("llama-3-70b", Model)[0].modules["llm"], 64, (8192,) * 128)
INTERLEAVED = layout(tp=4, cp=2, pp=4, vpp=5, dp=2, micro_batch=1)


def software(name):
    return read_named(name, Software)[0].knobs


@pytest.mark.parametrize(
    ("name", "zero", "recompute"), [("megatron", 1, "none"), ("nemo", 1, "none"), ("torchtitan", 3, "full")]
)
def test_a_layout_that_its_parser_takes(name, zero, recompute):
    """tp 4, cp 2, pp 4 in five chunks, dp 2: Megatron-Core 0.19.0 and torchtitan 0.2.2 accept it."""
    assert not launch_refusals(with_fields(INTERLEAVED, zero=zero, recompute=recompute), LLAMA, software(name))


@pytest.mark.parametrize(
    ("name", "fields", "rules"),
    [
        ("megatron", {"schedule": "zb_h1", "vpp": 1}, ["schedule"]),
        ("megatron", {"tp": 16, "cp": 1, "dp": 1}, []),  # eight key/value heads on pairs of ranks
        ("megatron", {"tp": 8, "cp": 2, "ulysses": 2, "dp": 1}, ["heads of Ulysses"]),
        ("megatron", {"micro_batch": 32}, ["micro-batches of interleaving"]),
        ("megatron", {"micro_batch": 3}, ["even batch"]),
        ("torchtitan", {"tp": 16, "cp": 1, "dp": 1, "zero": 3}, ["key/value heads"]),
        ("torchtitan", {"zero": 1}, ["ZeRO stage"]),
        ("torchtitan", {"zero": 0}, ["unsharded replicas"]),
        ("torchtitan", {"vpp": 1, "zero": 3, "micro_batch": 32}, ["micro-batches of 1F1B"]),
        ("deepspeed", {"vpp": 1, "cp": 1, "dp": 4, "zero": 2}, ["ZeRO stage in a pipeline"]),
        ("deepspeed", {"vpp": 1, "zero": 1}, ["context parallelism"]),
        ("deepspeed", {"vpp": 1, "ulysses": 2, "zero": 1}, []),
        ("fsdp", {"vpp": 1, "zero": 3}, ["pipeline"]),
        ("internevo", {"zero": 2}, ["ZeRO stage", "ZeRO stage in a pipeline"]),
        ("megatron-2021", {"zero": 1}, ["context parallelism"]),
        ("planner", {"schedule": "zb_h2", "vpp": 1, "zero": 3}, []),
        ("planner", {"dtype": "fp8"}, ["dtype"]),
    ],
    ids=str,
)
def test_what_frameworks_refuse(name, fields, rules):
    assert names(with_fields(INTERLEAVED, **{"zero": 1, **fields}), LLAMA, software(name)) == rules


def test_torch_fsdp2_in_megatron_refuses_pipelines_and_experts():
    """A software file of one's own can say so, where --use-torch-fsdp2 is meant."""
    own = with_fields(software("megatron"), zero_in_pipeline=(0, 1), zero_with_experts=(0, 1))
    assert names(with_fields(INTERLEAVED, zero=3), LLAMA, own) == ["ZeRO stage in a pipeline"]
    assert names(layout(ep=2, zero=2), LLAMA, own) == ["ZeRO stage of experts"]


def test_tied_weights_are_told_from_the_model():
    assert trained_facts(read_named("gpt3-175b", Model)[0].modules["llm"], 8).tied is True
    assert LLAMA.tied is False
    assert trained_facts(read_named("llama-3-8b", Model)[0].modules["llm"], 8, (5, 6)).sequences is None
