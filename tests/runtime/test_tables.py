"""Embedding tables trained on ranks: as one process trains them however they are cut, and alike in every group."""

import json

import pytest
import torch
from torch import nn

from planner.errors import InputError, RunFailed
from planner.models.embedding_shard import EmbeddingShard
from planner.models.inputs import ClickSource
from planner.plan.embeddings import Embeddings, TablePlacement, TableShard, table_shards
from planner.plan.legal.plan_laws import require_legal
from planner.plan.plan_file import Group, Layout, Plan, Step
from planner.runtime.preflight.preflight_checks import require_quick_checks
from planner.runtime.run_options import RunOptions, TrainingOptions
from planner.specs.base import Indices, Ranks, with_fields
from planner.specs.layers import Decoder
from planner.specs.tables import Table
from tests.plans import plan_of, uses
from tests.runtime.training_worlds import train_all
from tests.typed import typed

SAMPLES, RANKS, PER_NODE = 12, 4, 2
TABLES = {
    "a": Table(rows=50, dim=64, pooling=2.5),
    "b": Table(rows=37, dim=64, pooling=3, optimizer="adagrad"),
    "c": Table(rows=64, dim=32, skew=1.0),
    "d": Table(rows=3, dim=8, optimizer="sgd"),
    "e": Table(rows=9, dim=32, pooling=0.5),
    "f": Table(rows=20, dim=16, pooling=2),
}
CUTS = {
    1: {"a": ("columns", 0, 3), "b": ("grid", 0, 1), "c": ("rows",), "d": ("rows",), "e": ("replicated",)},
    2: {"a": ("columns", 0, 1), "b": ("whole", 1), "c": ("rows",), "d": ("whole", 0), "e": ("replicated",)},
    4: dict.fromkeys("abcde", ("whole", 0)),
}
NODE_ROWS = {1: ("node_rows", 1), 2: ("whole", 0), 4: ("whole", 0)}


def table_plan(groups: int, replicas="node", every=1, tokens=9, dtype="float64") -> Plan:
    """A small decoder on four ranks of two nodes, in two micro-batches, with every cut that groups of so many have."""
    spec, half = Decoder(layers=1, hidden=32, heads=4, ffn=48, vocab=2), SAMPLES // 2
    facts = with_fields(uses(RANKS, {"dense": spec}, {"dense": dict.fromkeys(range(SAMPLES), tokens)}), tables=TABLES)
    rows = [
        {f"g{rank}": tuple(range(first, first + half))[rank::RANKS] for rank in range(RANKS)} for first in (0, half)
    ]
    plan = plan_of(
        RANKS,
        facts,
        {"dense": Layout(ranks=Ranks(range(RANKS)), dp=RANKS, dtype=dtype, zero=0)},
        {f"g{rank}": Group(ranks=Ranks((rank,))) for rank in range(RANKS)},
        Step(sync="step", micro_batches=(*rows,)),
    )
    tables = {
        name: TablePlacement(cut=cut, at=Indices(at))
        for name, (cut, *at) in {**CUTS[groups], "f": NODE_ROWS[groups]}.items()
    }
    placed = Embeddings(groups=groups, replicas=replicas, average_every=every, tables=tables)
    plan = with_fields(plan, ranks=(with_fields(plan.ranks[0], per_node=PER_NODE),), embeddings=placed)
    require_legal(plan, "made up")
    return plan


@pytest.mark.slow
def test_loss_and_gradients_are_those_of_one_process_and_copies_are_the_same_bits():
    """Of two steps: the second has the weights that the first left, the same in every group."""
    plans = {str(groups): table_plan(groups) for groups in CUTS}
    plans |= {"across": table_plan(2, "across"), "float32": table_plan(2, dtype="float32")}
    replicated = {name: TablePlacement(cut="replicated") for name in TABLES}
    one_rank = {**replicated, "a": TablePlacement(cut="whole", at=Indices((0,)))}
    for name, tables in {"replicated": replicated, "on one rank": one_rank}.items():
        plans[name] = with_fields(plans["2"], embeddings=with_fields(plans["2"].embeddings, tables=tables))
    twice = {name: with_fields(plan, steps=plan.steps * 2) for name, plan in plans.items()}
    options = RunOptions(steps=2, verify=True, check_replicas=1, training=TrainingOptions(learning_rate=3e-2))
    seldom = table_plan(2, every=2)
    runs = {name: (plan, options) for name, plan in twice.items()}
    runs["seldom"] = seldom, RunOptions(steps=4, check_replicas=2, training=TrainingOptions(learning_rate=3e-2))
    for name, result in train_all(RANKS, runs, warm=True).items():
        if name == "seldom":
            continue
        allowed = 1e-6 if name == "float32" else 1e-12
        assert result.verify.steps == 2 and result.verify.items == 2 * SAMPLES, name
        assert result.verify.loss_rel_err < allowed and result.verify.grad_rel_err < allowed, name
        assert result.steps[1].loss < result.steps[0].loss
        assert 0 < result.steps[0].table_seconds < result.steps[0].seconds


@pytest.mark.parametrize("optimizer", ["rowwise_adagrad", "adagrad", "sgd"])
def test_updates_are_those_of_the_formula_on_rows_that_were_read(optimizer):
    table = Table(rows=10, dim=8, pooling=2, optimizer=optimizer)
    shard = EmbeddingShard("t", table, TableShard(0, 0, 10, 0, 8), 1, torch.empty(0, dtype=torch.float64))
    bag = nn.EmbeddingBag(10, 8, mode="sum", dtype=torch.float64)
    v = torch.zeros(10, 8, dtype=torch.float64)
    with torch.no_grad():
        bag.weight.copy_(shard.weight)
    for step in range(3):
        bags, rows = torch.tensor([0, 0, 1, 1, 2]), torch.tensor([1, 2, 2, 2, 7 + step % 2])
        bag.zero_grad()
        sums = bag(rows, torch.tensor([0, 2, 4]))
        assert torch.allclose(shard.sums(torch.stack([bags, rows], 1), 3), sums)
        sums.square().sum().backward()
        shard.add_gradient(2 * sums.detach())
        gradient = 2 * bag.weight.grad  # times M
        v += gradient.square().mean(1, keepdim=True) if optimizer == "rowwise_adagrad" else gradient.square()
        with torch.no_grad():
            bag.weight -= 0.1 * (gradient if optimizer == "sgd" else gradient / (v / 2 + 1e-12).sqrt())
        shard.update(0.1, 2.0, 2.0)
        assert torch.allclose(shard.weight, bag.weight)


def test_shards_begin_with_the_weights_of_the_whole_table():
    table, of = Table(rows=600, dim=64), torch.empty(0)
    whole = EmbeddingShard("t", table, TableShard(0, 0, 600, 0, 64), 3, of).weight
    for placed in (TablePlacement(cut="rows"), TablePlacement(cut="grid", at=Indices((0, 1)))):
        built = torch.full_like(whole, torch.nan)
        for shard in table_shards(table, placed, 4, 2):
            weight = EmbeddingShard("t", table, shard, 3, of).weight
            last = shard.first_column + shard.columns
            built[shard.first_row : shard.first_row + shard.rows, shard.first_column : last] = weight
        assert torch.equal(built, whole)


def test_samples_read_as_many_rows_as_tables_say_and_skewed_ones_more_often():
    table = Table(rows=1000, dim=8, pooling=2.5, skew=1.0)
    source = ClickSource(4, {"flat": with_fields(table, skew=0.0), "skewed": table})
    flat, skewed = (torch.cat(rows) for rows in zip(*(source.rows(item) for item in range(400)), strict=True))
    for rows in (flat, skewed):
        assert int(rows.min()) >= 0 and int(rows.max()) < 1000
        assert len(rows) == pytest.approx(1000, rel=0.1)
    assert (flat < 100).double().mean() == pytest.approx(0.1, abs=0.05)
    assert (skewed < 100).double().mean() > 0.5


@pytest.mark.parametrize(
    ("plan", "options", "told"),
    [
        (lambda: table_plan(2, tokens=7), {}, "take the place of 7 tokens"),
        (lambda: table_plan(2, every=3), {"verify": True}, "averaged every 3 steps"),
        (table_plan, {"training": TrainingOptions(clip=1.0)}, "have no --clip yet"),
    ],
)
def test_what_cannot_be_run_is_refused_before_a_process_starts(plan, options, told):
    made = plan() if plan is not table_plan else plan(1)
    with pytest.raises((InputError, RunFailed), match=told):
        require_quick_checks(made, RunOptions(**options))


JOB = """format: planner.job/1
name: clicks
model: model.yaml
cluster: cpu-4
strategy: sparse_tables
sync: step
workload: {lengths: 6, batch_rows: 16}
layout: {zero: 0, dtype: float32}
degrees: [1]
tables: {from: tables.csv, groups: 2}
"""
MODEL = """format: planner.model/1
name: clicks
source: made up
modules: {dense: {kind: decoder, layers: 1, hidden: 32, heads: 4, ffn: 48, vocab: 2}}
"""


@pytest.mark.slow
def test_a_job_with_tables_is_solved_and_trained_and_its_tables_are_measured_beside_their_prediction(tmp_path):
    files = {"job.yaml": JOB, "model.yaml": MODEL, "tables.csv": "name,rows,dim,pooling\na,90,64,2\n"}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert typed("planner solve job.yaml -o plan.yaml", tmp_path).code == 0
    told = typed("planner run plan.yaml --steps 2 --verify --no-ledger --json", tmp_path)
    answer = json.loads(told.out)
    (tables,) = (kind for kind in answer["kinds"] if kind["name"] == "embedding tables")
    assert told.code == 0 and tables["measured"] > 0 < tables["predicted"]
    assert answer["predicted_step_seconds"] == pytest.approx(sum(kind["predicted"] for kind in answer["kinds"]))
    assert all(rank["tables"] > 0 for rank in answer["sent_bytes"])
    refused = typed("planner run plan.yaml --clip 1", tmp_path)
    assert refused.code == 2 and "at --clip" in refused.errors
