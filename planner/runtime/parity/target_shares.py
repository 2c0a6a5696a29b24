"""The loss of a step in one process: what each target has of it, from the targets that are in the data."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import sqrt

import torch
from torch import Tensor

from planner.models import IGNORED, Batch
from planner.models.inputs import SampleSource, batch_of_documents
from planner.models.networks import Network
from planner.plan.tokens.encoder_outputs import ItemKey
from planner.runtime.parity.reference_packs import ReferencePack
from planner.specs.layers import Module
from planner.specs.workload.items import Document
from planner.specs.workload.loss_weighting import LossWeighting


class TargetShares:
    """Shares of the loss of one step; `counts`: targets of every item that has a loss."""

    def __init__(self, weighting: LossWeighting, counts: Mapping[ItemKey, int]) -> None:
        self.weighting, self.counts = weighting, counts
        present = [count for count in counts.values() if count]
        self.targets, self.samples, self.roots = sum(present), len(present), sum(map(sqrt, present))

    def share(self, item: ItemKey) -> float:
        """The factor of the loss of each target of an item in the loss of the step."""
        count = self.counts[item]
        if not count:
            return 0.0
        if self.weighting == "token":
            return 1 / self.targets
        return 1 / self.samples / count if self.weighting == "sample" else 1 / self.roots / sqrt(count)

    def loss(self, module: str, pack: ReferencePack, model: Network, batch: Batch) -> Tensor:
        """The part (scalar) of a pack in the loss of the step."""
        summed: Tensor
        items = [*{document.item for document in pack.documents}]
        if len(items) == 1:
            summed = model(batch)
            return summed * self.share((module, items[0]))
        unit = model.spec.tokens_per_output
        each = [[self.share((module, item))] * (tokens // unit) for item, tokens, _ in pack.documents]
        weights = torch.tensor([share for of_document in each for share in of_document], dtype=torch.float64)
        summed = model(replace(batch, weights=weights.to(batch.positions.device)))
        return summed


def count_targets(source: SampleSource, spec: Module, documents: Iterable[Document]) -> Counter[int]:
    """Targets of each item, counted in its data."""
    counts: Counter[int] = Counter()
    for document in documents:
        targets = batch_of_documents(source, spec, (document,)).targets
        counts[document.item] += int((targets != IGNORED).sum()) if targets.dim() == 1 else len(targets)
    return counts
