"""Training in one process, as torch's own tutorials have it: sample by sample, the loss as its definition says, AdamW
over all modules, parameters without a gradient left alone. Nothing of it comes from the runtime but the networks.
"""

import math
from dataclasses import replace

import torch
from torch.nn.utils import clip_grad_norm_

from planner.launch.worker import joined_world
from planner.models import CrossAttentionMemory, EncoderFeatures
from planner.models.build import build, init_weights
from planner.models.inputs.training_items import synthetic_batch
from planner.plan.plan_file import Plan, assignments
from planner.runtime.execute.early_stop import EarlyStop
from planner.runtime.execute.training_loop import prepare_executor, train_steps
from planner.runtime.measure.gpu_memory import make_memory_snapshot
from planner.runtime.state import full_tensors
from planner.specs.workload.items import packed_documents, part_lengths
from tests.runtime.training_worlds import choose_warm_up


class OneProcess:
    """The modules of a plan, whole, and one optimizer of all of them."""

    def __init__(self, plan: Plan, options) -> None:
        self.plan, self.seed, self.clip = plan, options.seed, options.training.clip
        self.models = {name: build(plan.uses.models[name], dtype=torch.float64) for name in plan.layouts}
        for name, model in self.models.items():
            init_weights(model, self.seed)
            model.feeds_module = any(edge.source == name for edge in plan.edges)
        named = [weight for model in self.models.values() for weight in model.named_parameters()]
        matrices = [weight for name, weight in named if weight.dim() > 1 and not name.endswith("bias")]
        others = [weight for _, weight in named if not any(weight is matrix for matrix in matrices)]
        groups = [{"params": matrices, "weight_decay": options.training.decay}, {"params": others, "weight_decay": 0.0}]
        training = options.training
        self.optimizer = torch.optim.AdamW(groups, lr=training.learning_rate, betas=training.betas)

    def train(self, steps: int) -> tuple[list[float], list[float]]:
        """Losses and norms of gradients."""
        return tuple(zip(*(self.step(number) for number in range(steps)), strict=True))

    def step(self, number: int) -> tuple[float, float]:
        step = self.plan.steps[number % len(self.plan.steps)]
        last = [name for name, model in self.models.items() if not model.feeds_module]
        assigned = [a for row in step.micro_batches for a in assignments(self.plan, row) if a.module in last]
        self.optimizer.zero_grad()
        summed = [self.sample(a.module, item) for a in assigned for item in a.items]
        loss = weighted(self.plan.uses.loss, [(loss, count) for loss, count in summed if count])
        loss.backward()
        weights = [weight for group in self.optimizer.param_groups for weight in group["params"]]
        norm = clip_grad_norm_(weights, self.clip or math.inf).item()
        self.optimizer.step()
        return loss.item(), norm

    def sample(self, module: str, item: int):
        """The summed loss of a sample, and over how many targets."""
        batch = self.batch(module, item)
        count = int((batch.targets >= 0).sum()) if batch.targets.dtype == torch.int64 else len(batch.targets)
        return self.models[module](batch), count

    def batch(self, module: str, item: int):
        size = self.plan.uses.items[module][item]
        documents = packed_documents((item,), (part_lengths(size),))
        batch = synthetic_batch(self.plan.uses.models[module], documents, self.seed)
        read = {"tokens": [], "cross_attention": []}
        for edge in self.plan.edges:
            if edge.target == module:
                feeding = sorted(source for source, readers in self.plan.feeds_of(edge).items() if item in readers)
                read[edge.by] += [self.models[edge.source](self.batch(edge.source, source)) for source in feeding]
        if read["tokens"]:
            values = torch.cat(read["tokens"])
            batch.targets[: len(values)] = -100
            batch = replace(batch, features=EncoderFeatures(torch.arange(len(values)), values))
        if read["cross_attention"]:
            values = torch.cat(read["cross_attention"])
            batch = replace(batch, memory=CrossAttentionMemory(values, torch.tensor([0, len(values)]).int()))
        return batch

    def weights(self) -> dict[str, torch.Tensor]:
        return {
            f"{module}.{name}": weight.detach()
            for module, model in self.models.items()
            for name, weight in model.named_parameters()
        }


def weighted(weighting: str, summed):
    """The loss of a step, from the summed loss of each sample and over how many targets that is."""
    if weighting == "token":
        return sum(loss for loss, _ in summed) / sum(count for _, count in summed)
    if weighting == "sample":
        return sum(loss / count for loss, count in summed) / len(summed)
    roots = [math.sqrt(count) for _, count in summed]
    return sum(loss / root for (loss, _), root in zip(summed, roots, strict=True)) / sum(roots)


def trained_to_the_end(worker, plans, options, warm, timeout_s=60):
    """Of each plan, in one world: its run, and its weights at the end. `plans`: with how many steps each."""
    results = {}
    choose_warm_up(warm)
    with joined_world(worker, timeout_s=timeout_s):
        for name, (plan, steps) in plans.items():
            for_plan = replace(options, steps=steps)
            executor = prepare_executor(worker, plan, for_plan)
            run = train_steps(executor, for_plan, EarlyStop(worker, None), make_memory_snapshot(worker, None))
            full = full_tensors.full_weights(executor.local)
            # As arrays: a tensor would be a file that its process has to keep.
            weights = {f"{module}.{key}": x.numpy() for module, of in full.items() for key, x in of.items()}
            results[name] = run, weights
    return results


def differences(plan: Plan, options, run, weights) -> tuple[float, float, float]:
    """How far losses, norms and weights of a run are from one process: the worst of each, relative."""
    torch.set_num_threads(1)  # matrices are small
    alone = OneProcess(plan, options)
    losses, norms = alone.train(len(run.steps))
    want = alone.weights()
    assert weights.keys() == want.keys()
    return (
        max(abs(step.loss - loss) / loss for step, loss in zip(run.steps, losses, strict=True)),
        max(abs(step.grad_norm - norm) / norm for step, norm in zip(run.steps, norms, strict=True)),
        max(float(abs(torch.from_numpy(weights[name]) - values).max()) for name, values in want.items()),
    )
