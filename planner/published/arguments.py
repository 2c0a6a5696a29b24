"""What a row's other settings say of its model, where they are arguments of Megatron's command line."""

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
    """Names without dashes in front, and their values as text."""

    values: Mapping[str, str]

    def __bool__(self) -> bool:
        return bool(self.values)

    def on(self, name: str) -> bool:
        return self.values.get(name, "").strip().lower() in ("true", "1")

    def count(self, name: str) -> int | None:
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
        """Records of the embedding, padded to as many on each of tp's ranks; of GPT-2's tokens if nothing is said."""
        if not self.values:
            return stated
        each = (self.count("make-vocab-size-divisible-by") or PADDED_TO) * tp
        tokens = stated or self.count("vocab-size") or GPT2_TOKENS
        return -(-tokens // each) * each

    def gated_ffn(self, hidden: int) -> int | None:
        """Megatron's width of a gated MLP where none is given: two thirds of 4·hidden, in multiples of 64."""
        return int(4 * hidden * 2 / 3 / 64) * 64 if self.on("swiglu") else None

    def style(self, gpt: bool) -> dict[str, Any]:
        """Fields of a decoder that are said; `gpt`: of a family whose arguments turn things on."""
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
        """With Megatron-Core's defaults of MLATransformerConfig, which are DeepSeek-V2's but for the queries' rank."""
        return Latent(
            q_rank=self.count("q-lora-rank") or 0,
            kv_rank=self.count("kv-lora-rank") or 512,
            rope_dim=self.count("qk-pos-emb-head-dim") or 64,
            nope_dim=self.count("qk-head-dim") or 128,
            value_dim=self.count("v-head-dim") or 128,
        )

    def experts(self, moe: Experts) -> Experts:
        """With what else is said of them."""
        shared = self.count("moe-shared-expert-intermediate-size") or 0
        dense = re.match(r"\(?\[0\]\s*\*\s*(\d{1,4})\s*\+", self.values.get("moe-layer-freq", ""))
        return changed(moe, shared_ffn=shared, dense_layers=int(dense[1]) if dense else 0)


def of(record: Row) -> Arguments:
    found = (ARGUMENT.fullmatch(part) for part in record.text("other_settings").lower().split(";"))
    # RMSNorm is the one value whose capitals matter
    values = {match[1]: match[2].strip().replace("rmsnorm", "RMSNorm") for match in found if match}
    return Arguments(values if any("-" in name for name in values) else {})
