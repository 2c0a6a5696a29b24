"""Pipeline schedules: orders of forward (F), backward (B), or backward in two, of inputs (I) and of weights (W).

A schedule is a function of (stages, stage, micro_batches), and of the chunks of a rank where it supports several. An
order that a plan has slot by slot is parsed by `explicit.py`.
"""

from functools import lru_cache
from importlib import import_module

from planner.errors import InputError
from planner.plan.task import Phase

Slot = tuple[Phase, int, int]  # phase, micro-batch, and which of the rank's chunks

SCHEDULES = {
    "gpipe": "planner.plan.schedules.gpipe",
    "1f1b": "planner.plan.schedules.one_forward_one_backward",
    "interleaved": "planner.plan.schedules.interleaved",
    "zb_h1": "planner.plan.schedules.zb_h1",
    "zb_h2": "planner.plan.schedules.zb_h2",
    "forward_only": "planner.plan.schedules.forward_only",
}
DEFAULT_SCHEDULE = "1f1b"  # what is done where nothing else is said
INTERLEAVED = "interleaved"  # the one that knows chunks
FORWARD_ONLY = "forward_only"  # the one that trains nothing


def default_schedule(chunks: int) -> str:
    """Return the schedule of a pipeline whose ranks have so many chunks each, where nothing else is said."""
    return INTERLEAVED if chunks > 1 else DEFAULT_SCHEDULE


@lru_cache(maxsize=64)  # plans of a search have few shapes of pipelines
def schedule_slots(name: str, stages: int, micro_batches: int, chunks: int = 1) -> list[list[Slot]]:
    """Return the slots of each stage in order. Raises InputError for an unknown name, and where it does not fit."""
    if name not in SCHEDULES:
        raise InputError(f"no schedule is called `{name}`", where="order", fix=f"one of {', '.join(SCHEDULES)}")
    module = import_module(SCHEDULES[name])
    if name == INTERLEAVED:
        if micro_batches % stages:
            message = f"{micro_batches} micro-batches are no multiple of {stages} pipeline stages"
            raise InputError(message, where="order", fix="interleaved needs that; or 1f1b, with one chunk a rank")
        return [module.slots(stages, stage, micro_batches, chunks) for stage in range(stages)]
    if chunks > 1:
        message = f"`{name}` has one chunk of layers a stage, and there are {chunks}"
        raise InputError(message, where="order", fix=f"order: {INTERLEAVED}, or one range of layers per stage")
    return [[(*slot, 0) for slot in module.slots(stages, stage, micro_batches)] for stage in range(stages)]
