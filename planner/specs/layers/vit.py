"""The vision tower: patches of images in, features for another module out."""

from typing import ClassVar, Literal

from planner.specs.base import Amount, Count, Index, LayerCount, with_fields
from planner.specs.layers.blocks import LayerKind
from planner.specs.layers.embedding_head import EmbeddingHeadWeight
from planner.specs.layers.head_widths import check_heads, norm_parameters
from planner.specs.layers.resize import (
    CanvasResize,
    ImageSize,
    Resize,
    SmartResize,
    VideoSampling,
    image_parts,
    video_parts,
)
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
    gated_layers: Index = 0  # so many last layers multiply the output of each block by the tanh of a learned number
    resize: Resize | None = None  # of images given in pixels; None: their patches have to be given
    video: VideoSampling | None = None  # frames of videos given in seconds; None: it reads none
    norm_eps: Amount = 1e-5

    def __post_init__(self) -> None:
        check_heads(self)
        if self.gated_layers > self.layers:
            raise ValueError(f"{self.gated_layers} of {self.layers} layers are gated | at most all of them can be")
        if isinstance(self.resize, CanvasResize) and self.merge > 1:
            raise ValueError("a tile with a class token does not merge into whole outputs | merge: 1")
        squares = self.resize.pixels if self.resize and not isinstance(self.resize, SmartResize) else 0
        if squares % (self.patch * self.merge):
            unit = self.patch * self.merge
            raise ValueError(f"{squares} pixels are no whole outputs of {unit} pixels | resize to a multiple of {unit}")

    def window_of(self, layer: int) -> int | None:
        return None if layer in self.full_layers else self.window

    def short_stack(self, depth: int) -> "Vit":
        some_full = self.window is not None and 0 < len(self.full_layers) < self.layers
        return with_fields(self, layers=depth, full_layers=(depth - 1,) if some_full else self.full_layers)

    def typical_item(self, tokens: int) -> int:
        """Return the patches of a square image of about so many: whole outputs on a side."""
        side: int = self.merge * max(1, round(tokens**0.5 / self.merge))
        return side * side

    def layer_kind(self, layer: int) -> LayerKind:
        return "gated_encoder" if layer >= self.layers - self.gated_layers else "encoder"

    def gates_residuals(self, kind: LayerKind) -> bool:
        return kind == "gated_encoder"

    def image_parts(self, size: ImageSize) -> tuple[int, ...]:
        if self.resize is None:
            fix = "give its module one, as resize: {rule: fixed, pixels: 336}"
            raise ValueError(f"the model does not say how its images are resized | {fix}")
        return image_parts(self.resize, size, self.patch, self.merge)

    def video_parts(self, size: ImageSize, seconds: float) -> tuple[int, ...]:
        if self.video is None:
            return super().video_parts(size, seconds)
        return video_parts(self.video, seconds, size, (self.patch, self.merge, self.frames))

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
    def input_width(self) -> int:
        return self.channels

    @property
    def feature_width(self) -> int:
        return self.out

    @property
    def tokens_per_output(self) -> int:
        return self.merge**2
