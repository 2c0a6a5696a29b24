"""The oracle: the same weights and items in one process, item by item, on the first rank."""

import math
from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor

from planner.errors import RunFailed
from planner.models.build import build, init_weights
from planner.models.data import packed_batch
from planner.plan.task import Task
from planner.runtime.executor import RankStep
from planner.runtime.result import Verified
from planner.runtime.sharded import Sharded

FLOOR = 1e-3  # a tensor's error counts against at least this much of the largest gradient


class Reference:
    """Every rank takes part in gathering; the first compares. Weights are never less precise than float32."""

    def __init__(self, sharded: Sharded, first: bool, seed: int) -> None:
        self.sharded, self.seed = sharded, seed
        self.begun = False
        self.worst = Verified(steps=0, items=0, loss_rel_err=0.0, grad_rel_err=0.0, worst="")
        self.model = build(sharded.model.spec, dtype=sharded.stored, device=sharded.device) if first else None
        if self.model is not None:
            init_weights(self.model, seed)

    @torch.no_grad()
    def follow(self) -> None:
        """Before a step: take the weights that training has come to; those it starts from are the reference's own."""
        if not self.begun:
            self.begun = True
            return
        weights = self.sharded.weights()
        if self.model is not None:
            for name, parameter in self.model.named_parameters():
                parameter.copy_(weights[name])

    def compare(self, tasks: Sequence[Task], ranks: Sequence[RankStep]) -> None:
        """After a step: its loss and its gradients, which are still there, with the reference's own."""
        gradients = self.sharded.gradients()
        if self.model is None:
            return
        items = [item for task in tasks if task.phase == "F" for item in zip(task.items, task.sizes, strict=True)]
        require_once(items, ranks)
        want_loss, want = self.train(items)
        loss = sum(rank.loss for rank in ranks)
        error, name = worst_error(gradients, want)
        before = self.worst
        self.worst = Verified(
            steps=before.steps + 1,
            items=before.items + len(items),
            loss_rel_err=max(before.loss_rel_err, finite(abs(loss / want_loss - 1))),
            grad_rel_err=max(before.grad_rel_err, error),
            worst=name if error >= before.grad_rel_err else before.worst,
        )

    def train(self, items: Sequence[tuple[int, int]]) -> tuple[float, dict[str, Tensor]]:
        """Loss per token and gradients, each item by itself."""
        assert self.model is not None
        self.model.zero_grad()
        tokens, total = sum(size for _, size in items), 0.0
        for item in items:
            loss = self.model(packed_batch(self.model.spec, [item], self.seed, device=self.sharded.device)) / tokens
            loss.backward()
            total += loss.item()
        found = {name: parameter.grad for name, parameter in self.model.named_parameters()}
        return total, {name: gradient for name, gradient in found.items() if gradient is not None}


def worst_error(gradients: dict[str, Tensor], want: dict[str, Tensor]) -> tuple[float, str]:
    """Largest ‖g - g*‖ / ‖g*‖ of a tensor, and its name.

    Some gradients are zero but for rounding, such as that of a key's bias, to which softmax is blind: a norm below a
    small share of the largest counts as that share.
    """
    norms = {name: gradient.double().norm().item() for name, gradient in want.items()}
    floor = FLOOR * max(norms.values())
    errors = {
        name: (gradients[name].double() - gradient.double()).norm().item() / max(norms[name], floor)
        for name, gradient in want.items()
    }
    worst = max(errors, key=lambda name: finite(errors[name]))
    return finite(errors[worst]), worst


def finite(error: float) -> float:
    """No number is the largest of errors."""
    return error if math.isfinite(error) else math.inf


def require_once(items: Sequence[tuple[int, int]], ranks: Sequence[RankStep]) -> None:
    """Every item of the step went through exactly one group, and every token through one rank."""
    worked = Counter(item for rank in ranks for item in rank.items)
    tokens, held = sum(size for _, size in items), sum(rank.tokens for rank in ranks)
    wrong = [item for item, _ in items if worked[item] != 1]
    if wrong or len(worked) != len(items) or held != tokens:
        what = f"item {wrong[0]} was worked on {worked[wrong[0]]} times" if wrong else f"ranks held {held} tokens"
        raise RunFailed(
            f"the step was not the plan's {len(items)} items with {tokens} tokens: {what}",
            fix="this is a bug of the runtime, please report it",
        )
