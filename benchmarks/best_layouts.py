"""The one place where benchmarks ask for the best layout: quickest by the closed form, of those that fit in memory."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.costs import LayoutColumns, MachineModel
from planner.costs.memory import device_accounting
from planner.layouts.screening.layout_screening import screen
from planner.layouts.space.launchable_layouts import layouts_of
from planner.layouts.space.layout_fields import TrainingSetup, columns_for
from planner.layouts.space.layout_problem import EVERY_KNOB, LayoutProblem
from planner.layouts.space.layout_space import LayoutSpace, layout_at
from planner.specs.framework.knobs import Knobs
from planner.specs.job import Limits
from planner.specs.layers import Module
from planner.specs.parallelism import Parallelism

NOTHING_FIXED = Parallelism()
Allowed = Callable[[LayoutSpace], NDArray[np.bool_]]  # which layouts of a space may be chosen, (layouts,)


@dataclass(frozen=True, slots=True)
class Step:
    """What a layout is for: a module, its ranks, equal sequences, and what the framework can launch."""

    module: Module
    ranks: int
    seq: int  # tokens
    batch: int  # sequences
    knobs: Knobs = EVERY_KNOB


@dataclass(frozen=True, slots=True)
class Pick:
    """The layout chosen, its predicted seconds of a step, and how many it was chosen from."""

    columns: LayoutColumns
    seconds: float
    layouts: int


def everything(space: LayoutSpace) -> NDArray[np.bool_]:
    return np.ones(len(space["tp"]), dtype=bool)


def best_layout(
    step: Step, machine: MachineModel, fixed: Parallelism = NOTHING_FIXED, allowed: Allowed = everything
) -> Pick | None:
    """The quickest layout that is allowed and fits in memory; None without one."""
    trained = TrainingSetup(step.module, step.ranks, (step.seq,) * step.batch, fixed)
    problem = LayoutProblem(
        trained, machine, device_accounting(machine.device, machine.accounting), Limits(), step.knobs
    )
    space = layouts_of(problem, fixed)
    may_be = allowed(space)
    space = {name: column[may_be] for name, column in space.items()}
    screened = screen(problem, space)
    (fitting,) = np.nonzero(screened.fits(problem))
    if not len(fitting):
        return None
    first = int(fitting[np.argmin(screened.seconds[fitting])])
    columns = columns_for(layout_at(trained, screened.layouts, first), trained)
    return Pick(columns, float(screened.seconds[first]), len(may_be))
