"""Rotary positions in a config.json: their base, and the rule that scales them for longer documents; and back.

Since transformers 5 both are in the mapping `rope_parameters`, before they were `rope_theta` and `rope_scaling`.
"""

import math
from collections.abc import Callable
from typing import Any

from planner.hf.hf_config import HfConfig
from planner.specs.layers.rope_scaling import LinearScaling, Llama3Scaling, RopeScaling, YarnScaling

UNSCALED = ("default", "mrope")  # mrope: its sections are read where a model has them


def rope_fields(config: HfConfig, share: float = 1.0, read_share: bool = False) -> dict[str, Any]:
    """The spec's `rope_base`, `rope_scaling` and `rotary_share`; `share`: of a head's dims that the family rotates, or
    that a file which says nothing does.
    """
    key = next((key for key in ("rope_parameters", "rope_scaling") if config.values.get(key)), None)
    if key is None:
        config.read_keys |= {"rope_parameters", "rope_scaling"}
        config.assume(partial_rotary_factor=share)
        return {"rope_base": rope_base(config), **share_fields(config, share, read_share)}
    part = of_full_layers(config, config.section(key))
    stated = config.assume(partial_rotary_factor=share).value("partial_rotary_factor") if read_share else share
    part.assume(rope_theta=config.values.get("rope_theta", config.defaults["rope_theta"]), partial_rotary_factor=stated)
    part.read_keys |= {"rope_type", "type", "mrope_section", "mrope_interleaved", "original_max_position_embeddings"}
    fields = share_fields(part, share, read_share)
    rule = part.values.get("rope_type", part.values.get("type", "default"))
    fields["rope_base"] = rope_base(part if key == "rope_parameters" else config)
    if rule in UNSCALED:
        return fields
    if not isinstance(rule, str) or rule not in SCALING_READERS:
        config.leave_out_key(key)
        part.read_keys |= {*part.values}
        return fields
    return fields | {"rope_scaling": config.made(SCALING_READERS[rule], key, part=part, config=config)}


def share_fields(part: HfConfig, share: float, read_share: bool) -> dict[str, Any]:
    """The spec's `rotary_share`: the family's, or the one that the file says."""
    if not read_share:
        if part.route.endswith(("rope_parameters.", "rope_scaling.")):
            part.expect("partial_rotary_factor", (share, None))
        return {}
    stated = part.number("partial_rotary_factor")
    if not 0 < stated <= 1:
        raise part.wrong_value("partial_rotary_factor", "a share above 0, at most 1")
    return {"rotary_share": stated} if stated < 1 else {}


def of_full_layers(config: HfConfig, part: HfConfig) -> HfConfig:
    """The rule of layers with full attention, where those with a window have one of their own, which is noted."""
    if not isinstance(part.values.get("full_attention"), dict):
        return part
    own = part.values.get("sliding_attention")
    base = own.get("rope_theta") if isinstance(own, dict) else None
    config.assumption(f"layers with a window rotate as the others, not by a base of {base}")
    part.read_keys |= {"sliding_attention"}
    return part.section("full_attention")


def rope_base(part: HfConfig) -> float:
    """The base, from 1 on."""
    base = part.number("rope_theta")
    if base < 1:
        raise part.wrong_value("rope_theta", "a number from 1 to 1e15")
    return base


def linear(part: HfConfig, config: HfConfig) -> LinearScaling:
    return LinearScaling(factor=scaling_factor(part))


def llama3(part: HfConfig, config: HfConfig) -> Llama3Scaling:
    low, high = part.number("low_freq_factor"), part.number("high_freq_factor")
    return Llama3Scaling(factor=scaling_factor(part), low=low, high=high, original=original_length(part, config))


def yarn(part: HfConfig, config: HfConfig) -> YarnScaling:
    """YaRN; where `mscale` and `mscale_all_dim` are given, rotated queries and keys are scaled by a ratio of both."""
    part.assume(beta_fast=None, beta_slow=None, truncate=True, attention_factor=None, mscale=None, mscale_all_dim=None)
    original = original_length(part, config)
    longest = config.count_or_none("max_position_embeddings") or 0
    factor = scaling_factor(part.assume(factor=None), longest / original)
    attention = part.number("attention_factor") if part.value("attention_factor") else None
    scales = [part.number(key) if part.value(key) else 0.0 for key in ("mscale", "mscale_all_dim")]
    if attention is None and all(scales):
        over, under = (0.1 * scale * math.log(max(1.0, factor)) + 1 for scale in scales)
        attention = over / under
    fast, slow = (part.number(key) if part.value(key) else 0.0 for key in ("beta_fast", "beta_slow"))
    truncate = part.flag("truncate")
    return YarnScaling(
        factor=factor, fast=fast or 32, slow=slow or 1, original=original, attention=attention, truncate=truncate
    )


SCALING_READERS: dict[str, Callable[[HfConfig, HfConfig], RopeScaling]] = {
    "linear": linear,
    "llama3": llama3,
    "yarn": yarn,
}


def scaling_factor(part: HfConfig, absent: float = 0.0) -> float:
    """The factor of a rule, at least 1; `absent`: for null."""
    factor = part.number("factor") if absent == 0 or part.value("factor") is not None else absent
    if factor < 1:
        raise part.wrong_value("factor", "a number from 1 to 1e15")
    return factor


def original_length(part: HfConfig, config: HfConfig) -> int:
    """Tokens of the documents before scaling: of the rule, or as the whole file says."""
    key = "original_max_position_embeddings"
    for where, name in ((config, key), (part, key), (config, "max_position_embeddings")):
        if where.values.get(name) is not None:
            return where.count(name)
    return part.count(key)  # which says that it is missing


def scaling_keys(scaling: RopeScaling | None) -> dict[str, Any]:
    """The inverse: `rope_scaling` of a config.json; nothing where there is none."""
    if scaling is None:
        return {}
    keys: dict[str, Any] = {"rope_type": scaling.__struct_config__.tag, "factor": scaling.factor}
    if isinstance(scaling, Llama3Scaling):
        keys |= {"low_freq_factor": scaling.low, "high_freq_factor": scaling.high}
    if isinstance(scaling, YarnScaling):
        keys |= {"beta_fast": scaling.fast, "beta_slow": scaling.slow, "truncate": scaling.truncate}
        keys |= {"attention_factor": scaling.attention} if scaling.attention is not None else {}
    if not isinstance(scaling, LinearScaling):
        keys["original_max_position_embeddings"] = scaling.original
    return {"rope_scaling": keys}
