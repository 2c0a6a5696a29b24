"""The interface of every kind of module: a stack of layers, with an embedding before it and a head after it.

Each kind is a file beside this one. It defines its shapes: blocks of layers and their widths, weights outside of the
layers, attention windows, the unit of items, and outputs. Costs, models and importers use this interface and never ask
for the kind.
"""

from typing import TYPE_CHECKING, ClassVar, Literal, TypeVar

from planner.specs.base import Spec, with_fields
from planner.specs.layers.blocks import LayerKind
from planner.specs.layers.components import (
    Experts,
    Indexer,
    LatentAttentionShape,
    LayerTable,
    LinearAttention,
    StateSpace,
)
from planner.specs.layers.embedding_head import EmbeddingHeadWeight
from planner.specs.layers.resize import ImageSize
from planner.specs.layers.rope_scaling import RopeScaling
from planner.specs.layers.trained import Lora, Trained

Norm = Literal["rms", "layer"]
Bias = Literal["none", "qkv", "attention", "all"]  # of no linear, of q, k, v, of these and the output, of all
# quick_gelu: x · sigmoid(1.702 x) (arXiv 1606.08415); relu2: max(x, 0)² (arXiv 2109.08668)
Activation = Literal["silu", "gelu", "gelu_tanh", "quick_gelu", "relu", "relu2"]
Grids = tuple[tuple[int, int], ...]  # rows and columns of patches of each part of an item
InputUnit = Literal["tokens", "patches", "frames"]  # the unit that an item is a sequence of
S = TypeVar("S", bound="ModuleStack")


class ModuleStack(Spec):
    """The defaults, those of a plain encoder; each kind overrides what differs."""

    if TYPE_CHECKING:  # fields of every kind; each declares them in the order of its files
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

    trained: Trained = "all"  # which weights have gradients; a job says it

    input_unit: ClassVar[InputUnit] = "tokens"
    causal: ClassVar[bool] = False  # whether a token attends only to itself and those before it

    def layer_kind(self, layer: int) -> LayerKind:
        """Return the kind of a layer, counted from 0."""
        return "encoder"

    def window_of(self, layer: int) -> int | None:
        """Return the attention window of a layer in tokens; None: full attention.

        A causal window slides, any other divides an item into blocks.
        """
        return None

    @property
    def embedding_head(self) -> tuple[EmbeddingHeadWeight, ...]:
        """The weights outside of the layers: embedding, head, norms, projector."""
        return ()

    @property
    def adapters(self) -> Lora | None:
        """The low-rank adapters that are trained in place of its matrices."""
        return self.trained if isinstance(self.trained, Lora) else None

    @property
    def trains_layers(self) -> bool:
        """Whether its layers have anything trained: their weights, or adapters."""
        return self.trained == "all" or self.adapters is not None

    @property
    def trains_projector(self) -> bool:
        """Whether what is behind its layers has anything trained."""
        return self.trained in ("all", "projector")

    def trains_end(self, end: EmbeddingHeadWeight) -> bool:
        """Whether a weight outside of its layers is trained."""
        return self.trained == "all" or (self.trained == "projector" and end.role == "projector")

    @property
    def feature_width(self) -> int:
        """The width of the outputs that another module can read; 0: the module ends in a loss."""
        return 0

    @property
    def sent_width(self) -> int:
        """The width of what is sent of an output: features of all depths."""
        return self.feature_width * (1 + len(self.feature_depths))

    @property
    def tokens_per_output(self) -> int:
        """Tokens that are merged into one output: shards and items are multiples of it."""
        return 1

    def short_stack(self: S, depth: int) -> S:
        """Return the module with so many layers, which stand for all of them where they are measured."""
        return with_fields(self, layers=depth)

    def typical_item(self, tokens: int) -> int:
        """Return the size of an item that it may well have, of about so many tokens: whole outputs."""
        unit = self.tokens_per_output
        return unit * max(1, round(tokens / unit))

    @property
    def class_tokens(self) -> int:
        """Tokens at the start of each part of an item that are no outputs."""
        return 0

    def image_parts(self, size: ImageSize) -> tuple[int, ...]:
        """Patches of each part of an image of this size in pixels: attention never crosses from one to another.

        Raises ValueError, as `what is wrong | what to do`, where the module reads no images.
        """
        raise ValueError("it reads no images | leave images out, or name a model with a vision tower")

    def video_parts(self, size: ImageSize, seconds: float) -> tuple[int, ...]:
        """Patches of each part of a video, as `image_parts`. Raises ValueError."""
        raise ValueError("it reads no videos | leave videos out, or name a model that says how it samples them")

    def image_grid(self, size: ImageSize) -> tuple[int, int] | None:
        """Rows and columns of patches of each part of an image; None where a patch's place is its index."""
        return None

    def frame_grid(self, size: ImageSize) -> tuple[int, int] | None:
        """Rows and columns of patches of each part of a video, as `image_grid`."""
        return None

    def half_images(self, parts: tuple[int, ...], grids: Grids) -> tuple[tuple[int, ...], Grids]:
        """Parts of an item, with their grids if any, whose images have half of their pixels; as they are where it reads
        no images.
        """
        return parts, grids

    def half_frames(self, parts: tuple[int, ...], grids: Grids) -> tuple[tuple[int, ...], Grids]:
        """Parts of an item with every second frame of a video; as they are where parts are no frames."""
        return parts, grids

    def clip_parts(self, seconds: float) -> tuple[int, ...]:
        """Frames of each part of a clip of sound, as `image_parts`. Raises ValueError."""
        raise ValueError("it hears no sound | leave sound out, or name a model with an audio encoder")

    @property
    def input_width(self) -> int:
        """Channels of a pixel, or mel bins of a frame, that it reads; 0: it reads tokens."""
        return 0

    @property
    def feature_depths(self) -> tuple[int, ...]:
        """Layers, from 0, behind which its outputs are read too, each by a projector of its own."""
        return ()

    @property
    def place_table_size(self) -> int:
        """Rows of a table of positions that is interpolated to an image's size; 0: there is none."""
        return 0

    @property
    def output_vocabulary(self) -> int:
        """The size of the vocabulary that it predicts; 0: none."""
        return 0

    @property
    def predicted_tokens(self) -> int:
        """Tokens that are predicted at each place, each by logits of its own: 1, or more ahead."""
        return 1

    @property
    def max_item_tokens(self) -> int | None:
        """The most tokens of an item; None: unlimited."""
        return None

    @property
    def rotates(self) -> bool:
        """Whether heads' queries and keys are rotated by positions."""
        return False

    @property
    def rotary_base(self) -> float:
        """The base of rotary positions: pair i of D / 2 rotates by base^(-2i/D) per token."""
        return 10000.0

    @property
    def rotary_scaling(self) -> RopeScaling | None:
        """The rule that changes these frequencies for longer documents; None: there is none."""
        return None

    @property
    def rotary_fraction(self) -> float:
        """The share of a head's dims that rotary positions rotate."""
        return 1.0

    @property
    def position_axes(self) -> int:
        """How many numbers say where a token is: 1 its index; 2 row and column of a patch; 3 time, row and column."""
        return 1

    @property
    def window_side(self) -> int:
        """Patches on a side of windows that are squares of their image; 0: windows, if any, are no squares."""
        return 0

    @property
    def interleaves_sections(self) -> bool:
        """Whether pairs that rotate by time, row and column alternate; else each section is in one piece."""
        return False

    @property
    def rotary_sections(self) -> tuple[int, ...]:
        """The rotary pairs of a head that each of three axes rotates, in order; empty: one axis rotates all."""
        return ()

    @property
    def mlp_activation(self) -> Activation:
        """The activation function of the MLP, or of its gate."""
        return "silu" if self.gated else "gelu"

    @property
    def cross_attention_width(self) -> int:
        """The width of another module's outputs that its cross attention reads; 0: it has no cross attention."""
        return 0

    @property
    def has_cross_norms(self) -> bool:
        """Whether cross attention normalises each head's query and key."""
        return False

    def of_kind(self: S, kind: LayerKind) -> S:
        """Return the module as layers of this kind see it, where these differ in heads or matrices."""
        return self

    @property
    def layer_table(self) -> LayerTable:
        """The matrices of its layers, where these are described by them."""
        raise TypeError(f"layers of a {type(self).__name__} are no table of matrices")

    def gates_residuals(self, kind: LayerKind) -> bool:
        """Whether, in layers of this kind, the output of each block is multiplied by the tanh of a learned number."""
        return False

    @property
    def ssm(self) -> StateSpace | None:
        """The state space that some layers have in place of attention."""
        return None

    @property
    def linear_attention_shape(self) -> LinearAttention | None:
        """The linear attention that some layers have in place of attention."""
        return None

    @property
    def scan_groups(self) -> int:
        """Groups of heads that scans over documents keep together, so that tp divides them; 0: nothing is scanned."""
        linear = self.linear_attention_shape
        return self.ssm.groups if self.ssm else linear.key_heads if linear else 0

    @property
    def token_indexer(self) -> Indexer | None:
        """What chooses the tokens that latent attention attends to."""
        return None

    @property
    def has_attention_gate(self) -> bool:
        """Whether attention's output is multiplied by the sigmoid of a projection of its input, as wide as queries."""
        return False

    @property
    def norm_places(self) -> tuple[str, ...]:
        """Where blocks of a layer have norms: before, of their input; behind, of their output before it is added."""
        return ("before",)

    @property
    def norms_per_block(self) -> int:
        """Norms of each block of a layer."""
        return len(self.norm_places)

    @property
    def routed_experts(self) -> Experts | None:
        """The experts that some layers have in place of an MLP."""
        return None

    @property
    def latent_attention(self) -> LatentAttentionShape | None:
        """The latent attention, where queries, keys and values come from compressed vectors."""
        return None

    @property
    def has_qk_norm(self) -> bool:
        """Whether queries and keys are normalised; latent attention has norms of its own."""
        return False

    @property
    def has_whole_qk_norm(self) -> bool:
        """Whether one norm is over all heads' queries together, and one over their keys, in place of norms of heads."""
        return False

    @property
    def sink_heads(self) -> int:
        """The number of heads with an attention sink: a learned logit in the softmax."""
        return 0

    @property
    def ties_head(self) -> bool:
        """Whether the head shares the weights of the embedding."""
        return any(end.tied and not end.before_layers for end in self.embedding_head)

    @property
    def borrows_embedding(self) -> bool:
        """Whether the embedding is another module's."""
        return any(end.tied and end.before_layers for end in self.embedding_head)

    @property
    def input_vocabulary(self) -> int:
        """The size of the vocabulary of its embedding; 0: none."""
        return 0

    @property
    def relative_buckets(self) -> int:
        """The number of buckets of distances of relative positions; 0: none."""
        return 0

    @property
    def unshardable_reason(self) -> str:
        """Why a document's tokens cannot be sharded; empty: they can."""
        if self.ssm:
            return "state spaces scan whole documents"
        if self.linear_attention_shape:
            return "linear attention scans whole documents"
        if self.token_indexer:
            return "an indexer ranks the keys of a whole document"
        if self.cross_attention_width:
            return "keys of what cross attention reads are whole on a rank"
        return "relative positions are of tokens on one rank" if self.relative_buckets else ""

    @property
    def unseen_spread(self) -> float:
        """The spread of a step's seconds that what the module does not say leaves."""
        return 0.0

    @property
    def unpipelined_reason(self) -> str:
        """Why its layers cannot be on several pipeline stages; empty: they can."""
        if self.feature_depths:
            return "its features of several depths are read on one stage"
        return "the table of relative positions is on the first stage alone" if self.relative_buckets else ""

    @property
    def has_post_norm(self) -> bool:
        """Whether norms follow the residual sums (post-norm) instead of preceding the blocks."""
        return False


class TextStack(ModuleStack):
    """The defaults of a module over text: an embedding, and several kinds of positions."""

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
    def rotates(self) -> bool:
        return self.positions == "rope"

    @property
    def max_item_tokens(self) -> int | None:
        return self.max_positions if self.positions == "learned" else None

    @property
    def mlp_activation(self) -> Activation:
        return self.activation or super().mlp_activation
