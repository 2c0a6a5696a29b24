"""What is asked of every kind of module: a stack of layers between what makes their input and what reads their output.

A kind is a file beside this one. It says its shapes: which blocks its layers are made of and how wide these are, what
stands at its ends, where attention looks, what its items are and what it gives for each. Costs, models and importers
ask these questions, and never which kind it is.
"""

from typing import TYPE_CHECKING, ClassVar, Literal

from planner.specs.base import Spec
from planner.specs.layers.blocks import LayerKind
from planner.specs.layers.ends import End
from planner.specs.parts import Experts, Latent, StateSpace

Norm = Literal["rms", "layer"]
Bias = Literal["none", "qkv", "attention", "all"]  # of no linear, of q, k, v, of these and the output, of all
Activation = Literal["silu", "gelu", "gelu_tanh", "relu", "relu2"]  # relu2: max(x, 0)² (arXiv 2109.08668)
Reads = Literal["tokens", "patches", "frames"]  # what an item is a sequence of


class Stack(Spec):
    """The answers of a plain encoder; a kind gives its own where they are others."""

    if TYPE_CHECKING:  # fields of every kind, which each says in the order of its files
        layers: int
        hidden: int
        heads: int
        kv_heads: int | None
        ffn: int
        head_dim: int | None
        gated: bool
        norm: Norm
        bias: str
        norm_eps: float

    reads: ClassVar[Reads] = "tokens"
    causal: ClassVar[bool] = False  # whether a token attends to those before it alone

    def layer_kind(self, layer: int) -> LayerKind:
        """Of one layer, counted from 0."""
        return "encoder"

    def window_of(self, layer: int) -> int | None:
        """Tokens in the attention window of a layer; None: full attention.

        A causal window slides, each token with those before it; another parts an item into blocks.
        """
        return None

    @property
    def ends(self) -> tuple[End, ...]:
        """What is outside the layers, by the names of a table; layers alone have nothing."""
        return ()

    @property
    def gives(self) -> int:
        """Width of the outputs that another module can read; 0: it ends in a loss."""
        return 0

    @property
    def merged(self) -> int:
        """Tokens that become one output, and so stay together: shards and items are whole multiples of it."""
        return 1

    @property
    def vocabulary(self) -> int:
        """Words that it predicts, or 0."""
        return 0

    @property
    def longest(self) -> int | None:
        """Tokens of an item, at most; None: as many as there are."""
        return None

    @property
    def rotary_base(self) -> float:
        """Pair i of D / 2 numbers turns by base^(-2i/D) a token, where positions are rotary."""
        return 10000.0

    @property
    def turning_share(self) -> float:
        """Of a head's numbers, how many turn with the place of a token."""
        return 1.0

    @property
    def activated(self) -> Activation:
        """What an MLP's inner numbers go through; where it is gated, the gate's."""
        return "silu" if self.gated else "gelu"

    @property
    def crossing(self) -> int:
        """Width of the outputs of another module that its cross attention makes keys and values of; 0: it has none."""
        return 0

    @property
    def recurrent(self) -> StateSpace | None:
        """The state space that some of its layers have in place of attention."""
        return None

    @property
    def routed(self) -> Experts | None:
        """The experts that some of its layers have in place of an MLP."""
        return None

    @property
    def compressed(self) -> Latent | None:
        """How queries, keys and values come out of narrow vectors, where they do."""
        return None

    @property
    def normed_heads(self) -> bool:
        """Whether each head's query and key have a norm of their own; latent attention has others."""
        return False

    @property
    def sink_heads(self) -> int:
        """Heads with a learned logit that takes attention from all tokens."""
        return 0

    @property
    def ties(self) -> bool:
        """Whether a head behind the layers has the weights of the table in front of them."""
        return any(end.tied and not end.first for end in self.ends)

    @property
    def borrows(self) -> bool:
        """Whether the table in front of its layers is another module's."""
        return any(end.tied and end.first for end in self.ends)

    @property
    def words(self) -> int:
        """That it looks up, or 0."""
        return 0

    @property
    def relative_buckets(self) -> int:
        """Of distances, where positions are relative; else 0."""
        return 0

    @property
    def unparted(self) -> str:
        """Why the ranks of a group cannot share out a document's tokens; empty: they can."""
        if self.recurrent:
            return "state spaces scan whole documents"
        if self.crossing:
            return "keys of what cross attention reads are whole on a rank"
        return "relative positions are of tokens on one rank" if self.relative_buckets else ""

    @property
    def unstaged(self) -> str:
        """Why its layers cannot lie on several stages; empty: they can."""
        if self.crossing:
            return "what cross attention reads comes to the first stage alone"
        return "the table of relative positions is on the first stage alone" if self.relative_buckets else ""

    @property
    def normed_behind(self) -> bool:
        """Whether a norm follows the sum of a block and its input, in place of one in front of the block."""
        return False
