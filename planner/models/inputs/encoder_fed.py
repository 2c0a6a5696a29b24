"""Items whose first tokens are outputs of encoders: their inputs are not used, and they are no targets.

Of a source that has whole items, outputs take the place of the first tokens; of one that has text alone, they stand
before it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from planner.models.batch import IGNORED
from planner.models.inputs.training_items import Items, SampleSource
from planner.specs.layers import Module


@dataclass(frozen=True, slots=True)
class EncoderFedSource:
    """A source in whose items encoders provide the first tokens: `tokens` of them by item."""

    source: SampleSource
    tokens: Mapping[int, int]

    def check(self, spec: Module, items: Items) -> None:
        """Checks the underlying source."""
        self.source.check(spec, items)

    def item(self, spec: Module, item: int, span: tuple[int, int]) -> tuple[Tensor, Tensor]:
        """Inputs and targets of the span, with the shapes of `Batch.inputs` and `Batch.targets`; encoder tokens have no
        target.
        """
        inputs, targets = self.source.item(spec, item, span)
        targets = targets.clone()
        targets[: max(0, self.tokens.get(item, 0) - span[0])] = IGNORED
        return inputs, targets

    def target_count(self, spec: Module, item: int, tokens: int) -> int:
        """The number of targets of tokens that no encoder provides. The underlying source's targets start at an item's
        first token.
        """
        return max(0, self.source.target_count(spec, item, tokens) - self.tokens.get(item, 0))


@dataclass(frozen=True, slots=True)
class EncoderFirstSource:
    """A source of text, before which outputs of encoders stand in the items: `tokens` of them by item."""

    source: SampleSource
    tokens: Mapping[int, int]

    def check(self, spec: Module, items: Items) -> None:
        """Checks the underlying source."""
        self.source.check(spec, items)

    def item(self, spec: Module, item: int, span: tuple[int, int]) -> tuple[Tensor, Tensor]:
        """Inputs and targets of the span, with the shapes of `Batch.inputs` and `Batch.targets`; encoder tokens have no
        target.
        """
        fed = self.tokens.get(item, 0)
        if not fed:
            return self.source.item(spec, item, span)
        first, last = (max(0, end - fed) for end in span)
        inputs, targets = self.source.item(spec, item, (first, last))
        before = torch.zeros(span[1] - span[0] - (last - first), dtype=torch.int64)
        return torch.cat([before, inputs]), torch.cat([before + IGNORED, targets])

    def target_count(self, spec: Module, item: int, tokens: int) -> int:
        """The number of targets, which are all in the text."""
        return self.source.target_count(spec, item, tokens - self.tokens.get(item, 0))
