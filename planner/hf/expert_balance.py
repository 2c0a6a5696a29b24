"""The load-balance loss of experts in a config.json, and back.

transformers adds `router_aux_loss_coef` · E·Σ_e c_e·p_e to a model's loss where `output_router_logits` is true: c_e is
how many of a token's `topk` choices are expert e, p_e its probability, both averaged over tokens of all layers
together. A spec adds `balance` · E·Σ_e f_e·p_e for each layer by itself, where the shares f_e add up to 1 (arXiv
2101.03961, eq. 4). Of one layer, or of layers that choose alike, both are the same where balance = coefficient · topk /
layers.
"""

from typing import Any

from planner.hf.hf_config import HfConfig
from planner.specs.base import with_fields
from planner.specs.layers import Decoder, kind_counts


def with_balance(config: HfConfig, module: Decoder) -> Decoder:
    """The decoder with the load-balance loss that the file asks for."""
    config.assume(output_router_logits=False, router_aux_loss_coef=0.001)
    if module.moe is None or not config.flag("output_router_logits"):
        return module
    layers, coefficient = kind_counts(module)["moe"], config.number("router_aux_loss_coef")
    if layers > 1 and coefficient:
        config.assumption("router_aux_loss_coef balances the experts of each layer, not of all together")
    return with_fields(module, moe=with_fields(module.moe, balance=coefficient * module.moe.topk / layers))


def balance_keys(module: Decoder) -> dict[str, Any]:
    """The keys that say so."""
    moe = module.moe
    if moe is None or not moe.balance:
        return {"output_router_logits": False}
    layers = kind_counts(module)["moe"]
    return {"output_router_logits": True, "router_aux_loss_coef": moe.balance * layers / moe.topk}
