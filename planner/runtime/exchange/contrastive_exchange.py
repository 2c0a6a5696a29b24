"""Losses of tasks that compare features of all their samples, on one rank: between forwards and backwards of a step.

The ranks of a task gather all features, each rank computes the loss of every n-th sample, whoever holds it, and the
sum of the gradients of all ranks returns to where the outputs are. A module that several tasks read has the sum of
theirs.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce

import torch
from torch import Tensor

from planner.launch.communication import CommunicationMeter, ProcessGroups, RaggedGroup
from planner.models import contrastive_loss
from planner.plan.plan_file import Plan
from planner.plan.task import Task
from planner.runtime.exchange.feature_parts import FeaturePart, feature_parts
from planner.runtime.exchange.micro_batch_in_flight import InFlightKey, MicroBatchInFlight


class ContrastiveExchange:
    """The losses of one rank. `compute_dtypes`: of each module, the dtype of its outputs."""

    def __init__(
        self, plan: Plan, groups: ProcessGroups, meter: CommunicationMeter, compute_dtypes: Mapping[str, torch.dtype]
    ) -> None:
        self.plan, self.groups, self.meter, self.compute_dtypes = plan, groups, meter, compute_dtypes
        self.parts: dict[str, Mapping[int, list[FeaturePart]]] = {}  # by id of a loss, then by rank
        self.flights: Mapping[InFlightKey, MicroBatchInFlight] = {}

    def begin_step(self, tasks: Sequence[Task], flights: Mapping[InFlightKey, MicroBatchInFlight]) -> None:
        """Before a step: finds the parts of all features; `tasks`: of all ranks."""
        self.flights = flights
        self.parts = {task.id: feature_parts(self.plan, tasks, task) for task in tasks if task.phase == "loss"}

    def compare(self, task: Task, device: torch.device) -> Tensor:
        """This rank's part (scalar) of a loss in that of the step; leaves gradients with the outputs compared."""
        compared, parts, count = self.plan.uses.tasks[task.group], self.parts[task.id], len(task.items)
        own, group = parts.get(self.groups.rank, []), self.group(task)
        dtype = reduce(torch.promote_types, (self.compute_dtypes[name] for name in compared.modules), torch.float32)
        outputs = {part.key: self.flights[part.key].detached_output().requires_grad_() for part in own}
        nothing = torch.zeros(0, self.plan.uses.models[task.module].feature_width, dtype=dtype, device=device)
        sent = torch.cat([nothing.requires_grad_(), *summed_parts(own, outputs, dtype)])
        gathered = group.all_gather(sent, [len(parts.get(rank, ())) for rank in task.ranks])
        places = [part.place for rank in task.ranks for part in parts.get(rank, ())]
        features = gathered.new_zeros(2 * count, gathered.shape[1]).index_add(0, index(places, device), gathered)
        dealt = index([*range(group.index, count, group.size)], device)
        loss = compared.weight / count * contrastive_loss(features.view(2, count, -1), dealt)
        loss.backward()  # type: ignore[no-untyped-call]
        for key, output in outputs.items():
            self.flights[key].add_gradient(output.grad)
        return loss.detach()

    def group(self, task: Task) -> RaggedGroup:
        """The ranks of a loss."""
        return RaggedGroup(self.groups[task.ranks] if len(task.ranks) > 1 else None, self.meter, "edge")


def summed_parts(
    own: Sequence[FeaturePart], outputs: Mapping[InFlightKey, Tensor], dtype: torch.dtype
) -> Iterator[Tensor]:
    """The parts of features (parts of a micro-batch, width), in the order of `own`; `outputs`: (outputs, width)."""
    of_flight: dict[InFlightKey, list[FeaturePart]] = defaultdict(list)
    for part in own:
        of_flight[part.key].append(part)
    for key, parts in of_flight.items():
        rows = [row for part in parts for row in range(part.first, part.first + part.outputs)]
        x = outputs[key][index(rows, outputs[key].device)].to(dtype)
        each = torch.split(x, [part.outputs for part in parts])
        yield torch.stack([part.share * one.sum(0) for part, one in zip(parts, each, strict=True)])


def index(numbers: Sequence[int], device: torch.device) -> Tensor:
    """Numbers as (numbers) int64."""
    return torch.tensor(numbers, dtype=torch.int64, device=device)
