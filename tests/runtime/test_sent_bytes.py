"""Bytes that ranks send, counted by kind: MegaScale-MoE's formulas (arXiv 2505.11432), and what is priced.

With b·s tokens on n ranks, h wide, k experts for each token and m query heads for each key/value head, a rank sends in
each direction of a layer: 2·b·s·h·(n - 1)/n numbers around sharded attention, and as many around a sharded MLP;
(2 + 2/m)/n of b·s·h·(n - 1)/n by Ulysses; 2·k/n of b·s·h·(n - 1)/n by dispatch to experts that get equally many tokens.
Of a layer is what two layers more add, over two: embedding and head send, too.
"""

from collections import Counter

import pytest

from planner.costs.layout_columns import LayoutColumns
from planner.costs.network.layer_traffic import expert_seconds, layer_groups, tensor_seconds, ulysses_seconds
from planner.runtime.run_options import RunOptions
from planner.specs.base import with_fields
from planner.specs.layers.components import Experts
from tests.costs.machines import ideal, nodes
from tests.runtime.training_worlds import DECODER, run_all, spread

pytestmark = pytest.mark.slow

N, FLOAT64 = 4, 8
TOKENS = 96  # of each item
ALONE = [[(rank,) for rank in range(N)]]
SPECS = {
    "dense": DECODER,
    "4 of 4 experts": with_fields(DECODER, moe=Experts(experts=4, topk=4, ffn=16)),  # as balanced as can be
}
LAYOUTS = {
    "tp": ("dense", {"tp": N}),
    "ulysses": ("dense", {"cp": N, "ulysses": N}),
    "ring": ("dense", {"cp": N}),
    "dp": ("dense", {"dp": N, "zero": 1, "rows": ALONE}),
    "pp, tp": ("dense", {"pp": 2, "tp": 2, "zero": 1}),
    **{name: (name, {"dp": N, "ep": N, "zero": 1, "rows": ALONE}) for name in SPECS if name != "dense"},
}


def plan_of_layers(name, layers):
    """The plan of this name with so many layers, of items of one length."""
    spec, layout = LAYOUTS[name]
    plan = spread(N, with_fields(SPECS[spec], layers=layers), **{"rows": [[tuple(range(N))]], **layout})
    items = {"llm": dict.fromkeys(plan.uses.items["llm"], TOKENS)}
    return with_fields(plan, uses=with_fields(plan.uses, items=items))


@pytest.fixture(scope="module")
def steps():
    plans = {
        (name, layers): plan_of_layers(name, layers)
        for name in LAYOUTS
        for layers in (2, 4)
        if layers == 2 or name in FORMULAS
    }
    return {key: run.steps[0] for key, run in run_all(N, plans, RunOptions(steps=1, seed=5)).items()}


def of_layer(steps, name, kind):
    """Numbers of this kind that each rank sends for a layer, in both directions."""
    few, many = (steps[name, layers].sent_bytes for layers in (2, 4))
    return [(more[kind] - less[kind]) / 2 / FLOAT64 for less, more in zip(few, many, strict=True)]


def of_pass(steps, name, phase):
    """Numbers of all kinds that each rank sends for a layer in passes of this phase."""
    sent = {layers: Counter() for layers in (2, 4)}
    for layers, counted in sent.items():
        for record in steps[name, layers].measured:
            counted[record.rank] += record.sent_bytes * (f"/{phase}/" in record.id)
    return [(sent[4][rank] - sent[2][rank]) / 2 / FLOAT64 for rank in range(N)]


def sequences(name):
    """Items of the micro-batch: two for each group of ranks."""
    return 2 * LAYOUTS[name][1].get("dp", 1)


def moved(name):
    """b·s·h·(n - 1)/n of the micro-batch."""
    return sequences(name) * TOKENS * DECODER.hidden * (N - 1) / N


QUERIES_PER_KEY = DECODER.heads / DECODER.kv_heads
FORMULAS = {  # in each direction, of what `moved` says
    "tp": ("tp", 2 + 2),  # attention, and the MLP
    "ulysses": ("ulysses", (2 + 2 / QUERIES_PER_KEY) / N),
    "4 of 4 experts": ("ep", 2 * 4 / N),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_bytes_of_a_layer_are_those_of_the_formulas(steps, name):
    kind, share = FORMULAS[name]
    each = share * moved(name)
    assert of_layer(steps, name, kind) == pytest.approx([2 * each] * N, rel=0.02)
    for phase in "FB":
        assert of_pass(steps, name, phase) == pytest.approx([each] * N, rel=0.02)


PRICED = {
    "tp": lambda *at: tensor_seconds(*at, layer_groups(at[2], 8)),
    "ulysses": lambda module, _, at, machine: [ulysses_seconds(module, at, machine, layer_groups(at, 8))] * 2,
    "4 of 4 experts": expert_seconds,
}


@pytest.mark.parametrize("name", PRICED)
def test_bytes_of_a_layer_are_those_of_the_closed_form(steps, name):
    """With a GB/s its seconds are GB. Its backward of tp gathers once more, in front of weight gradients, as Megatron's
    does: here what was gathered is kept.
    """
    spec, layout = LAYOUTS[name]
    module, degrees = SPECS[spec], {key: layout[key] for key in layout if key in ("tp", "cp", "ulysses", "ep")}
    batch = sequences(name)
    at = LayoutColumns(
        ranks=N, seq=TOKENS, batch=batch, micro_batch=batch // layout.get("dp", 1), dtype="float64", **degrees
    )
    kind = "dense" if module.moe is None else "moe"
    seconds = PRICED[name](module, kind, at, ideal(network=nodes(1.0, 1.0)))
    forward, backward = (float(each) * 1e9 / FLOAT64 for each in seconds)
    assert of_pass(steps, name, "F") == pytest.approx([forward] * N, rel=0.02)
    assert of_pass(steps, name, "B") == pytest.approx([backward * (2 / 3 if name == "tp" else 1)] * N, rel=0.02)


@pytest.mark.parametrize("name", LAYOUTS)
def test_kinds_add_up_to_what_the_tasks_sent(steps, name):
    step, by_rank = steps[name, 2], Counter()
    for record in step.measured:
        by_rank[record.rank] += record.sent_bytes
    assert [sum(sent.values()) for sent in step.sent_bytes] == [by_rank[rank] for rank in range(N)]
    assert all(all(sent.values()) for sent in step.sent_bytes)  # what is not sent is not said


KINDS = {
    "tp": {"tp", "dp"},  # norms, which every rank has, are summed
    "ulysses": {"ulysses", "dp"},
    "ring": {"ring", "dp"},
    "dp": {"dp"},
    "pp, tp": {"pp", "tp", "dp"},
    "4 of 4 experts": {"ep", "dp"},
}


@pytest.mark.parametrize("name", KINDS)
def test_only_kinds_that_the_layout_has_are_counted(steps, name):
    assert all({*sent} == KINDS[name] for sent in steps[name, 2].sent_bytes)
