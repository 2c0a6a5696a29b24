"""A model whose layers are tables of matrices: what can be priced of an architecture that no other kind has."""

from functools import lru_cache
from typing import Annotated

import msgspec

from planner.specs.base import Amount, Count, Index, LayerCount, with_fields
from planner.specs.layers.blocks import LayerKind
from planner.specs.layers.components import Experts, LayerTable, Matrix
from planner.specs.layers.embedding_head import EmbeddingHeadWeight
from planner.specs.layers.head_widths import check_heads
from planner.specs.layers.stack import Bias, ModuleStack, Norm

# Of scans and masks, which no matrix shows: the largest difference of the logarithms of steps, described and read, of
# Nemotron-H-56B (0.013), Qwen3.5-122B (0.030) and DeepSeek-V3.2 (0.053) with 8,192 tokens on H100 (simulated).
UNSEEN_SPREAD = 0.05


class Described(ModuleStack, kw_only=True, tag_field="kind", tag="described"):
    """A causal language model as tables of the matrices of its layers: parameters are exact, products too. How tp
    shards a matrix is taken from its shape. It can be planned and priced; no network of it is built.
    """

    causal = True

    layers: LayerCount
    hidden: Count
    heads: Count
    kv_heads: Count | None = None
    head_dim: Count | None = None
    ffn: Count  # width of the widest matrix that reads hidden vectors
    vocab: Count
    gated: bool = True  # of routed experts, as is bias
    norm: Norm = "rms"
    bias: Bias = "none"
    tied: bool = False
    moe: Experts | None = None
    tables: Annotated[tuple[LayerTable, ...], msgspec.Meta(min_length=1)]
    pattern: str = ""  # the name of the table of each layer, in words; empty: the first for all
    before: Index = 0  # parameters before the first layer beside the embedding
    after: tuple[Matrix, ...] = ()  # matrices behind the last layer beside the head
    vectors: Index = 0  # parameters behind the last layer that are in no matrix
    norm_eps: Amount = 1e-5

    def __post_init__(self) -> None:
        check_heads(self)
        words, names = self.pattern.split(), [table.name for table in self.tables]
        if len({*names}) < len(names) or not {*words} <= {*names}:
            raise ValueError(f"pattern has words beside {', '.join(names)} | name each table once, and write these")
        if words and len(words) != self.layers:
            raise ValueError(f"pattern has {len(words)} words for {self.layers} layers | write one word for each layer")
        if any(table.experts for table in self.tables) and self.moe is None:
            raise ValueError("a table has experts, and the module none | add moe, or leave experts out")

    def table_of(self, layer: int) -> LayerTable:
        """Return the table of a layer, counted from 0."""
        return table_named(self, self.pattern.split()[layer]) if self.pattern else self.tables[0]

    def layer_kind(self, layer: int) -> LayerKind:
        table = self.table_of(layer)
        blocks = ("attending_matrices" if table.attends else "matrices") + ("+experts" if table.experts else "")
        return f"{blocks}@{table.name}"

    def of_kind(self, kind: LayerKind) -> "Described":
        return narrowed(self, kind.partition("@")[2])

    def window_of(self, layer: int) -> int | None:
        return self.table_of(layer).window

    @property
    def layer_table(self) -> LayerTable:
        return self.tables[0]

    @property
    def norm_places(self) -> tuple[str, ...]:
        return ()  # norms are among the vectors

    @property
    def embedding_head(self) -> tuple[EmbeddingHeadWeight, ...]:
        head = EmbeddingHeadWeight(
            "tied head" if self.tied else "head", False, self.vocab, self.hidden, 0, 1.0, "outputs", self.tied
        )
        words = EmbeddingHeadWeight("embedding", True, self.vocab, self.hidden, sharded_dim="outputs")
        others = (
            EmbeddingHeadWeight("vectors", True, self.before),
            EmbeddingHeadWeight("vectors", False, self.vectors),
        )
        after = (
            EmbeddingHeadWeight("matrices", False, each.outputs * each.count, each.inputs, 0, each.used / each.count)
            for each in self.after
        )
        return (words, head, *others, *after)

    @property
    def input_vocabulary(self) -> int:
        return self.vocab

    @property
    def output_vocabulary(self) -> int:
        return self.vocab

    @property
    def routed_experts(self) -> Experts | None:
        return self.moe

    @property
    def unseen_spread(self) -> float:
        return UNSEEN_SPREAD

    @property
    def unshardable_reason(self) -> str:
        scanned = any(table.flops for table in self.tables)
        return "layers that scan, or work in a way that is not known, read whole documents" if scanned else ""


@lru_cache(maxsize=4096)  # every price of a layer asks
def table_named(module: Described, name: str) -> LayerTable:
    """Return the table of this name."""
    return next(table for table in module.tables if table.name == name)


@lru_cache(maxsize=4096)
def narrowed(module: Described, name: str) -> Described:
    """Return the module as layers of one table see it: with their heads, and this table alone."""
    table = table_named(module, name)
    own = {key: getattr(table, key) for key in ("heads", "kv_heads", "head_dim") if getattr(table, key) is not None}
    return with_fields(module, tables=(table,), pattern="", **own)
