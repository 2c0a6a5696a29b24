"""Encoders in gaps of jobs that leave little to place: legal, no slower than without, with the reason if they stay."""

from pathlib import Path

import pytest

from planner.layouts import with_joint_fields
from planner.plan.legal.plan_laws import violations
from planner.specs.inputs import JobOptions, load_job
from planner.strategies import encoder_bubbles
from planner.strategies.static.layouts_plan import priced_together
from tests.placed_jobs import MODEL, NO_CLIPS, NO_IMAGES, placed_job
from tests.static_jobs import small_cluster

WIDE = MODEL.replace("layers: 4, hidden: 32", "layers: 4, hidden: 512").replace("out: 32", "out: 512")
LLM = "tp: 2, pp: 2"
IMAGES = "patches,row\n" + "".join(f"{16 * size},{row}\n" for row, size in enumerate((40, 30, 20, 60, 30, 16, 20)))
CASES = {  # of the LLM's layout, the encoder's, more of the job; and, where passes stay, the reason
    "one stage": ("tp: 2", "tp: 2", {}, ""),
    "one replica": ("tp: 4, pp: 2", "tp: 4", {}, ""),
    "frozen": (LLM, "dp: 8", {"model": WIDE.replace("merge: 2,", "merge: 2, trained: none,")}, ""),
    "the first replica has fewest": (LLM, "dp: 8", {"rows": (1200,) + (700,) * 6}, ""),
    "larger than all gaps": (LLM, "dp: 8", {"model": WIDE.replace("vit, layers: 2", "vit, layers: 48")}, ""),
    "no exchange": ("ranks: 0-3, pp: 4", "ranks: 0-3", {}, "exchanges nothing beside which a pass could run"),
    "apart": ("ranks: 0-3, tp: 2", "ranks: 4-7", {}, "on ranks of their own"),
    "text alone": (LLM, "dp: 8", {"images": NO_IMAGES}, "reads no pass of an encoder itself"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
@pytest.mark.every(2)
def test_none_is_worse_than_its_base_and_who_stays_says_why(tmp_path, name):
    llm, vit, more, reason = CASES[name]
    fixed = {"llm": llm, "vit": vit, "ear": "ranks: 4-7"}
    job = {"rows": (1000,) * 7, "images": IMAGES, "clips": NO_CLIPS, "max_tokens": 1200, "model": WIDE, **more}
    path = Path(placed_job(tmp_path, fixed, **{**job, "layout": "{zero: 1}"}))
    cluster = small_cluster(tmp_path, "h100-80gb", 8)
    path.write_text(path.read_text().replace("cluster: cpu-4\nprofile: cpu", f"cluster: {cluster}"))
    inputs = with_joint_fields(load_job(str(path), JobOptions()))
    base, _ = priced_together(inputs)
    found = encoder_bubbles.plan(inputs, base)
    assert not violations(found) and found.outcome.value <= base.outcome.value
    said = [each.because for each in found.alternatives if each.strategy == encoder_bubbles.NAME]
    assert bool(said) == (found.layouts == base.layouts and not found.steps[0].placements)
    assert not reason or reason in said[0]
