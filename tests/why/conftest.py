"""Plans that people ask about."""

from functools import cache

import pytest

from planner import pipeline
from planner.specs.inputs import JobOptions
from tests.placed_jobs import PLACEMENTS, placed_job


@pytest.fixture(scope="session")
def plan():
    return pipeline.solve("demo-cpu-4", JobOptions(effort=1)).plan


@pytest.fixture(scope="session")
def placed(tmp_path_factory):
    """The plan of a placement, by name."""
    return cache(lambda name: pipeline.solve(placed_job(tmp_path_factory.mktemp("placed"), PLACEMENTS[name])).plan)


@pytest.fixture(scope="session")
def wide():
    return pipeline.solve("flexsp-gpt-7b-a100x64", JobOptions(first_row=2048, effort=1)).plan
