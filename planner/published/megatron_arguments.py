"""Megatron command-line arguments among a published record's other settings, and what they state of its model."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from planner.published.record_files import PublishedRecord
from planner.specs.base import with_fields
from planner.specs.layers.components import Experts, LatentAttentionShape

ARGUMENT_PATTERN = re.compile(r"\s*-{0,2}([a-z][a-z0-9-]{2,60})\s*=\s*([^;]*)")
GPT2_TOKENS, VOCAB_MULTIPLE = 50257, 128  # of Megatron's usual tokenizer; times tp (its --make-vocab-size-divisible-by)


@dataclass(frozen=True, slots=True)
class MegatronArguments:
    """Arguments by name, without leading dashes, with their values as text."""

    values: Mapping[str, str]

    def __bool__(self) -> bool:
        return bool(self.values)

    def is_set(self, name: str) -> bool:
        """Whether a boolean argument is set."""
        return self.values.get(name, "").strip().lower() in ("true", "1")

    def positive_integer(self, name: str) -> int | None:
        """A positive integer; None where the argument is absent or no such number."""
        text = self.values.get(name, "").strip()
        return int(text) if re.fullmatch(r"[1-9][0-9]{0,8}", text) else None

    @property
    def topk(self) -> int | None:
        return self.positive_integer("moe-router-topk")

    @property
    def expert_ffn(self) -> int | None:
        return self.positive_integer("moe-ffn-hidden-size")

    @property
    def max_positions(self) -> int | None:
        return self.positive_integer("max-position-embeddings")

    def padded_vocab(self, stated: int | None, tp: int) -> int | None:
        """Rows of the embedding, padded to a multiple on each of tp's ranks; GPT-2's vocabulary by default."""
        if not self.values:
            return stated
        multiple = (self.positive_integer("make-vocab-size-divisible-by") or VOCAB_MULTIPLE) * tp
        tokens = stated or self.positive_integer("vocab-size") or GPT2_TOKENS
        return -(-tokens // multiple) * multiple

    def gated_ffn(self, hidden: int) -> int | None:
        """Megatron's width of a gated MLP where none is given: two thirds of 4·hidden, in multiples of 64."""
        return int(4 * hidden * 2 / 3 / 64) * 64 if self.is_set("swiglu") else None

    def decoder_fields(self, gpt: bool) -> dict[str, Any]:
        """Stated fields of a `Decoder`; `gpt`: the family's defaults are GPT's, so that arguments switch to others."""
        fields: dict[str, Any] = {}
        if not self.values:
            return fields
        fields |= {"gated": True} if self.is_set("swiglu") else {}
        fields |= {"norm": "rms"} if self.values.get("normalization") == "RMSNorm" else {}
        fields |= {"bias": "none"} if self.is_set("disable-bias-linear") else {}
        fields |= {"qk_norm": True} if self.is_set("qk-layernorm") else {}
        fields |= {"tied": False} if self.is_set("untie-embeddings-and-output-weights") else {}
        rotary = self.values.get("position-embedding-type") in ("rope", "yarn", "none")
        rotary |= any(name.startswith("rotary-") or name == "no-rope-fusion" for name in self.values)
        fields |= {"positions": "rope"} if gpt and rotary else {}
        fields |= {"head_dim": self.positive_integer("kv-channels")} if self.positive_integer("kv-channels") else {}
        fields |= {"latent": self.latent_attention()} if self.is_set("multi-latent-attention") else {}
        return fields

    def latent_attention(self) -> LatentAttentionShape:
        """Latent attention; defaults of Megatron-Core's MLATransformerConfig: DeepSeek-V2's but for the query rank."""
        return LatentAttentionShape(
            q_rank=self.positive_integer("q-lora-rank") or 0,
            kv_rank=self.positive_integer("kv-lora-rank") or 512,
            rope_dim=self.positive_integer("qk-pos-emb-head-dim") or 64,
            nope_dim=self.positive_integer("qk-head-dim") or 128,
            value_dim=self.positive_integer("v-head-dim") or 128,
        )

    def with_stated_experts(self, moe: Experts) -> Experts:
        """`moe` with the shared expert's width and the number of leading dense layers that are stated."""
        shared = self.positive_integer("moe-shared-expert-intermediate-size") or 0
        dense = re.match(r"\(?\[0\]\s*\*\s*(\d{1,4})\s*\+", self.values.get("moe-layer-freq", ""))
        return with_fields(moe, shared_ffn=shared, dense_layers=int(dense[1]) if dense else 0)


def arguments_of(record: PublishedRecord) -> MegatronArguments:
    """The arguments in the record's other settings; empty where these are not of Megatron's form."""
    matches = (ARGUMENT_PATTERN.fullmatch(part) for part in record.text("other_settings").lower().split(";"))
    # RMSNorm is the one value whose capitals matter
    values = {match[1]: match[2].strip().replace("rmsnorm", "RMSNorm") for match in matches if match}
    return MegatronArguments(values if any("-" in name for name in values) else {})
