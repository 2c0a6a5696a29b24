"""A strategy that is added to the table is asked by `best`, for as many modules as its entry says; refinements too."""

import sys
import types
from dataclasses import replace

import pytest

from planner.callbacks import silent
from planner.errors import Unsupported
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


@pytest.mark.slow
def test_best_asks_what_is_in_the_table(tmp_path, add):
    """Once, as it leaves nothing to be tried; one for several modules alone is not asked for one."""
    cluster = small_cluster(tmp_path, "h100-80gb", 8)
    inputs = static_inputs(tmp_path, "llama-3-8b", cluster, [8192] * 8, "", "recompute: full, zero: 3, dtype: bf16")
    asked = add("again", lambda inputs, _: parallel_search.plan(inputs, None), modules="one", decides=("layouts",))
    others = add("joint", lambda inputs, _: parallel_search.plan(inputs, None), modules="several", decides=("layouts",))
    assert "again" in named(best_of(inputs)) and asked == [None] and others == []


@pytest.mark.soak
def test_best_tries_a_refinement_of_layouts_of_several_modules_in_every_batch(tmp_path, add):
    """It is handed the layouts' plan of each batch, gives its own, and what it started from is an alternative."""
    inputs = seeing_job(tmp_path, 2, "llm: {tp: 2, zero: 1, recompute: none, micro_batch: 1}, vit: {tp: 1, zero: 1}")
    renamed = {"refines": "modality_layout", "modules": "several", "decides": ("order",)}
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


FIXED = "llm: {tp: 2, zero: 1, recompute: none, micro_batch: 1}, vit: {tp: 1, zero: 1, recompute: none}"


def test_layouts_that_are_all_fixed_are_a_named_strategy_s_to_plan(tmp_path, add):
    """Of several modules, too: it is asked, or refuses; where no strategy is named they are planned as they are."""
    job = seeing_job(tmp_path, fixed=FIXED).file
    text = job.read_text()
    job.write_text(text.replace("strategy: modality_layout\n", ""))
    unnamed = load_job(str(job), JobOptions())
    by_hand = solve_job(unnamed, silent).plan
    assert by_hand.made.strategy == "by_hand" and not by_hand.made.decided
    bases = add("given", lambda inputs, _: by_hand, modules="several", decides=("samples",))
    solve_job(with_strategy(unnamed, "given"), silent)
    assert bases == [None]
    with pytest.raises(Unsupported, match="parallel_search plans one module"):
        solve_job(with_strategy(unnamed, "parallel_search"), silent)


def test_a_refinement_may_name_what_it_starts_from_by_what_is_decided(tmp_path, add):
    cluster = small_cluster(tmp_path, "h100-80gb", 8)
    inputs = static_inputs(tmp_path, "llama-3-8b", cluster, [8192] * 8, "", "recompute: full, zero: 3, dtype: bf16")
    add("as_it_is", lambda _, base: base, decides=("order",), modules="one", refines="layouts")
    made = solve_job(with_strategy(inputs, "as_it_is"), silent).plan.made
    assert made.decided == {"layouts": "parallel_search", "samples": "parallel_search", "order": "as_it_is"}
