"""A static layout's prices as the lines that plans carry: milliseconds per token², per token, and once.

Every term of a pass is of that form (costs/static/machine.py), so three lengths tell the line exactly. What is not, a
window of attention that is wider than some sequences, or a host that launches more slowly than the device computes, is
taken as it is near the length that is asked for.
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

NEAR = np.array([0.9, 1.0, 1.1])  # of the length that is asked for
LEAST = 1e-11  # of the largest coefficient: below it, a difference is rounding


def compute_ms(found: Pass) -> float:
    return float(found.compute) / MS


def waits_ms(found: Pass) -> float:
    """Of tensor parallelism and of experts."""
    return float(found.tp + found.ep) / MS


def ring_fit(module: Module, setup: Setup, machine: Machine, forward: bool) -> Fit:
    """What of cp's ring attention does not hide, per token of sequences as long as the setup's."""
    passes = mean_layer(module, setup, machine)
    seconds = (passes.forward if forward else passes.backward).cp
    return Fit(ms_per_token=float(seconds / (setup.micro_batch * setup.seq)) / MS)


def layer_fit(module: Module, setup: Setup, machine: Machine, forward: bool, of: Callable[[Pass], float]) -> Fit:
    """One layer in the mean, for a micro-batch of one sequence, as a line over its length."""
    return line(setup, lambda each: mean_layer(module, each, machine), forward, of)


def head_fit(module: Module, setup: Setup, machine: Machine, forward: bool, of: Callable[[Pass], float]) -> Fit:
    """What stands behind the last layer, likewise."""
    return line(setup, lambda each: head(module, each, machine), forward, of)


def line(setup: Setup, priced: Callable[[Setup], Passes], forward: bool, of: Callable[[Pass], float]) -> Fit:
    """The parabola through three lengths around the setup's own; of one rank, as if its group had no other but tp's."""
    values = []
    for part in NEAR:
        passes = priced(replace(setup, seq=part * setup.seq))
        values.append(of(passes.forward if forward else passes.backward))
    scaled = np.linalg.solve(np.vander(NEAR, 3), np.array(values))  # over lengths in units of seq
    clean = np.where(scaled > LEAST * np.abs(scaled).max(initial=0.0), scaled, 0.0)
    clean *= values[1] / clean.sum() if clean.sum() > 0 else 0.0  # exact at the length that is asked for
    count, length = float(setup.micro_batch), float(setup.seq)
    squared, linear, once = (float(each) for each in clean / np.array([count * length**2, count * length, 1.0]))
    return Fit(ms_per_token2=squared, ms_per_token=linear, ms=once)
