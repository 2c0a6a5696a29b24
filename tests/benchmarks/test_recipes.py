"""A recipe beside a pick: one price for both, and a pick that is no slower than any recipe of the space that fits."""

import dataclasses

from benchmarks.recipes import SOURCES, compared, picked
from planner.published.shipped_profiles import framework_software, machine_as_shipped
from tests.calibrate.made_cases import case

RECIPE = case(0, SOURCES[0], tp=4, pp=2, batch=64, ranks=16)


def test_no_recipe_that_fits_beats_the_pick():
    found = compared([RECIPE])
    assert found["recipe_fits"] and found["recipe_over_pick"] >= found["recipe_over_pick_of_its_zero"] >= 1.0


def test_a_pick_taken_as_the_recipe_is_as_quick_as_itself():
    pick = picked(RECIPE, machine_as_shipped(RECIPE), framework_software(RECIPE.software).knobs)
    again = compared([dataclasses.replace(RECIPE, setup=pick.columns)])
    assert again["recipe_over_pick"] == 1.0 and again["recipe"] == again["pick"]
