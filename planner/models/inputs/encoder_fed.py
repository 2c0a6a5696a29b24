"""Items whose first tokens are outputs of encoders: their inputs are not used, and they are no targets."""

from collections.abc import Mapping
from dataclasses import dataclass

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
