"""FLOPs of a step as sources count them, which turn their TFLOP/s and MFU into seconds."""

from typing import Literal

from planner.costs import LayoutColumns
from planner.specs.layers import Module, kind_counts
from planner.specs.shapes import embedding_head_flops, layer_flops

CountedAttention = Literal["causal", "full"]


def step_flops(module: Module, setup: LayoutColumns, attention: CountedAttention, recomputed: bool) -> float:
    """FLOPs of a step on all ranks: three times forward's, as in Megatron-LM's num_floating_point_operations.

    `attention`: whether the half of QKᵀ and PV that the causal mask removes is counted (Narayanan et al.,
    arXiv 2104.04473, eq. 3; Korthikanti et al., arXiv 2205.05198, eq. 7) or not (Megatron-Core and Megatron-Bridge of
    2025). `recomputed`: counts the second forward of fully recomputed layers too (hardware FLOPs).
    """
    squared = matmul = 0.0
    for kind, count in kind_counts(module).items():
        pairs, per_token = layer_flops(module, kind)
        squared, matmul = squared + pairs * count, matmul + per_token * count
    squared *= 2.0 if attention == "full" else 1.0
    layers = squared * setup.seq + matmul
    passes = 3.0 + (setup.full_recompute if recomputed else 0.0)
    return float(setup.batch * setup.seq * (layers * passes + 3.0 * embedding_head_flops(module)))
