"""Megatron command-line arguments among a published record's other settings, and what they state of its model."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from planner.published.rows import Row
from planner.specs.base import changed
from planner.specs.parts import Experts, Latent

ARGUMENT = re.compile(r"\s*-{0,2}([a-z][a-z0-9-]{2,60})\s*=\s*([^;]*)")
GPT2_TOKENS, PADDED_TO = 50257, 128  # of Megatron's usual tokenizer; times tp (its --make-vocab-size-divisible-by)


@dataclass(frozen=True, slots=True)
class Arguments:
    """Arguments by name, without leading dashes, with their values as text."""

    values: Mapping[str, str]

    def __bool__(self) -> bool:
        return bool(self.values)

    def on(self, name: str) -> bool:
        """Whether a boolean argument is set."""
        """Whether a boolean argument is set."""
        return self.values.get(name, "").strip().lower() in ("true", "1")

    def count(self, name: str) -> int | None:
        """A positive integer; None where the argument is absent or no such number."""
        """A positive integer; None where the argument is absent or no such number."""
        text = self.values.get(name, "").strip()
        return int(text) if re.fullmatch(r"[1-9][0-9]{0,8}", text) else None

    @property
    def topk(self) -> int | None:
        return self.count("moe-router-topk")

    @property
    def expert_ffn(self) -> int | None:
        return self.count("moe-ffn-hidden-size")

    @property
    def max_positions(self) -> int | None:
        return self.count("max-position-embeddings")

    def vocab(self, stated: int | None, tp: int) -> int | None:
        """Rows of the embedding, padded to a multiple on each of tp's ranks; GPT-2's vocabulary by default."""
        if not self.values:
            return stated
        multiple = (self.count("make-vocab-size-divisible-by") or PADDED_TO) * tp
        tokens = stated or self.count("vocab-size") or GPT2_TOKENS
        return -(-tokens // multiple) * multiple

    def gated_ffn(self, hidden: int) -> int | None:
        """Megatron's width of a gated MLP where none is given: two thirds of 4·hidden, in multiples of 64."""
        return int(4 * hidden * 2 / 3 / 64) * 64 if self.on("swiglu") else None

    def style(self, gpt: bool) -> dict[str, Any]:
        """Stated fields of a `Decoder`; `gpt`: the family's defaults are GPT's, so that arguments switch to others."""
        fields: dict[str, Any] = {}
        if not self.values:
            return fields
        fields |= {"gated": True} if self.on("swiglu") else {}
        fields |= {"norm": "rms"} if self.values.get("normalization") == "RMSNorm" else {}
        fields |= {"bias": "none"} if self.on("disable-bias-linear") else {}
        fields |= {"qk_norm": True} if self.on("qk-layernorm") else {}
        fields |= {"tied": False} if self.on("untie-embeddings-and-output-weights") else {}
        rotary = self.values.get("position-embedding-type") in ("rope", "yarn", "none")
        rotary |= any(name.startswith("rotary-") or name == "no-rope-fusion" for name in self.values)
        fields |= {"positions": "rope"} if gpt and rotary else {}
        fields |= {"head_dim": self.count("kv-channels")} if self.count("kv-channels") else {}
        fields |= {"latent": self.latent()} if self.on("multi-latent-attention") else {}
        return fields

    def latent(self) -> Latent:
        """Latent attention; defaults of Megatron-Core's MLATransformerConfig: DeepSeek-V2's but for the query rank."""
        return Latent(
            q_rank=self.count("q-lora-rank") or 0,
            kv_rank=self.count("kv-lora-rank") or 512,
            rope_dim=self.count("qk-pos-emb-head-dim") or 64,
            nope_dim=self.count("qk-head-dim") or 128,
            value_dim=self.count("v-head-dim") or 128,
        )

    def experts(self, moe: Experts) -> Experts:
        """`moe` with the shared expert's width and the number of leading dense layers that are stated."""
        shared = self.count("moe-shared-expert-intermediate-size") or 0
        dense = re.match(r"\(?\[0\]\s*\*\s*(\d{1,4})\s*\+", self.values.get("moe-layer-freq", ""))
        return changed(moe, shared_ffn=shared, dense_layers=int(dense[1]) if dense else 0)


def of(record: Row) -> Arguments:
    """The arguments in the record's other settings; empty where these are not of Megatron's form."""
    """The arguments in the record's other settings; empty where these are not of Megatron's form."""
    matches = (ARGUMENT.fullmatch(part) for part in record.text("other_settings").lower().split(";"))
    # RMSNorm is the one value whose capitals matter
    values = {match[1]: match[2].strip().replace("rmsnorm", "RMSNorm") for match in matches if match}
    return Arguments(values if any("-" in name for name in values) else {})
