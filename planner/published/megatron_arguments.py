"""Megatron's arguments among a published record's other settings, and what they state of its model.

Which argument means what stands in its table (planner/targets); here is how records write them.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from planner.errors import InputError
from planner.published.record_files import PublishedRecord, UnusableRecord
from planner.specs.base import spec_of, with_fields
from planner.specs.layers.components import Experts, LatentAttentionShape
from planner.targets import GPT2_TOKENS, VOCAB_MULTIPLE, Stated, gated_ffn, megatron_fields, padded_vocab

ARGUMENT_PATTERN = re.compile(r"\s*-{0,2}([a-z][a-z0-9-]{2,60})\s*=\s*([^;]*)")
SWITCHED = ("true", "1")  # as records write arguments without a value; 1 may be one as well
OFF = ("false", "0", "none", "")
LATENT, EXPERTS = "module.latent.", "module.moe."
STYLE = ("gated", "norm", "bias", "qk_norm", "tied", "head_dim")  # fields of a decoder that they change


@dataclass(frozen=True, slots=True)
class MegatronArguments:
    """Arguments by name, without leading dashes, with their values as text."""

    values: Mapping[str, str]

    def __bool__(self) -> bool:
        return bool(self.values)

    def is_set(self, name: str) -> bool:
        """Whether a boolean argument is set."""
        return self.values.get(name, "").strip().lower() in SWITCHED

    def positive_integer(self, name: str) -> int | None:
        """A positive integer; None where the argument is absent or no such number."""
        text = self.values.get(name, "").strip()
        return int(text) if re.fullmatch(r"[1-9][0-9]{0,8}", text) else None

    def stated(self, known: Mapping[str, Any]) -> dict[str, Any]:
        """Fields of a launch that the arguments state, by their paths, beside those that are known; without layers that
        predict ahead, as layers of records are counted without them. Raises UnusableRecord.
        """
        kept = {name: text.strip() for name, text in self.values.items() if text.strip().lower() not in OFF}
        kept.pop("mtp-num-layers", None)
        values = {f"--{name}": () if text.lower() == "true" else tuple(text.split()) for name, text in kept.items()}
        try:
            return megatron_fields(Stated(values), known)
        except InputError as error:
            raise UnusableRecord("impossible figures", f"{error.where}: {error.message}") from error

    def padded_vocab(self, stated: int | None, tp: int) -> int | None:
        """Rows of the embedding, padded to a multiple on each of tp's ranks; GPT-2's vocabulary by default."""
        if not self.values:
            return stated
        multiple = self.positive_integer("make-vocab-size-divisible-by") or VOCAB_MULTIPLE
        return padded_vocab(stated or self.positive_integer("vocab-size") or GPT2_TOKENS, multiple, tp)

    def gated_ffn(self, hidden: int) -> int | None:
        """The width of a gated MLP where none is given; None where it is not gated."""
        return gated_ffn(hidden) if self.is_set("swiglu") else None

    def decoder_fields(self, gpt: bool) -> dict[str, Any]:
        """Stated fields of a `Decoder`; `gpt`: the family's defaults are GPT's, so that arguments switch to others.
        Raises UnusableRecord.
        """
        found = self.stated({"module.hidden": 1, "module.heads": 1})
        fields = {name: found[f"module.{name}"] for name in STYLE if f"module.{name}" in found}
        rotary = self.values.get("position-embedding-type") in ("rope", "yarn", "none")
        rotary |= any(name.startswith("rotary-") or name == "no-rope-fusion" for name in self.values)
        fields |= {"positions": "rope"} if gpt and rotary else {}
        latent = {name.removeprefix(LATENT): value for name, value in found.items() if name.startswith(LATENT)}
        return fields | ({"latent": spec_of(LatentAttentionShape, latent)} if latent else {})

    def with_stated_experts(self, moe: Experts, layers: int) -> Experts:
        """`moe` with the shared expert's width and the layers that have no experts, where these are stated. Raises
        UnusableRecord.
        """
        known = {"module.moe.experts": moe.experts, "module.moe.topk": moe.topk, "module.layers": layers}
        found = self.stated(known | {"module.hidden": 1, "module.heads": 1, "module.ffn": moe.ffn})
        names = ("shared_ffn", "dense_layers", "every")
        return with_fields(moe, **{name: found[f"{EXPERTS}{name}"] for name in names if f"{EXPERTS}{name}" in found})


def arguments_of(record: PublishedRecord) -> MegatronArguments:
    """The arguments in the record's other settings; empty where these are not of Megatron's form."""
    matches = (ARGUMENT_PATTERN.fullmatch(part) for part in record.text("other_settings").lower().split(";"))
    # RMSNorm is the one value whose capitals matter
    values = {match[1]: match[2].strip().replace("rmsnorm", "RMSNorm") for match in matches if match}
    return MegatronArguments(values if any("-" in name for name in values) else {})
