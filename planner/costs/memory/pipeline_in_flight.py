"""Micro-batches in flight on a pipeline stage, whose activations it keeps at once, by schedule.

1F1B: as many as there are stages from this one on. Interleaved: 1 + (pp − 1)/(pp·vpp) times as many on the first
(Korthikanti et al., arXiv 2205.05198, §4.2.3). Zero bubble's H1: pp on every stage, since weight gradients wait for the
bubble; H2: 2·pp − 1 (Qi et al., arXiv 2401.10241, §2).
"""

import numpy as np

from planner.costs.layout_columns import LayoutColumns, Number


def in_flight(at: LayoutColumns, stage: Number) -> Number:
    """Micro-batches in flight over all layers of the stage; a fraction where one counts for some chunks only. Stages
    count from 0.
    """
    return np.minimum(at.micro_batches, most_in_flight(at, stage))


def most_in_flight(at: LayoutColumns, stage: Number) -> Number:
    """The same with any number of micro-batches in a step: of no stage more than of one in front of it."""
    if at.schedule == "gpipe":
        return np.inf + 0.0 * stage
    if at.schedule == "zb_h1":
        return at.pp + 0.0 * stage
    if at.schedule == "zb_h2":
        return 2 * at.pp - 1 + 0.0 * stage
    return np.where(np.asarray(at.vpp) > 1, interleaved_in_flight(at, stage), at.pp - stage)


def interleaved_in_flight(at: LayoutColumns, stage: Number) -> Number:
    """Two chunks of warm-up for each later stage, all of its other chunks for pp micro-batches, and one."""
    return (2 * (at.pp - stage - 1) + (at.vpp - 1) * at.pp + 1) / at.vpp
