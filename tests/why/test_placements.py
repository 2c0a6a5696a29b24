"""Encoders that `why` places on ranks of their own have about as many as their part of the work."""

import pytest

from planner.plan.plan_file import Layout
from planner.specs.base import Ranks
from planner.why.placements import other_placements, work_share
from tests.modality_jobs import IMAGES, seeing_job


def test_the_shares_of_modules_are_all_of_the_work(tmp_path):
    inputs = seeing_job(tmp_path)
    assert sum(work_share(inputs, name) for name in inputs.model.modules) == pytest.approx(1.0)


@pytest.mark.parametrize("patches", [160, 8_000, 200_000])
@pytest.mark.parametrize("tp", [1, 2])
def test_an_encoder_apart_has_replicas_by_its_share(tmp_path, patches, tp):
    rows = (400, 300, 250, 200, patches // 4)  # an output for four patches
    inputs = seeing_job(tmp_path, ranks=16, rows=rows, images=IMAGES.replace("800", str(patches)))
    every = Ranks(range(16))
    layouts = {"llm": Layout(tp=tp, dp=16 // tp, ranks=every), "vit": Layout(dp=16, ranks=every)}
    (words,) = (words for what, words in other_placements(inputs, layouts) if what.endswith("of its own"))
    own, others = (Ranks.from_file(word.partition("=")[2]) for word in words)
    assert sorted([*own, *others]) == [*every] and len(own) % tp == 0
    replicas = work_share(inputs, "vit") * 16 / tp
    assert len(own) // tp == pytest.approx(min(max(replicas, 1.0), 16 / tp - 1.0), abs=0.5)
