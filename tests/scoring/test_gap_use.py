"""What is said of gaps is what the tasks of a step are priced at, and no more than there is."""

from pathlib import Path

import pytest

from planner import files
from planner.plan.plan_file import Plan
from planner.scoring import gap_use, score
from planner.specs.base import with_fields
from tests.test_golden import GOLDEN

FOLDERS = [GOLDEN / "encoder_bubbles" / name for name in ("one-stage", "two-stages")]
NAMES = [folder.name for folder in FOLDERS]


def bare(plan: Plan) -> Plan:
    """The plan with rules alone, without placements of single passes."""
    (step,) = plan.steps
    return with_fields(plan, steps=(with_fields(step, order={"place": step.placed[: -len(step.placements)]}),))


@pytest.mark.parametrize("folder", FOLDERS, ids=NAMES)
def test_hidden_is_what_is_filled_but_what_is_waited_for(folder: Path):
    plan = files.read(folder / "plan.yaml", Plan)
    found = score(plan)
    use, (waited, _) = gap_use(plan, found), found.plan_memory.pricing.waited_shares
    gaps = use.within_passes, use.once_a_step, use.forwards, use.backwards
    assert all(0 <= gap.filled <= gap.seconds for gap in gaps)
    filled = use.within_passes.filled + use.once_a_step.filled
    assert filled == pytest.approx(use.forwards.filled + use.backwards.filled)  # its towers exchange nothing in passes
    assert use.hidden == pytest.approx((1 - waited) * filled) and 0 < use.hidden <= use.hidden_at_most
    assert 0 <= use.coarse < use.fine == pytest.approx(filled / (use.forwards.seconds + use.backwards.seconds))


@pytest.mark.parametrize("folder", FOLDERS, ids=NAMES)
def test_without_its_placements_a_step_is_longer_by_what_these_hide(folder: Path):
    """But for waits of one rank for another."""
    plan = files.read(folder / "plan.yaml", Plan)
    before, after = score(bare(plan)), score(plan)
    assert gap_use(bare(plan), before).fine == 0
    assert before.step_seconds - after.step_seconds == pytest.approx(gap_use(plan, after).hidden, rel=0.02)
