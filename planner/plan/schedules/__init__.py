"""Orders of forward and backward on pipeline stages. A generator is a function of (stages, stage, micro_batches)."""

from importlib import import_module

from planner.errors import InputError

Slot = tuple[str, int]  # phase and micro-batch

SCHEDULES = {
    "gpipe": "planner.plan.schedules.gpipe",
    "1f1b": "planner.plan.schedules.one_forward_one_backward",
}


def schedule(name: str, stages: int, micro_batches: int) -> list[list[Slot]]:
    """For each stage, its slots in order. Raises InputError for an unknown name."""
    if name not in SCHEDULES:
        raise InputError(f"no schedule is called `{name}`", where="order", fix=f"one of {', '.join(SCHEDULES)}")
    module = import_module(SCHEDULES[name])
    return [module.slots(stages, stage, micro_batches) for stage in range(stages)]
