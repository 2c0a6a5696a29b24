"""What the kinds of modules over text have in common: an embedding, and several kinds of positions."""

from typing import TYPE_CHECKING

from planner.specs.layers.stack import Activation, ModuleStack


class TextStack(ModuleStack):
    """The defaults of a module over text."""

    if TYPE_CHECKING:  # fields of each such kind; each declares them in the order of its files
        vocab: int
        positions: str
        max_positions: int
        buckets: int
        activation: Activation | None

    @property
    def input_vocabulary(self) -> int:
        return self.vocab

    @property
    def relative_buckets(self) -> int:
        return self.buckets

    @property
    def max_item_tokens(self) -> int | None:
        return self.max_positions if self.positions == "learned" else None

    @property
    def mlp_activation(self) -> Activation:
        return self.activation or super().mlp_activation
