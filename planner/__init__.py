"""planner: decide how to spread a model over a cluster, prove the decision, launch it, check it.

    import planner

    plan = planner.solve("demo-cpu-4").plan      # or planner.load("plan.yaml")
    planner.verify(plan)                         # raises where it is illegal or not worth what it says
    [score] = planner.simulate(plan)             # score.timeline, score.memory, score.bound
    for task in planner.tasks(plan, rank=0):     # what a rank does, in order
        ...

These names are stable; they are loaded when first used.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"
__all__ = ["__version__", "load", "simulate", "solve", "tasks", "verify"]

API = {"load": "read_plan", "solve": "solve", "verify": "verify", "simulate": "simulate", "tasks": "tasks"}


def __getattr__(name: str) -> Any:
    if name in API:
        return getattr(import_module("planner.pipeline"), API[name])
    raise AttributeError(f"module `planner` has no attribute `{name}`")
