"""A strategy that is added to the table is asked by `best`, for as many modules as its entry says; refinements too."""

import sys
import types
from dataclasses import replace

import pytest

from planner.callbacks import silent
from planner.solve_job import solve_job
from planner.specs.base import with_fields
from planner.specs.inputs import JobOptions, load_job
from planner.strategies import STRATEGIES, StrategyEntry, parallel_search
from tests.modality_jobs import seeing_job
from tests.static_jobs import small_cluster, static_inputs


@pytest.fixture
def add(monkeypatch):
    """Adds a strategy of one function to the table by its entry's facts, and gives the bases that it is handed."""

    def added(name, plan, **facts):
        made, bases = types.ModuleType(f"planner.strategies.{name}"), []
        made.SUMMARY, made.supports, made.inputs_for_base = name, lambda _: None, lambda inputs: inputs
        made.plan = lambda inputs, base: bases.append(base) or plan(inputs, base)
        monkeypatch.setitem(sys.modules, made.__name__, made)
        monkeypatch.setitem(STRATEGIES, name, StrategyEntry(made.__name__, **facts))
        return bases

    return added


def best_of(inputs):
    return solve_job(with_strategy(inputs, "best"), silent).plan


def with_strategy(inputs, name):
    return replace(inputs, job=with_fields(inputs.job, strategy=name))


def named(plan):
    return {plan.made.strategy, *(each.strategy for each in plan.alternatives)}


def test_best_asks_what_is_in_the_table(tmp_path, add):
    """Once, as it leaves nothing to be tried; one for several modules alone is not asked for one."""
    cluster = small_cluster(tmp_path, "h100-80gb", 8)
    inputs = static_inputs(tmp_path, "llama-3-8b", cluster, [8192] * 8, "", "recompute: full, zero: 3, dtype: bf16")
    asked = add("again", lambda inputs, _: parallel_search.plan(inputs, None), modules="one", static=True)
    others = add("joint", lambda inputs, _: parallel_search.plan(inputs, None), modules="several", static=True)
    assert "again" in named(best_of(inputs)) and asked == [None] and others == []


@pytest.mark.slow
def test_best_tries_a_refinement_of_layouts_of_several_modules_in_every_batch(tmp_path, add):
    """It is handed the layouts' plan of each batch, gives its own, and what it started from is an alternative."""
    inputs = seeing_job(tmp_path, 2)
    renamed = {"refines": "modality_layout", "modules": "several", "static": True}
    bases = add("kept_as_it_is", lambda _, base: base, **renamed)
    plan = best_of(inputs)
    assert "kept_as_it_is" in named(plan) and plan.layouts == bases[0].layouts and {*plan.layouts} == {"llm", "vit"}
    alone = solve_job(with_strategy(inputs, "kept_as_it_is"), silent).plan
    (other,) = [each for each in alone.alternatives if each.because.startswith("what modality_layout gives alone")]
    assert {*other.layouts} == {"llm", "vit"} and alone.made.strategy == "kept_as_it_is"
    del bases[:]
    job = inputs.file
    job.write_text(job.read_text().replace("batch_rows: 5", "batch_rows: 2"))
    twice = solve_job(with_strategy(load_job(str(job), JobOptions(batches=2)), "kept_as_it_is"), silent).plan
    assert len(twice.steps) == 2 and bases[-1] and bases[-1].layouts == twice.layouts
    assert [*bases[-1].uses.items["llm"]] == [*twice.uses.items["llm"]][2:]
