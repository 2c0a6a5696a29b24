"""Plans that people ask about."""

import pytest

from planner import pipeline
from planner.specs.inputs import JobOptions


@pytest.fixture(scope="session")
def plan():
    return pipeline.solve("demo-cpu-4").plan


@pytest.fixture(scope="session")
def wide():
    return pipeline.solve("flexsp-gpt-7b-a100x64", JobOptions(first_row=2048)).plan
