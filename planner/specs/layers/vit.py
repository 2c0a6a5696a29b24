"""The vision tower: patches of images in, features for another module out."""

from math import isqrt
from typing import ClassVar, Literal

from planner.specs.base import Amount, Count, Index, LayerCount, Spec, with_fields
from planner.specs.layers.blocks import LayerKind
from planner.specs.layers.embedding_head import EmbeddingHeadWeight
from planner.specs.layers.head_widths import check_heads, head_dim, norm_parameters
from planner.specs.layers.resize import (
    CanvasResize,
    ImageSize,
    Resize,
    SmartResize,
    TiledResize,
    VideoSampling,
    frame_resize,
    half_grid,
    image_parts,
    part_grid,
    video_parts,
)
from planner.specs.layers.stack import Activation, Bias, Grids, InputUnit, ModuleStack, Norm


class Projector(Spec):
    """From merged tokens of the last layer to the width of the module that reads them: two linears (Qwen2-VL, arXiv
    2409.12191; LLaVA-1.5, arXiv 2310.03744), or one.
    """

    linears: Literal[1, 2] = 2
    inner: Literal["merged", "out"] = "merged"  # width between two: that of merged tokens, or that of the output
    norm: bool = False  # a layer norm of merged tokens before the first (InternVL, arXiv 2404.16821)
    activation: Activation = "gelu"  # between two
    bias: bool = True


class Vit(ModuleStack, kw_only=True, tag_field="kind", tag="vit"):
    """A vision transformer over flattened patches, full attention within an image, then a projector.

    A class token (arXiv 2010.11929) is a patch more, the first of each image or tile: sizes in patches count it, the
    layers work on it, and it is no output.
    """

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
    activation: Activation | None = None  # of the MLP, or of its gate; None: silu of a gate, else gelu
    patch: Count  # pixels on a side
    patch_bias: bool = False  # of the patch embedding
    frames: Count = 1  # frames in one patch
    channels: Count = 3
    merge: Count = 1  # merge x merge patches become one output token
    out: Count  # width of the output tokens: the hidden size of the module that reads them
    projector: Projector = Projector()
    # rope: by the index of a patch. rope_2d: half of a head's pairs rotate by its row, half by its column, and windows
    # are squares of its image (Qwen2.5-VL, arXiv 2502.13923).
    positions: Literal["rope", "rope_2d", "learned"] = "rope"
    max_positions: Index = 0  # size of the table of learned positions, with that of the class token
    # Rows of a table of learned positions beside rotary ones: of a square image, interpolated to the size of each.
    place_table: Index = 0
    class_token: bool = False
    input_norm: bool = False  # a norm before the first layer
    final_norm: bool = True  # a norm after the last layer
    window: Count | None = None  # patches in an attention window; None: the whole image
    full_layers: tuple[Index, ...] = ()  # layers with full attention when there is a window
    gated_layers: Index = 0  # so many last layers multiply the output of each block by the tanh of a learned number
    # Layers, from 0, whose outputs are read too, by a projector each with a norm of merged tokens: features of the
    # first are added to the reader's tokens behind its first layer, and so on (Qwen3-VL, arXiv 2511.21631).
    deep_layers: tuple[Index, ...] = ()
    resize: Resize | None = None  # of images given in pixels; None: their patches have to be given
    video: VideoSampling | None = None  # frames of videos given in seconds; None: it reads none
    norm_eps: Amount = 1e-5

    def __post_init__(self) -> None:
        check_heads(self)
        if self.gated_layers > self.layers:
            raise ValueError(f"{self.gated_layers} of {self.layers} layers are gated | at most all of them can be")
        if any(layer >= self.layers for layer in self.deep_layers):
            raise ValueError(f"deep_layers {max(self.deep_layers)} is not among {self.layers} layers | count from 0")
        if isinstance(self.resize, CanvasResize) and self.class_token:
            raise ValueError("tiles of a canvas have class tokens of their own | leave out class_token")
        if isinstance(self.resize, CanvasResize) and self.merge > 1:
            raise ValueError("a tile with a class token does not merge into whole outputs | merge: 1")
        if (self.positions == "learned") != bool(self.max_positions):
            raise ValueError("learned positions, and only these, have a table | add max_positions, or leave it out")
        if self.class_token and self.merge > 1:
            raise ValueError("a class token is no part of merged outputs | leave out class_token, or merge")
        check_places(self)
        squares = self.resize.pixels if self.resize and not isinstance(self.resize, SmartResize) else 0
        if squares % (self.patch * self.merge):
            unit = self.patch * self.merge
            raise ValueError(f"{squares} pixels are no whole outputs of {unit} pixels | resize to a multiple of {unit}")

    def window_of(self, layer: int) -> int | None:
        return None if layer in self.full_layers else self.window

    def short_stack(self, depth: int) -> "Vit":
        some_full = self.window is not None and 0 < len(self.full_layers) < self.layers
        full = (depth - 1,) if some_full else self.full_layers
        gated, deep = min(depth, self.gated_layers), tuple(each for each in self.deep_layers if each < depth)
        return with_fields(self, layers=depth, full_layers=full, gated_layers=gated, deep_layers=deep)

    def typical_item(self, tokens: int) -> int:
        """Return the patches of a square image of about so many: whole outputs on a side, and a class token."""
        side: int = self.merge * max(1, round(tokens**0.5 / self.merge))
        return side * side + self.class_tokens

    def layer_kind(self, layer: int) -> LayerKind:
        return "gated_encoder" if layer >= self.layers - self.gated_layers else "encoder"

    def gates_residuals(self, kind: LayerKind) -> bool:
        return kind == "gated_encoder"

    @property
    def mlp_activation(self) -> Activation:
        return self.activation or super().mlp_activation

    @property
    def max_item_tokens(self) -> int | None:
        return self.max_positions or None

    @property
    def class_tokens(self) -> int:
        return int(self.class_token)

    def image_parts(self, size: ImageSize) -> tuple[int, ...]:
        if self.resize is None:
            fix = "give its module one, as resize: {rule: fixed, pixels: 336}"
            raise ValueError(f"the model does not say how its images are resized | {fix}")
        parts = image_parts(self.resize, size, self.patch, self.merge)
        return tuple(patches + self.class_tokens for patches in parts)

    def image_grid(self, size: ImageSize) -> tuple[int, int] | None:
        return part_grid(self.resize, size, self.patch, self.merge) if self.resize and self.position_axes == 2 else None

    def frame_grid(self, size: ImageSize) -> tuple[int, int] | None:
        if self.video is None or self.position_axes == 1:
            return None
        return part_grid(frame_resize(self.video), size, self.patch, self.merge)

    def half_images(self, parts: tuple[int, ...], grids: Grids) -> tuple[tuple[int, ...], Grids]:
        if isinstance(self.resize, TiledResize) and len(parts) > 1:
            kept = (len(parts) + 1) // 2
            return parts[:kept], grids[:kept]
        if self.resize and self.keeps_size and grids:
            halved = tuple(half_grid(self.resize, grid, self.patch, self.merge) for grid in grids)
            return tuple(height * width for height, width in halved), halved
        unit = self.tokens_per_output
        outputs = (max(1, round((patches - self.class_tokens) / (2 * unit))) for patches in parts)
        return tuple(unit * count + self.class_tokens for count in outputs), ()

    @property
    def keeps_size(self) -> bool:
        """Whether images keep about the size that they have."""
        return isinstance(self.resize, SmartResize)

    def half_frames(self, parts: tuple[int, ...], grids: Grids) -> tuple[tuple[int, ...], Grids]:
        if self.video is None or isinstance(self.resize, TiledResize):
            return parts, grids
        return parts[::2], grids[::2]

    def video_parts(self, size: ImageSize, seconds: float) -> tuple[int, ...]:
        if self.video is None:
            return super().video_parts(size, seconds)
        parts = video_parts(self.video, seconds, size, (self.patch, self.merge, self.frames))
        return tuple(patches + self.class_tokens for patches in parts)

    @property
    def feature_depths(self) -> tuple[int, ...]:
        return self.deep_layers

    @property
    def place_table_size(self) -> int:
        return self.place_table

    @property
    def rotates(self) -> bool:
        return self.positions == "rope"

    @property
    def position_axes(self) -> int:
        return 2 if self.positions == "rope_2d" else 1

    @property
    def window_side(self) -> int:
        return isqrt(self.window or 0) if self.positions == "rope_2d" else 0

    @property
    def merged_width(self) -> int:
        """The width of merge x merge tokens, which the projector reads."""
        return self.hidden * self.merge**2

    @property
    def embedding_head(self) -> tuple[EmbeddingHeadWeight, ...]:
        """Patch embedding, class token, positions and norms, and the projector."""
        hidden, norm = self.hidden, norm_parameters(self, self.hidden)
        pixels = self.channels * self.frames * self.patch**2
        optional = (
            (self.class_token, EmbeddingHeadWeight("class token", True, hidden)),
            (self.max_positions, EmbeddingHeadWeight("learned positions", True, self.max_positions, hidden)),
            (self.place_table, EmbeddingHeadWeight("learned positions", True, self.place_table, hidden)),
            (self.input_norm, EmbeddingHeadWeight("norms", True, norm)),
            (self.final_norm, EmbeddingHeadWeight("norms", False, norm)),
        )
        return (
            EmbeddingHeadWeight("patch embedding", True, hidden, pixels, hidden * self.patch_bias, 1.0),
            *(end for there, end in optional if there),
            *self.projector_weights,
            *self.deep_projectors,
        )

    @property
    def deep_projectors(self) -> tuple[EmbeddingHeadWeight, ...]:
        """The projectors behind other layers than the last, each with a norm of merged tokens."""
        norm = EmbeddingHeadWeight("projector", False, 2 * self.merged_width)
        each = self.projector_weights if self.projector.norm else (norm, *self.projector_weights)
        return each * len(self.deep_layers)

    @property
    def projector_weights(self) -> tuple[EmbeddingHeadWeight, ...]:
        """The projector: products are of merge x merge tokens at a time."""
        shape, wide, out, each = self.projector, self.merged_width, self.out, 1.0 / self.merge**2
        norms = (EmbeddingHeadWeight("projector", False, 2 * wide),) if shape.norm else ()
        if shape.linears == 1:
            return *norms, EmbeddingHeadWeight("projector", False, out, wide, out * shape.bias, each)
        inner = self.projector_width
        return (
            *norms,
            EmbeddingHeadWeight("projector", False, inner, wide, inner * shape.bias, each, "outputs"),
            EmbeddingHeadWeight("projector", False, out, inner, out * shape.bias, each, "inputs"),
        )

    @property
    def projector_width(self) -> int:
        """The width between the projector's two linears."""
        return self.merged_width if self.projector.inner == "merged" else self.out

    @property
    def input_width(self) -> int:
        return self.channels

    @property
    def feature_width(self) -> int:
        return self.out

    @property
    def tokens_per_output(self) -> int:
        return self.merge**2


def check_places(module: Vit) -> None:
    """Raises ValueError where patches that have a row and a column cannot be rotated by both, or windows are no squares
    of whole outputs.
    """
    if module.positions != "rope_2d":
        return
    if head_dim(module) % 4:
        raise ValueError(f"heads {head_dim(module)} wide do not rotate by two axes | make it a multiple of 4")
    if module.class_token or isinstance(module.resize, CanvasResize):
        raise ValueError(
            "a class token has no row and column | leave out class_token and canvases, or say other positions"
        )
    side = module.window_side
    if module.window and (side**2 != module.window or side % module.merge):
        what = f"a window of {module.window} patches is no square of whole outputs"
        raise ValueError(f"{what} | a multiple of {module.merge} patches on a side, such as 64 of 8 x 8")
