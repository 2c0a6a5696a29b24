"""A static layout's prices as the lines that plans carry: milliseconds per token², per token, and once.

Every term of a pass is of that form (costs/static/machine.py), so three lengths tell the line exactly; only a window
of attention, which is narrower than some sequences and wider than others, is taken at the length that is asked for.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from planner.costs.static.machine import Machine
from planner.costs.static.setup import Setup
from planner.costs.static.stage import Pass, Passes, head, mean_layer
from planner.specs.model import Module
from planner.specs.profile import Fit
from planner.units import MS

LEAST = 1e-12  # of the largest coefficient: below it, a difference is rounding


def compute_ms(found: Pass) -> float:
    return float(found.compute) / MS


def waits_ms(found: Pass) -> float:
    """Of tensor parallelism and of experts; cp's rings are priced apart, by the plan's groups."""
    return float(found.tp + found.ep) / MS


def layer_fit(module: Module, setup: Setup, machine: Machine, forward: bool, of: Callable[[Pass], float]) -> Fit:
    """One layer in the mean, for a micro-batch of one sequence, as a line over its length."""
    return line(setup, lambda each: mean_layer(module, each, machine), forward, of)


def head_fit(module: Module, setup: Setup, machine: Machine, forward: bool, of: Callable[[Pass], float]) -> Fit:
    """What stands behind the last layer, likewise."""
    return line(setup, lambda each: head(module, each, machine), forward, of)


def line(setup: Setup, priced: Callable[[Setup], Passes], forward: bool, of: Callable[[Pass], float]) -> Fit:
    """The parabola through three lengths around the setup's own."""
    lengths = np.array([0.5, 1.0, 2.0]) * float(setup.seq)
    values = []
    for length in lengths:
        passes = priced(replace(setup, seq=length, micro_batch=1, cp=1))
        values.append(of(passes.forward if forward else passes.backward))
    scaled = np.linalg.solve(np.vander(lengths / setup.seq, 3), np.array(values))  # over lengths in units of seq
    clean = np.where(np.abs(scaled) > LEAST * np.abs(scaled).max(initial=0.0), scaled, 0.0)
    squared, linear, once = (max(0.0, float(each)) for each in clean / np.array([setup.seq**2, setup.seq, 1.0]))
    return Fit(ms_per_token2=squared, ms_per_token=linear, ms=once)
