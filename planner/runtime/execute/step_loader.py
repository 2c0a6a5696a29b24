"""Loads the contents of a rank's steps ahead, in worker processes, as the plan's loader says.

A worker reads, decodes and packs all that its rank holds of a step, and hands over two tensors a module through shared
memory (torch's DataLoader); steps arrive in their order, whatever the number of workers, so that losses are the same,
bit for bit. What a step waits for is measured. Steps that are planned during the run are loaded when they are known.
"""

import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.utils.data import Dataset

from planner.errors import PlannerError, RunFailed
from planner.launch import contents_ahead
from planner.models.inputs import HeldSpan, PackedContents, SampleSource, packed_contents
from planner.plan.task import Task
from planner.runtime.state.rank_state import RankState
from planner.specs.layers import Module

HeldTask = tuple[str, str, list[HeldSpan]]  # id and module of a forward, and what this rank holds of its items
ModuleContents = tuple[Tensor, Tensor, list[list[int]]]  # inputs and targets of all forwards, and targets of each span


@dataclass(frozen=True, slots=True)
class LoadedStep:
    """Contents of the forwards of a step by task, and the seconds that this rank waited for them."""

    contents: Mapping[str, PackedContents] = field(default_factory=dict)
    waited_s: float = 0.0


@dataclass(frozen=True, slots=True)
class StepContents(Dataset[Mapping[str, ModuleContents] | PlannerError]):
    """The contents of a rank's steps, each by module; or the error of one that cannot be loaded."""

    steps: Sequence[Sequence[HeldTask]]
    modules: Mapping[str, tuple[Module, SampleSource]]
    as_stored: bool

    def __getitem__(self, number: int) -> Mapping[str, ModuleContents] | PlannerError:
        loaded: dict[str, list[PackedContents]] = {}
        for _, module, spans in self.steps[number]:
            spec, source = self.modules[module]
            try:
                loaded.setdefault(module, []).append(packed_contents(source, spec, spans, self.as_stored))
            except PlannerError as error:
                return error
            except Exception as error:
                items = ", ".join(sorted({str(document.item) for document, _ in spans}))
                return RunFailed(f"items {items} of `{module}` cannot be loaded: {type(error).__name__}: {error}")
        return {
            module: (
                torch.cat([each.inputs for each in parts]),
                torch.cat([each.targets for each in parts]),
                [each.counts for each in parts],
            )
            for module, parts in loaded.items()
        }


def loaded_steps(local: RankState, numbers: Sequence[int]) -> Generator[LoadedStep, None, None]:
    """The contents of the plan's steps of these numbers, each when it is asked for; empty ones where the plan has no
    loader or the run no data. Raises what went wrong in a worker.
    """
    settings = local.plan.loader
    if settings is None or local.options.data is None:
        yield from (LoadedStep() for _ in numbers)
        return
    steps = [held_tasks(local, tasks) for tasks in local.steps]
    modules = {name: (loader.spec, loader.source) for name, loader in local.loaders.items()}
    contents = StepContents(steps, modules, settings.order == "stored")
    pinned = settings.pinned and local.worker.device.type == "cuda"
    ready = iter(contents_ahead(contents, numbers, settings.workers, settings.prefetch, pinned))
    for number in numbers:
        begun = time.perf_counter()
        found = next(ready)
        if isinstance(found, PlannerError):
            raise found
        yield LoadedStep(split_by_task(steps[number], found), time.perf_counter() - begun)


def held_tasks(local: RankState, tasks: Sequence[Task]) -> list[HeldTask]:
    """The forwards of a step on this rank, and what it holds of their items."""
    own = (task for task in tasks if task.phase == "F" and local.worker.rank in task.ranks)
    return [(task.id, task.module, local.loaders[task.module].held(task)) for task in own]


def split_by_task(tasks: Sequence[HeldTask], loaded: Mapping[str, ModuleContents]) -> dict[str, PackedContents]:
    """The contents of each forward, which are views of those of its module."""
    found: dict[str, PackedContents] = {}
    for module, (inputs, targets, counts) in loaded.items():
        own = [(name, spans) for name, of, spans in tasks if of == module]
        read = torch.split(inputs, [sum(last - first for _, (first, last) in spans) for _, spans in own])
        wanted = torch.split(targets, [sum(each) for each in counts])
        for at, (name, _) in enumerate(own):
            found[name] = PackedContents(read[at], wanted[at], counts[at])
    return found
