"""How far gradients and losses are from those of one process, also where these are zero."""

import math

import pytest
import torch

from planner.runtime.parity.parity_reference import relative_error, worst_error


def test_the_worst_parameter_is_named():
    want = {"a": torch.tensor([3.0, 4.0]), "b": torch.tensor([0.0, 2.0])}
    error, name = worst_error({"a": torch.tensor([3.0, 4.5]), "b": torch.tensor([0.0, 2.5])}, want)
    assert (error, name) == (0.25, "b")


def test_of_zero_gradients_only_zero_is_right():
    want = {"a": torch.zeros(2), "b": torch.zeros(3)}
    assert worst_error(want, want)[0] == 0
    assert worst_error({"a": torch.zeros(2), "b": torch.ones(3)}, want) == (math.inf, "b")


@pytest.mark.parametrize(
    ("error", "to", "relatively"),
    [(0.0, 0.0, 0.0), (1e-9, 0.0, math.inf), (1.0, 4.0, 0.25), (math.nan, 1.0, math.inf), (math.inf, 1.0, math.inf)],
)
def test_errors_relative_to_nothing(error, to, relatively):
    assert relative_error(error, to) == relatively
