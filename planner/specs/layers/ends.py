"""What a module has outside its layers: matrices, where they lie in a pipeline, and how tp's ranks share them out."""

from typing import Literal, NamedTuple

Parted = Literal["", "outputs", "inputs"]  # the dim that tp's ranks share out; "": each has the whole


class End(NamedTuple):
    """A matrix of outputs × inputs, and a bias. A vector, such as a norm's weights, is a matrix of one input."""

    role: str
    first: bool  # whether it works in front of the first layer; else behind the last one
    outputs: int
    inputs: int = 1
    bias: int = 0
    uses: float = 0.0  # products with it for each token of the module; 0: rows are looked up, or it is a vector
    parted: Parted = ""
    tied: bool = False  # the weights of another end, which count once where both are on one stage

    @property
    def parameters(self) -> int:
        return self.outputs * self.inputs + self.bias

    @property
    def flops(self) -> float:
        """Of the products, forward, for each token."""
        return 2.0 * self.uses * self.outputs * self.inputs

    @property
    def shared_out(self) -> int:
        """Parameters of which a rank of tp has its part: all but the bias of what these ranks sum."""
        return {"": 0, "outputs": self.parameters, "inputs": self.outputs * self.inputs}[self.parted]

    def divides(self, tp: int) -> bool:
        """Whether so many ranks can share it out."""
        return bool(self.parted) and getattr(self, self.parted) % tp == 0
