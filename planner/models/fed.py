"""Items whose first tokens are outputs of encoders: what data has there does not matter, and nothing predicts it."""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from planner.models.data import IGNORED, Items, Source
from planner.specs.layers import Module


@dataclass(frozen=True, slots=True)
class Fed:
    """A source, whose items have this many tokens that encoders make."""

    source: Source
    tokens: Mapping[int, int]

    def check(self, spec: Module, items: Items) -> None:
        self.source.check(spec, items)

    def item(self, spec: Module, item: int, span: tuple[int, int]) -> tuple[Tensor, Tensor]:
        inputs, targets = self.source.item(spec, item, span)
        targets = targets.clone()
        targets[: max(0, self.tokens.get(item, 0) - span[0])] = IGNORED
        return inputs, targets

    def targets(self, spec: Module, item: int, tokens: int) -> int:
        """Those of tokens behind the ones that are made: targets stand at the first tokens of an item."""
        return max(0, self.source.targets(spec, item, tokens) - self.tokens.get(item, 0))
