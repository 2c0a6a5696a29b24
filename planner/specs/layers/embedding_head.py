"""Weights outside of a module's layers (embedding, head, norms, projector): their pipeline stage and tp sharding."""

from typing import Literal, NamedTuple

ShardedDim = Literal["", "outputs", "inputs"]  # the dim that is sharded over tp; "": replicated


class EmbeddingHeadWeight(NamedTuple):
    """A weight (outputs, inputs) and a bias. A vector, such as a norm's weight, has one input."""

    role: str
    before_layers: bool  # whether it is applied before the first layer; else after the last one
    outputs: int
    inputs: int = 1
    bias: int = 0
    products_per_token: float = 0.0  # matrix products per token of the module; 0: a lookup, or a vector
    sharded_dim: ShardedDim = ""
    tied: bool = False  # shares its weight with another one; it counts once where both are on one stage

    @property
    def parameters(self) -> int:
        """The number of parameters, with the bias."""
        return self.outputs * self.inputs + self.bias

    @property
    def flops(self) -> float:
        """Forward FLOPs per token."""
        return 2.0 * self.products_per_token * self.outputs * self.inputs

    @property
    def sharded_parameters(self) -> int:
        """The number of parameters that tp shards: all but the bias of a weight sharded by inputs."""
        return {"": 0, "outputs": self.parameters, "inputs": self.outputs * self.inputs}[self.sharded_dim]

    def shards_over(self, tp: int) -> bool:
        """Whether it can be sharded over tp ranks."""
        return bool(self.sharded_dim) and getattr(self, self.sharded_dim) % tp == 0
