"""The nearest change that fits: fewest fields, those that people change first, by least, the quickest."""

from contextlib import suppress
from dataclasses import replace
from itertools import combinations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import Infeasible, InputError
from planner.scoring import score
from planner.specs.base import with_fields
from planner.specs.parallelism import Parallelism
from planner.strategies import modality_layout
from planner.strategies.static import fixing, solve_fixed
from planner.strategies.static.layouts_plan import plan_together
from planner.strategies.static.memory_fit import memory_fit_of_job, memory_fit_of_plan
from planner.strategies.static.nearest_change import CHANGED_FIRST, Change, FieldChange, are_several, nearest_change
from planner.units import GIB
from tests.modality_jobs import seeing_job

FIELDS = ("micro_batch", "recompute", "zero", "tp", "pp")
options = st.builds(FieldChange, st.sampled_from(("llm", "vit")), st.sampled_from(FIELDS), st.integers(2, 4))
frees = st.lists(st.tuples(options, st.integers(0, 5)), min_size=1, max_size=6, unique_by=lambda each: each[0])


@given(frees, st.integers(1, 12))
def test_of_changes_that_add_up_none_is_nearer(frees, needed):
    """Brute force over all sets of changes: of one field or two the nearest is found; of more, one that fits wherever
    some set does, and of which none is left out.
    """
    freed = dict(frees)

    def evaluate(changes):
        left = needed - sum(freed[change] for change in changes)
        doublings = sum(change.value for change in changes)
        return Change(tuple(changes), {}, (), doublings, 1.0, 0.0, left, left <= 0)

    found = nearest_change([*freed], evaluate)
    sets = [some for count in range(1, len(freed) + 1) for some in combinations(freed, count) if are_several(some)]
    fitting = [each for each in map(evaluate, sets) if each.fits]
    if found is None:
        assert not fitting or min(len(each.asked) for each in fitting) > 2
        return
    best = min(fitting, key=lambda each: (len(each.asked), each.far))
    if len(best.asked) <= 2:
        assert (len(found.asked), found.far) == (len(best.asked), best.far)
    assert found.fits and not any(evaluate([o for o in found.asked if o != each]).fits for each in found.asked)


ROWS, IMAGES = (1100, 900, 700, 1200, 800, 950, 600, 1000), "patches,row\n1600,0\n800,3\n1200,5\n2000,6\n"
PLAIN = Parallelism(tp=1, pp=1, zero=0, recompute="none", offload=0.0)
FIXED = {"llm": with_fields(PLAIN, micro_batch=2), "vit": PLAIN}
VALUES = {"micro_batch": (1,), "recompute": ("selective", "full"), "zero": (1, 2, 3), "tp": (2, 4), "pp": (2, 4)}


@pytest.fixture
def tight(tmp_path):
    """A job of two modules with these layouts whose ranks have a part of the memory that activations need."""
    job = fixing(seeing_job(tmp_path, rows=ROWS, images=IMAGES), FIXED)
    taken, capacity = memory_fit_of_job(job).fullest.taken, job.device.memory_gib * GIB

    def made(part, layouts=FIXED):
        allowed = taken.outside_allocator + part * (float(taken.total) - taken.outside_allocator)
        limits = with_fields(job.job.limits, memory_margin=1.0 - allowed / capacity, oom_chance=1.0)
        return fixing(replace(job, job=with_fields(job.job, limits=limits)), layouts)

    return made


@pytest.mark.slow
@pytest.mark.parametrize("part", [0.5, pytest.param(0.8, marks=pytest.mark.soak)])
@pytest.mark.every(2)
def test_of_several_modules_one_field_is_changed_where_one_is_enough(tight, part):
    """Brute force over single fields: the named one is the first that people change, and goes back in as it is said."""
    found, fitting = memory_fit_of_job(tight(part)), list[str]()

    def fits(job):
        plan = plan_together(job, runs=False)
        return memory_fit_of_plan(plan, (score(plan),)).fits

    assert not found.fits
    for name, (field, values) in product(FIXED, VALUES.items()):
        for value in values:
            with suppress(InputError, Infeasible):
                changed = {**FIXED, name: with_fields(FIXED[name], **{field: value})}
                fitting += [field] if fits(tight(part, changed)) else []
    ((name, value),) = (each.split("=") for each in found.change.differences)
    assert name.partition(".")[2] == min(fitting, key=CHANGED_FIRST.index)


@pytest.mark.slow
def test_a_search_that_finds_nothing_says_which_fixed_field_to_change(tight):
    with pytest.raises(Infeasible, match="would hold") as refused:
        modality_layout.plan(tight(0.3), None)
    assert refused.value.fix == "llm.recompute=selective instead"
    changed = {**FIXED, "llm": with_fields(FIXED["llm"], recompute="selective")}
    assert modality_layout.plan(tight(0.3, changed), None).outcome.value > 0


@pytest.mark.slow
def test_layouts_by_hand_that_do_not_fit_are_refused_with_a_change(tight):
    with pytest.raises(Infeasible, match="would hold") as refused:
        solve_fixed(tight(0.8))
    assert refused.value.fix == "llm.micro_batch=1 instead"
    assert solve_fixed(tight(0.8, {**FIXED, "llm": with_fields(FIXED["llm"], micro_batch=1)})).outcome.value > 0
