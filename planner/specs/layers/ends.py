"""Weights outside of a module's layers (embedding, head, norms, projector): their pipeline stage and tp sharding."""

from typing import Literal, NamedTuple

Parted = Literal["", "outputs", "inputs"]  # the dim that is sharded over tp; "": replicated


class End(NamedTuple):
    """A weight (outputs, inputs) and a bias. A vector, such as a norm's weight, has one input."""

    role: str
    first: bool  # whether it is applied before the first layer; else after the last one
    outputs: int
    inputs: int = 1
    bias: int = 0
    uses: float = 0.0  # matrix products per token of the module; 0: a lookup, or a vector
    parted: Parted = ""
    tied: bool = False  # shares its weight with another one; it counts once where both are on one stage

    @property
    def parameters(self) -> int:
        """The number of parameters, with the bias."""
        return self.outputs * self.inputs + self.bias

    @property
    def flops(self) -> float:
        """Forward FLOPs per token."""
        return 2.0 * self.uses * self.outputs * self.inputs

    @property
    def shared_out(self) -> int:
        """The number of parameters that tp shards: all but the bias of a weight sharded by inputs."""
        return {"": 0, "outputs": self.parameters, "inputs": self.outputs * self.inputs}[self.parted]

    def divides(self, tp: int) -> bool:
        """Whether it can be sharded over tp ranks."""
        return bool(self.parted) and getattr(self, self.parted) % tp == 0
