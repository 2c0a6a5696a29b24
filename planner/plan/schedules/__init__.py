"""Orders of forward and backward on pipeline stages. A generator is a function of (stages, stage, micro_batches), and
of the chunks of layers that a stage has where it may have several.
"""

from importlib import import_module

from planner.errors import InputError

Slot = tuple[str, int, int]  # phase, micro-batch, and which of the stage's chunks

SCHEDULES = {
    "gpipe": "planner.plan.schedules.gpipe",
    "1f1b": "planner.plan.schedules.one_forward_one_backward",
    "interleaved": "planner.plan.schedules.interleaved",
}
CHUNKED = "interleaved"  # the one that knows chunks


def schedule(name: str, stages: int, micro_batches: int, chunks: int = 1) -> list[list[Slot]]:
    """For each stage, its slots in order. Raises InputError for an unknown name, and where it does not fit."""
    if name not in SCHEDULES:
        raise InputError(f"no schedule is called `{name}`", where="order", fix=f"one of {', '.join(SCHEDULES)}")
    module = import_module(SCHEDULES[name])
    if name == CHUNKED:
        if micro_batches % stages:
            message = f"{micro_batches} micro-batches are no multiple of {stages} pipeline stages"
            raise InputError(message, where="order", fix="interleaved needs that; or 1f1b, with one chunk a rank")
        return [module.slots(stages, stage, micro_batches, chunks) for stage in range(stages)]
    if chunks > 1:
        message = f"`{name}` has one chunk of layers a stage, and there are {chunks}"
        raise InputError(message, where="order", fix=f"order: {CHUNKED}, or one range of layers per stage")
    return [[(*slot, 0) for slot in module.slots(stages, stage, micro_batches)] for stage in range(stages)]
