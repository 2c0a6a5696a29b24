"""The vision tower: patches of images in, features for another module out."""

from typing import ClassVar, Literal

from planner.specs.base import Amount, Count, Index, LayerCount
from planner.specs.layers.embedding_head import EmbeddingHeadWeight
from planner.specs.layers.head_widths import check_heads, norm_parameters
from planner.specs.layers.stack import Bias, InputUnit, ModuleStack, Norm


class Vit(ModuleStack, kw_only=True, tag_field="kind", tag="vit"):
    """A vision transformer over flattened patches, full attention within an image, then a projector."""

    input_unit: ClassVar[InputUnit] = "patches"

    layers: LayerCount
    hidden: Count
    heads: Count
    kv_heads: Count | None = None
    ffn: Count
    head_dim: Count | None = None
    gated: bool = False
    norm: Norm = "layer"
    bias: Bias = "all"
    patch: Count  # pixels on a side
    frames: Count = 1  # frames in one patch
    channels: Count = 3
    merge: Count = 1  # merge x merge patches become one output token
    out: Count  # width of the output tokens: the hidden size of the module that reads them
    positions: Literal["rope"] = "rope"
    window: Count | None = None  # patches in an attention window; None: the whole image
    full_layers: tuple[Index, ...] = ()  # layers with full attention when there is a window
    norm_eps: Amount = 1e-5

    def __post_init__(self) -> None:
        check_heads(self)

    def window_of(self, layer: int) -> int | None:
        return None if layer in self.full_layers else self.window

    @property
    def embedding_head(self) -> tuple[EmbeddingHeadWeight, ...]:
        """Patch embedding, norm, and a projector: two linears with biases over merge × merge adjacent tokens."""
        wide, each = self.hidden * self.merge**2, 1.0 / self.merge**2
        return (
            EmbeddingHeadWeight(
                "patch embedding",
                True,
                self.hidden,
                self.channels * self.frames * self.patch**2,
                products_per_token=1.0,
            ),
            EmbeddingHeadWeight("norms", False, norm_parameters(self, self.hidden)),
            EmbeddingHeadWeight("projector", False, wide, wide, wide, each, "outputs"),
            EmbeddingHeadWeight("projector", False, self.out, wide, self.out, each, "inputs"),
        )

    @property
    def feature_width(self) -> int:
        return self.out

    @property
    def tokens_per_output(self) -> int:
        return self.merge**2
