"""Networks of transformers on the meta device: their parameters, and their forward FLOPs by torch's counter."""

import warnings

import torch
from torch.utils.flop_counter import FlopCounterMode

from planner.specs.layers import Module
from planner.specs.layers.blocks import attends
from planner.specs.shapes import embedding_head_flops, layer_flops, pair_width

TOKENS = 64


def forward_flops(network, config) -> int:
    """FLOPs of a forward over 64 tokens, the full square of attention among them. With batched experts, those that a
    token is not sent to are not computed.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        network.set_attn_implementation("eager")
        for part in (config, config.get_text_config()):
            part._experts_implementation = "batched_mm"
        words = torch.zeros(1, TOKENS, dtype=torch.long, device="meta")
        mask = torch.zeros(1, 1, TOKENS, TOKENS, device="meta", dtype=next(network.parameters()).dtype)
        places = torch.arange(TOKENS, device="meta")[None]
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            network(input_ids=words, attention_mask=mask, position_ids=places, use_cache=False)
    return counter.get_total_flops()


def spec_flops(module: Module) -> float:
    """The same of a module: the full square, without windows or masks."""
    kinds = [module.layer_kind(layer) for layer in range(module.layers)]
    squared = sum(2.0 * pair_width(module.of_kind(kind)) * TOKENS**2 for kind in kinds if attends(kind))
    return (module.layers * layer_flops(module)[1] + embedding_head_flops(module)) * TOKENS + squared
