"""A run on tokens from files: the loss of a plain loop over the rows, and what is not there is named beforehand."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from planner import files
from planner.errors import InputError
from planner.models.build import build, init_weights
from planner.models.inputs.training_items import SyntheticSamples, batch_of_documents
from planner.plan.plan_file import Group, Layout, Step
from planner.runtime import RunOptions, run
from planner.runtime.preflight.preflight_checks import require_runnable
from planner.specs.base import Ranks, with_fields
from tests.plans import decoder, plan_of, uses
from tests.runtime.ranks_by_hand import run_ranks

SPEC = decoder(2)
ROWS = [[*range(1, 20)], [7], [3, 1, 4, 1, 5, 9, 2, 6], [60, 61, 62], [*range(30)]]
UNIT = 8


def folder_of(path: Path, rows=ROWS) -> Path:
    path.mkdir(exist_ok=True)
    np.save(path / "tokens.npy", np.concatenate(rows).astype("uint16"))
    np.save(path / "offsets.npy", np.cumsum([0, *map(len, rows)], dtype="int64"))
    return path


def plan():
    """Two ranks: together, then apart; rows are rounded up."""
    items = {row: -(-len(tokens) // UNIT) * UNIT for row, tokens in enumerate(ROWS)}
    both = Group(ranks=Ranks((0, 1)), split={"ulysses": 2})
    alone = {f"g{rank}": Group(ranks=Ranks((rank,))) for rank in (0, 1)}
    rows = ({"both": (0, 1, 2)}, {"g0": (3,), "g1": (4,)})
    return plan_of(
        2,
        uses(2, {"llm": SPEC}, {"llm": items}),
        {"llm": Layout(ranks=Ranks((0, 1)), dp=2, zero=3, dtype="float64")},
        {"both": both, **alone},
        Step(sync="micro_batch", micro_batches=rows),
    )


def loss_of_a_plain_loop(seed):
    """Mean cross entropy over all tokens that are followed by one, row by row, without padding or packing."""
    model = build(SPEC, dtype=torch.float64)
    init_weights(model, seed)
    total, count = 0.0, 0
    for row in ROWS:
        tokens = torch.tensor(row)
        batch = batch_of_documents(SyntheticSamples(0), SPEC, [(0, len(row))])
        scores = F.linear(model.norm(layers(model, tokens, batch)), model.head.weight)
        total += F.cross_entropy(scores[:-1], tokens[1:], reduction="sum").item()
        count += len(row) - 1
    return total / count


def layers(model, tokens, batch):
    x = model.embedding(tokens)
    rotary = model.position_encoding(x, batch)
    for layer in model.layers.values():
        x = layer(x, rotary, batch)
    return x


@pytest.mark.slow
def test_loss_and_gradients_are_those_of_the_rows(tmp_path):
    result = run(plan(), RunOptions(steps=2, verify=True, seed=3, data=folder_of(tmp_path / "data")), print)
    assert result.steps[0].loss == pytest.approx(loss_of_a_plain_loop(3), rel=1e-12)
    assert result.verify.loss_rel_err <= 1e-12 and result.verify.grad_rel_err <= 1e-12
    synthetic = run(plan(), RunOptions(steps=1, seed=3), print)
    assert synthetic.steps[0].loss != pytest.approx(result.steps[0].loss, rel=1e-3)


@pytest.mark.slow
def test_under_another_launcher(tmp_path):
    alone = with_fields(plan(), steps=(Step(sync="micro_batch", micro_batches=({"both": (0, 1, 2, 3, 4)},)),))
    files.write(tmp_path / "plan.yaml", alone)
    folder_of(tmp_path / "data")
    done, _ = run_ranks(2, tmp_path / "plan.yaml", "--data", tmp_path / "data", "--seed", 3)
    assert done.returncode == 0, done.stderr
    (loss,) = json.loads(done.stdout.splitlines()[-1])["losses"]
    assert loss == pytest.approx(loss_of_a_plain_loop(3), rel=1e-12)


@pytest.mark.slow
def test_a_token_that_is_met_is_named(tmp_path):
    spoiled = [*ROWS[:4], [*range(28), 64, 1]]
    with pytest.raises(InputError) as refused:
        run(plan(), RunOptions(data=folder_of(tmp_path, spoiled)), print)
    assert "token 28 of sample 4 is 64, the model has 64 tokens" in refused.value.message
    assert refused.value.where == str(tmp_path / "tokens.npy")


def test_what_is_not_there_is_refused_before_a_launch(tmp_path):
    require_runnable(plan(), RunOptions(data=folder_of(tmp_path)))
    for rows, says in (
        (ROWS[:4], "no sample 4"),
        ([*ROWS[:4], [1] * 9], "sample 4 has 9"),
        ([[1] * 25, *ROWS[1:]], "sample 0"),
    ):
        with pytest.raises(InputError, match=says) as refused:
            require_runnable(plan(), RunOptions(data=folder_of(tmp_path, rows)))
        assert refused.value.where == str(tmp_path)
    with pytest.raises(InputError, match="cannot read the tokens") as refused:
        require_runnable(plan(), RunOptions(data=tmp_path / "none"))
    assert refused.value.where == str(tmp_path / "none" / "tokens.npy")
