"""What docs/examples says is true: K2 made small has K2's shape, is solved for this machine, and trains."""

from dataclasses import replace
from pathlib import Path

import pytest

from planner import pipeline
from planner.runtime import RunOptions, TrainingOptions
from planner.specs.library import read_named
from planner.specs.model import Model

EXAMPLE = Path(__file__).parents[1] / "docs" / "examples" / "k2-small"
TRAINING = TrainingOptions(3e-3, "cosine", warmup=4, clip=1.0, betas=(0.9, 0.95), decay=0.1)


def test_small_k2_has_the_shape_of_the_release():
    released, small = (read_named(name, Model)[0].modules["llm"] for name in ("k2-65b", str(EXAMPLE / "model.yaml")))
    assert [released.hidden / small.hidden, released.ffn / small.ffn, released.vocab / small.vocab] == [32] * 3
    assert released.layers == 10 * small.layers
    own = ("layers", "hidden", "ffn", "vocab", "heads")
    differs = {name for name in released.__struct_fields__ if getattr(released, name) != getattr(small, name)}
    assert differs == set(own)


@pytest.mark.soak
def test_small_k2_trains_from_a_plan_file(tmp_path):
    solved = pipeline.solve(str(EXAMPLE / "job.yaml")).plan
    layout = solved.layouts["llm"]
    assert (layout.pp, layout.tp, len(layout.ranks)) == (2, 2, 4)
    pipeline.files.write(tmp_path / "plan.yaml", solved)
    options = RunOptions(steps=6, verify=True, dtype="float32", training=TRAINING)
    ran = pipeline.run(pipeline.read_plan(tmp_path / "plan.yaml"), replace(options, base=tmp_path), lambda _: None)
    assert len(ran.losses) == 6 and ran.losses[-1] < 0.5 * ran.losses[0]
    assert ran.verified.loss_rel_err <= 1e-6 and ran.verified.grad_rel_err <= 1e-5
