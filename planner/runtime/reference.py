"""The oracle: the same weights and items in one process, a pack of items at a time, on the first rank."""

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

import torch
from torch import Tensor

from planner.errors import RunFailed
from planner.models.auxiliary import Auxiliary
from planner.models.batch import Batch, Features, Memory
from planner.models.build import build
from planner.models.data import batch_from
from planner.models.network import Network
from planner.models.pretrained import first_weights
from planner.plan.feeding import Item, feeding
from planner.plan.task import Task
from planner.runtime import whole
from planner.runtime.executor import RankStep
from planner.runtime.fsdp import STORED
from planner.runtime.local import Local
from planner.runtime.options import RunOptions
from planner.runtime.packs import Pack, packs
from planner.runtime.result import Verified
from planner.runtime.resuming import first_of
from planner.specs.items import documents_of, lengths_of
from planner.specs.model import By

FLOOR = 1e-3  # a tensor's error counts against at least this much of the largest gradient


class Reference:
    """Every rank takes part in gathering; the first compares. Weights are never less precise than float32."""

    def __init__(self, local: Local, options: RunOptions) -> None:
        self.local = local
        self.begun = False
        self.worst = Verified(steps=0, items=0, loss_rel_err=0.0, grad_rel_err=0.0, worst="")
        self.models: dict[str, Network] = {}
        self.fed: dict[tuple[Item, By], list[tuple[int, Item]]] = defaultdict(list)  # by reader: from where on, what
        for item, places in feeding(local.plan).items():
            for place in places:
                self.fed[place.target, place.by].append((place.first, item))
        for name, layout in local.plan.layouts.items() if local.worker.rank == 0 else ():
            stored = STORED[options.dtype or layout.dtype]
            self.models[name] = build(local.plan.uses.models[name], dtype=stored, device=local.worker.device)
            first_weights(self.models[name], self.models[name].spec, first_of(options, local.found, name))
            self.models[name].feeds = name in local.feeding

    @torch.no_grad()
    def follow(self) -> None:
        """Before a step: take the weights that training has come to; those it starts from are the reference's own."""
        if not self.begun:
            self.begun = True
            return
        found = whole.weights(self.local)
        for module, model in self.models.items():
            for name, parameter in model.named_parameters():
                parameter.copy_(found[module][name])

    def compare(self, tasks: Sequence[Task], ranks: Sequence[RankStep]) -> None:
        """After a step: its loss and its gradients, which are still there, with the reference's own."""
        found = whole.gradients(self.local)
        if not self.models:
            return
        ended = [task for task in tasks if task.phase == "F" and self.local.concludes(task)]
        require_once(ended, [task for task in ended if self.local.ends(task)], ranks)
        want_loss, want = self.train(ended)
        loss, scale = sum(rank.loss for rank in ranks), ranks[0].clipped.scale if ranks[0].clipped else 1.0
        named = {f"{module}.{name}": gradient / scale for module, of in found.items() for name, gradient in of.items()}
        trained = any(task.phase == "update" for task in tasks)  # else there are no gradients
        error, name = worst_error(named, want) if trained else (0.0, "")
        before = self.worst
        self.worst = Verified(
            steps=before.steps + 1,
            items=before.items + sum(len(task.items) for task in ended),
            loss_rel_err=max(before.loss_rel_err, relative(abs(loss - want_loss), abs(want_loss))),
            grad_rel_err=max(before.grad_rel_err, error),
            worst=name if error >= before.grad_rel_err else before.worst,
        )

    def train(self, ended: Sequence[Task]) -> tuple[float, dict[str, Tensor]]:
        """Loss per target and gradients, each pack by itself."""
        for model in self.models.values():
            model.zero_grad()
        targets, total = max(1, sum(self.local.targets(task) for task in ended if self.local.ends(task))), 0.0
        ends = [*filter(self.local.ends, ended)]  # encoders work with the items that read them
        for module, model in self.models.items():
            of_module = [task for task in ends if task.module == module]
            for pack in packs(model.spec, self.local.plan.layouts[module], of_module):
                batch = self.batch(module, pack, 1 / targets)
                loss = model(batch) / targets
                loss.backward()
                total += loss.item() + float(batch.auxiliary.total(range(model.spec.layers)))
        return total, {
            f"{module}.{name}": parameter.grad.cpu()
            for module, model in self.models.items()
            for name, parameter in model.named_parameters()
            if parameter.grad is not None
        }

    def batch(self, module: str, pack: Pack, scale: float) -> Batch:
        """Items with the outputs of all encoder items that feed them."""
        spec, device = self.models[module].spec, self.local.worker.device
        batch = batch_from(self.local.sources[module], spec, pack.documents, device=device)
        slices = tuple(rows.to(device) for rows in pack.slices)
        features, memory = self.features(module, pack, scale), self.memory(module, pack, scale)
        return replace(batch, slices=slices, auxiliary=Auxiliary(scale), features=features, memory=memory)

    def features(self, module: str, pack: Pack, scale: float) -> Features | None:
        """Outputs of the encoder items that feed the items of a pack: they stand at their beginnings."""
        rows, values, start = [], [], 0
        for item, tokens, begin in pack.documents:
            for first, source in () if begin else self.fed.get(((module, item), "tokens"), ()):
                values.append(self.outputs(source, scale))
                rows.append(start + first + torch.arange(len(values[-1]), device=values[-1].device))
            start += tokens
        return Features(torch.cat(rows), torch.cat(values)) if values else None

    def memory(self, module: str, pack: Pack, scale: float) -> Memory | None:
        """Outputs of the encoder items that cross attention reads for the items of a pack."""
        sources = [self.fed.get(((module, item), "cross_attention"), ()) for item, _, _ in pack.documents]
        values = [[self.outputs(source, scale) for _, source in of_item] for of_item in sources]
        if not any(values):
            return None
        lengths = [sum(len(value) for value in of_item) for of_item in values]
        ends = torch.tensor([0, *accumulate(lengths)], dtype=torch.int32)
        return Memory(torch.cat([value for of_item in values for value in of_item]), ends)

    def outputs(self, source: Item, scale: float) -> Tensor:
        """Of one encoder item."""
        module, item = source
        pack = Pack(documents_of((item,), (lengths_of(self.local.plan.uses.items[module][item]),)))
        return self.models[module](self.batch(module, pack, scale))  # type: ignore[no-any-return]


def worst_error(gradients: dict[str, Tensor], want: dict[str, Tensor]) -> tuple[float, str]:
    """Largest ‖g - g*‖ / ‖g*‖ of a tensor, and its name.

    Some gradients are zero but for rounding, such as that of a key's bias, to which softmax is blind: a norm below a
    small share of the largest counts as that share.
    """
    norms = {name: gradient.double().norm().item() for name, gradient in want.items()}
    floor = FLOOR * max(norms.values())
    errors = {
        name: relative((gradients[name].double() - gradient.double()).norm().item(), max(norms[name], floor))
        for name, gradient in want.items()
    }
    worst = max(errors, key=lambda name: errors[name])
    return errors[worst], worst


def relative(error: float, to: float) -> float:
    """Where nothing has a target losses and gradients are zero: zero then has no error, and all else an infinite one,
    as has what is no number.
    """
    if error == 0:
        return 0.0
    return error / to if to and math.isfinite(error) else math.inf


def require_once(ended: Sequence[Task], losses: Sequence[Task], ranks: Sequence[RankStep]) -> None:
    """Every item of the step went through exactly one group, and every token with a loss through one rank."""
    items = [(task.module, item) for task in ended for item in task.items]
    worked = Counter(item for rank in ranks for item in rank.items)
    tokens, held = sum(task.tokens for task in losses), sum(rank.tokens for rank in ranks)
    wrong = [item for item in items if worked[item] != 1]
    if wrong or len(worked) != len(items) or held != tokens:
        what = f"item {wrong[0][1]} was worked on {worked[wrong[0]]} times" if wrong else f"ranks held {held} tokens"
        raise RunFailed(
            f"the step was not the plan's {len(items)} items with {tokens} tokens: {what}",
            fix="this is a bug of the runtime, please report it",
        )
