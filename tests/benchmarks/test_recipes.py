"""A recipe beside a pick: one price for both, and a pick that is no slower than any recipe of the space that fits."""

import dataclasses

from benchmarks.recipes import SOURCES, compared, over_all, picked, recipes
from planner.published.predict_cases import shipped_profiles
from planner.published.shipped_profiles import pricing_machine
from tests.calibrate.made_cases import case

RECIPE = case(0, SOURCES[0], tp=4, pp=2, batch=64, ranks=16)


def test_no_recipe_that_fits_beats_the_pick():
    found = compared([RECIPE])
    assert found["recipe_fits"] and found["recipe_over_pick"] >= found["recipe_over_pick_of_its_zero"] >= 1.0


def test_a_pick_taken_as_the_recipe_is_as_quick_as_itself():
    profile, software = shipped_profiles(RECIPE)
    pick = picked(RECIPE, pricing_machine(RECIPE, profile, software), software.knobs)
    again = compared([dataclasses.replace(RECIPE, setup=pick.columns)])
    assert again["recipe_over_pick"] == 1.0 and again["recipe"] == again["pick"]


def test_repeated_measurements_are_one_recipe_and_other_sources_none():
    assert list(map(len, recipes([RECIPE, RECIPE, case(1, "somebody")]))) == [2]


def test_counts_are_of_ratios():
    lines = [
        {"recipe_fits": fits, "recipe_over_pick": each, "recipe_over_pick_of_its_zero": each}
        for fits, each in ((True, 1.0), (True, 1.12), (False, 0.8), (True, 1.2), (False, None))
    ]
    every, fitting = list(over_all(lines))[:2]
    assert (every["recipes"], every["without_a_pick"], fitting["recipes"]) == (5, 1, 3)
    assert (every["recipes_over_10_percent_behind"], every["gains_over_15_percent"]) == (2, 1)
    assert (every["picks_behind"], fitting["picks_behind"]) == (1, 0)
