"""Parity reference: the same weights and items in one process, on rank 0, one pack of items at a time."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import accumulate

import torch
from torch import Tensor

from planner.errors import RunFailed
from planner.models import Batch, CrossAttentionMemory, EncoderFeatures, build, contrastive_loss
from planner.models.autograd import AuxiliaryLosses
from planner.models.checkpoints import set_initial_weights
from planner.models.inputs import PlannedItems, batch_of_documents
from planner.models.networks import Network
from planner.plan.plan_file import Plan
from planner.plan.task import Task
from planner.plan.tokens.encoder_outputs import ItemKey, fed_spans
from planner.runtime.checkpoint.stored_states import initial_weights
from planner.runtime.execute.table_passes import table_features
from planner.runtime.execute.task_executor import RankStepResult
from planner.runtime.parity.reference_packs import (
    ReferencePack,
    TargetShares,
    count_targets,
    reference_packs,
    shares_of,
)
from planner.runtime.parity.table_reference import TableReference
from planner.runtime.run_options import RunOptions
from planner.runtime.run_result import ParityErrors
from planner.runtime.state import full_tensors
from planner.runtime.state.fsdp import STORED_DTYPES
from planner.runtime.state.rank_state import RankState
from planner.specs.model import EdgeInput
from planner.specs.workload.items import packed_documents, part_lengths

FedItems = dict[tuple[ItemKey, EdgeInput], list[tuple[int, ItemKey]]]  # reader, by what → first token, encoder item

TABLES = "tables"  # what gradients of embedding tables are called, beside those of modules
MIN_NORM_SHARE = 1e-3  # gradient errors are relative to at least this share of the largest gradient norm


class ParityReference:
    """Compares steps with one process, in at least float32. Every rank takes part in gathering; rank 0 compares."""

    def __init__(self, local: RankState, options: RunOptions) -> None:
        self.local = local
        self.begun = False
        self.worst = ParityErrors(steps=0, items=0, loss_rel_err=0.0, grad_rel_err=0.0, worst="")
        self.models: dict[str, Network] = {}
        self.fed: FedItems = {}
        own = local.tables if local.worker.rank == 0 else None
        self.tables = TableReference(own.source, own.of) if own else None
        for name, layout in local.plan.layouts.items() if local.worker.rank == 0 else ():
            stored = STORED_DTYPES[options.dtype or layout.dtype]
            self.models[name] = build(local.plan.uses.models[name], dtype=stored, device=local.worker.device)
            set_initial_weights(
                self.models[name], self.models[name].spec, initial_weights(options, local.resumed, name)
            )
            self.models[name].feeds_module = name in local.encoders

    @torch.no_grad()
    def copy_weights(self) -> None:
        """Before a step: copies the current weights of the run; before the first it has its own initial weights."""
        if not self.begun:
            self.begun = True
            return
        weights = full_tensors.full_weights(self.local)
        of_tables = self.local.tables.whole_weights() if self.local.tables else {}
        for module, model in self.models.items():
            for name, parameter in model.named_parameters():
                parameter.copy_(weights[module][name])
        if self.tables:
            self.tables.copy_weights(of_tables)

    def compare(self, tasks: Sequence[Task], ranks: Sequence[RankStepResult]) -> None:
        """After a step: compares its loss and gradients, which are still allocated, with the reference's own."""
        gradients = full_tensors.full_gradients(self.local)
        of_tables = self.local.tables.whole_gradients() if self.local.tables else {}
        if not self.models:
            return
        ended = [task for task in tasks if task.phase == "F" and self.local.has_last_layer(task)]
        require_once(ended, [task for task in ended if self.local.ends_in_loss(task)], ranks)
        reference_loss, reference = self.train(ended)
        loss, scale = sum(rank.loss for rank in ranks), ranks[0].clipped.scale if ranks[0].clipped else 1.0
        named = {
            f"{module}.{name}": gradient / scale
            for module, of in {**gradients, TABLES: of_tables}.items()
            for name, gradient in of.items()
        }
        trained = any(task.phase == "update" for task in tasks)  # else it is forward-only
        absent = {name: torch.zeros_like(gradient) for name, gradient in named.items()}  # in one process: no gradient
        wanted = absent | reference
        error, name = worst_error(named, wanted) if trained and wanted else (0.0, "")
        before = self.worst
        self.worst = ParityErrors(
            steps=before.steps + 1,
            items=before.items + sum(len(task.items) for task in ended),
            loss_rel_err=max(before.loss_rel_err, relative_error(abs(loss - reference_loss), abs(reference_loss))),
            grad_rel_err=max(before.grad_rel_err, error),
            worst=name if error >= before.grad_rel_err else before.worst,
        )

    def train(self, ended: Sequence[Task]) -> tuple[float, dict[str, Tensor]]:
        """Loss and gradients of one step in one process, each pack by itself."""
        for model in self.models.values():
            model.zero_grad()
        if self.tables:
            self.tables.begin_step()
        self.fed = fed_items(self.local.followed)
        total = 0.0
        with_loss = [*filter(self.local.computes_loss, ended)]  # encoders run with the items that read them
        packs = [
            (module, pack)
            for module, model in self.models.items()
            for pack in reference_packs(
                model.spec, self.local.plan.layouts[module], [task for task in with_loss if task.module == module]
            )
        ]
        shares = self.shares(packs)
        for module, pack in packs:
            model, batch = self.models[module], self.batch(module, pack, 1 / max(1, shares.targets))
            loss = shares.loss(module, pack, model, batch)
            if loss.requires_grad:  # not where all that it depends on is frozen
                torch.autograd.backward(loss)
            total += loss.item() + float(batch.auxiliary.total(range(model.spec.layers)))
        total += self.train_compared(ended)
        of_tables = self.tables.gradients() if self.tables else {}
        return total, {
            f"{module}.{name}": parameter.grad.cpu()
            for module, model in self.models.items()
            for name, parameter in model.named_parameters()
            if parameter.grad is not None
        } | {f"{TABLES}.{name}": gradient for name, gradient in of_tables.items()}

    def shares(self, packs: Iterable[tuple[str, ReferencePack]]) -> TargetShares:
        """What each target has of the loss of a step with these packs."""
        counts: Counter[ItemKey] = Counter()
        for module, pack in packs:
            found = count_targets(self.local.sources[module], self.models[module].spec, pack.documents)
            counts.update({(module, item): count for item, count in found.items()})
        return shares_of(self.local.plan.uses, counts)

    def train_compared(self, ended: Sequence[Task]) -> float:
        """The sum of the losses of tasks that compare features; adds their gradients to those of modules."""
        done, total = {(task.module, item) for task in ended for item in task.items}, 0.0
        for task in (task for task in self.local.plan.uses.tasks.values() if task.loss == "contrastive"):
            samples = [sample for sample in task.samples if (task.modules[0], sample) in done]
            if not samples:
                continue
            means = [[self.outputs((name, sample), 1.0).mean(0) for sample in samples] for name in task.modules]
            features = torch.stack([torch.stack(of_module) for of_module in means])
            features = features.to(torch.promote_types(features.dtype, torch.float32))
            every = torch.arange(len(samples), device=features.device)
            loss = task.weight / len(samples) * contrastive_loss(features, every)
            if loss.requires_grad:
                torch.autograd.backward(loss)
            total += loss.item()
        return total

    def batch(self, module: str, pack: ReferencePack, scale: float) -> Batch:
        """Batch of a pack, with the outputs of all encoder items that feed it; `scale`: of auxiliary losses."""
        spec, device = self.models[module].spec, self.local.worker.device
        planned = PlannedItems(grids=self.local.grids[module])
        batch = batch_of_documents(self.local.sources[module], spec, pack.documents, device=device, planned=planned)
        slices = tuple(rows.to(device) for rows in pack.slices)
        features, memory = self.features(module, pack, scale), self.memory(module, pack, scale)
        if self.tables:
            features = table_features(batch, self.tables.sums([each.item for each in pack.documents]), spec.hidden)
        return replace(
            batch, capacity_slices=slices, auxiliary=AuxiliaryLosses(scale), features=features, memory=memory
        )

    def features(self, module: str, pack: ReferencePack, scale: float) -> EncoderFeatures | None:
        """Outputs of encoder items that replace token embeddings of a pack, from the first tokens of each item."""
        rows, values, start = [], [], 0
        for item, tokens, begin in pack.documents:
            for first, source in () if begin else self.fed.get(((module, item), "tokens"), ()):
                values.append(self.outputs(source, scale))
                rows.append(start + first + torch.arange(len(values[-1]), device=values[-1].device))
            start += tokens
        return EncoderFeatures(torch.cat(rows), torch.cat(values)) if values else None

    def memory(self, module: str, pack: ReferencePack, scale: float) -> CrossAttentionMemory | None:
        """Outputs of the encoder items that cross attention reads for the items of a pack."""
        sources = [self.fed.get(((module, item), "cross_attention"), ()) for item, _, _ in pack.documents]
        values = [[self.outputs(source, scale) for _, source in of_item] for of_item in sources]
        if not any(values):
            return None
        lengths = [sum(len(value) for value in of_item) for of_item in values]
        ends = torch.tensor([0, *accumulate(lengths)], dtype=torch.int32)
        return CrossAttentionMemory(torch.cat([value for of_item in values for value in of_item]), ends)

    def outputs(self, source: ItemKey, scale: float) -> Tensor:
        """Outputs of one encoder item, (outputs, width)."""
        module, item = source
        pack = ReferencePack(packed_documents((item,), (part_lengths(self.local.followed.uses.items[module][item]),)))
        batch, hidden_rows = self.batch(module, pack, scale), self.models[module].spec.class_tokens
        rows = self.models[module](batch)
        return rows[batch.positions >= hidden_rows] if hidden_rows else rows  # type: ignore[no-any-return]


def fed_items(plan: Plan) -> FedItems:
    """The encoder items that each item of a plan reads, with the first token of their outputs in it."""
    fed: FedItems = defaultdict(list)
    for item, places in fed_spans(plan).items():
        for place in places:
            fed[place.target, place.by].append((place.first, item))
    return fed


def worst_error(gradients: dict[str, Tensor], reference: dict[str, Tensor]) -> tuple[float, str]:
    """Largest ‖g - g*‖ / ‖g*‖ of a tensor, and its name.

    Some gradients are zero up to rounding, such as that of the key bias, to which softmax is invariant: a norm below
    `MIN_NORM_SHARE` of the largest counts as that share.
    """
    norms = {name: gradient.double().norm().item() for name, gradient in reference.items()}
    least = MIN_NORM_SHARE * max(norms.values())
    errors = {
        name: relative_error((gradients[name].double() - gradient.double()).norm().item(), max(norms[name], least))
        for name, gradient in reference.items()
    }
    worst = max(errors, key=lambda name: errors[name])
    return errors[worst], worst


def relative_error(error: float, to: float) -> float:
    """Relative error: 0 for an error of 0, as without targets; else infinite where it is not finite, or `to` is 0."""
    if error == 0:
        return 0.0
    return error / to if to and math.isfinite(error) else math.inf


def require_once(ended: Sequence[Task], losses: Sequence[Task], ranks: Sequence[RankStepResult]) -> None:
    """Raises RunFailed unless one group processed each item of the step, and one rank each token with a loss."""
    items = [(task.module, item) for task in ended for item in task.items]
    times = Counter(item for rank in ranks for item in rank.items)
    tokens, processed = sum(task.tokens for task in losses), sum(rank.tokens for rank in ranks)
    wrong = [item for item in items if times[item] != 1]
    if wrong or len(times) != len(items) or processed != tokens:
        what = f"item {wrong[0][1]} was processed {times[wrong[0]]} times" if wrong else f"ranks had {processed} tokens"
        raise RunFailed(
            f"the step was not the plan's {len(items)} items with {tokens} tokens: {what}",
            fix="this is a bug of the runtime, please report it",
        )
