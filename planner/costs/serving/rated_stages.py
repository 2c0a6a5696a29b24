"""Prices of serving by the rates of a device: the work of layers (costs/compute), whose products take no less time than
reading their weights, and the kernels that only serving has (`ServedRates`).

Sums over tensor-parallel ranks are twice a layer, of all tokens (arXiv 1909.08053). Logits are of one token of each
answer. In sliding windows a token attends to as many as the window has.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from planner.costs.compute.layer_work import LayerWork, head_work, kinds_and_windows, layer_work
from planner.costs.layout_columns import LayoutColumns
from planner.costs.machine_model import MachineModel
from planner.costs.network_model import strided_group
from planner.costs.serving.stage_prices import MOST_TABLED, EncodePrices, IterationPrices, StagePrices
from planner.specs.hardware.device_rates import ServedRates
from planner.specs.layers import Module
from planner.specs.layers.blocks import kind_blocks
from planner.specs.layers.head_widths import head_dim, kv_heads
from planner.specs.parameters import parameter_counts
from planner.units import GB, GIB, US

Floats = NDArray[np.float64]
# Of kernels between products: norms with sums, rotation, activation. Those of a forward in training are not fused.
FUSED_KERNELS = 4.0
# Where a device's kernels of serving were not timed: what those of an H100 and an H200 have.
ASSUMED_SERVED = ServedRates(cache_share=0.85, cache_us=13.0)
HOST_GB_PER_S = 25.0  # from a host to its device, where the device does not say: PCIe Gen4
WORKSPACE_BYTES = 2.0 * GIB  # of activations and graphs, assumed; vLLM measures them as it starts


def rated_prices(llm: Module, encoder: Module | None, machine: MachineModel, tp: int, margin: float) -> StagePrices:
    """The prices of an instance on `tp` ranks; `margin`: share of the memory that stays free."""
    served = machine.rates.served or ASSUMED_SERVED
    far = machine.network.levels[-1]
    kv_bytes = 2.0 * cached_width(llm, tp) * 2.0 * llm.layers  # of a token, on each rank
    room = machine.device.memory_gib * GIB * (1.0 - margin) - machine.device.reserved_gib * GIB - WORKSPACE_BYTES
    weights, encoder_weights = (2.0 * parameter_counts(each).total / tp if each else 0.0 for each in (llm, encoder))
    return StagePrices(
        tp=tp,
        encode=EncodePrices(*encode_table(encoder, machine, served, tp)) if encoder else None,
        iteration=iteration_prices(llm, machine, served, tp),
        kv_tokens=max(0, int((room - weights) / kv_bytes)),
        kv_tokens_encoding=max(0, int((room - weights - encoder_weights) / kv_bytes)),
        move_s=far.us * US * llm.layers,
        move_token_s=kv_bytes / (far.gb_per_s * GB),
        load_s=max(weights, encoder_weights) / ((machine.device.host_gb_per_s or HOST_GB_PER_S) * GB),
        source=f"rates of the device, {machine.rates.source}",
        spread=machine.rates.spread,
    )


def cached_width(module: Module, tp: int) -> float:
    """Elements of a token's keys (as many are of its values) in one layer, on one rank."""
    latent = module.latent_attention
    if latent:
        return (latent.kv_rank + latent.rope_dim) / 2.0
    return float(max(kv_heads(module) / tp, 1.0) * head_dim(module))


def encode_table(
    module: Module, machine: MachineModel, served: ServedRates, tp: int
) -> tuple[tuple[float, ...], float]:
    """Seconds of an encoder by tokens of features, of which each is several patches; and for each pair of tokens."""
    each = module.tokens_per_output
    patches = np.arange(MOST_TABLED + 1, dtype=np.float64) * each
    seconds, pair_s = layers_seconds(module, machine, served, patches, tp)
    seconds = seconds + work_seconds(machine, head_work(module, columns(patches, tp)), 0.0)
    seconds[0] = 0.0
    return tuple(seconds.tolist()), pair_s * each * each


def iteration_prices(module: Module, machine: MachineModel, served: ServedRates, tp: int) -> IterationPrices:
    """The prices of a decoder's iterations."""
    tokens = np.arange(MOST_TABLED + 1, dtype=np.float64)
    passes, pair_s = layers_seconds(module, machine, served, tokens, tp)
    logits = work_seconds(machine, head_work(module, columns(tokens, tp)), 0.0)
    kv_bytes, windowed = 2.0 * cached_width(module, tp) * 2.0, 0.0
    bandwidth = machine.device.memory_gb_per_s * GB * served.cache_share
    steps = passes + logits
    for _, window, share in attending(module):
        steps = steps + share * module.layers * served.cache_us * US
        if window is not None:
            windowed += share
            steps = steps + tokens * share * module.layers * kv_bytes * window / bandwidth
    passes = passes + logits[1]
    steps[0] = passes[0] = 0.0
    whole = sum(share for _, window, share in attending(module) if window is None)
    cached_s = kv_bytes * module.layers * whole / bandwidth
    return IterationPrices(tuple(steps.tolist()), tuple(passes.tolist()), pair_s, cached_s)


def attending(module: Module) -> Iterator[tuple[str, int | None, float]]:
    """Yield the kinds of layers with attention, as `kinds_and_windows` does."""
    yield from (each for each in kinds_and_windows(module) if "attention" in kind_blocks(each[0]))


def columns(tokens: Floats, tp: int) -> LayoutColumns:
    return LayoutColumns(ranks=tp, seq=tokens, batch=1, tp=tp, sequence_parallel=False)


def layers_seconds(
    module: Module, machine: MachineModel, served: ServedRates, tokens: Floats, tp: int
) -> tuple[Floats, float]:
    """Seconds of all layers by tokens, attention to pairs of them aside; and for each pair that attends."""
    seconds, pair_s = np.zeros_like(tokens), 0.0
    for kind, window, share in kinds_and_windows(module):
        at, layers = columns(tokens, tp), share * module.layers
        work = layer_work(module, kind, at, window)
        each = work_seconds(machine, work, FUSED_KERNELS) + reduce_seconds(module, machine, served, tokens, tp)
        if work.attention:
            core = work.attention
            per_pair, fill = machine.attention_terms(core, True)
            per_pair = float(per_pair * core.heads * core.width)
            half = 0.5 if module.causal else 1.0
            each = each + machine.attention_launch(core) + per_pair * half * fill * tokens
            if window is None:
                pair_s += layers * per_pair
            else:
                each = each + per_pair * window * tokens
        seconds = seconds + layers * each
    return seconds, pair_s


def work_seconds(machine: MachineModel, work: LayerWork, kernels: float) -> Floats:
    """Seconds of products, each no quicker than its operands are read, and of passes over memory between them."""
    total = machine.memory_seconds(work, "bf16") + kernels * machine.rates.launch_us * US
    launch = machine.rates.gemm["bf16"].launch_us * US
    for product in work.matmuls:
        moved = 2.0 * product.count * (product.m * product.k + product.k * product.n + product.m * product.n)
        total = total + np.maximum(machine.matmul(product, "bf16") - launch, moved / machine.bandwidth) + launch
    return np.asarray(total, dtype=np.float64)


def reduce_seconds(module: Module, machine: MachineModel, served: ServedRates, tokens: Floats, tp: int) -> Floats:
    """Seconds of a layer's two sums over tensor-parallel ranks."""
    if tp == 1:
        return np.zeros_like(tokens)
    size = tokens * module.hidden * 2.0
    line = served.all_reduce.get(tp)
    if line:
        return 2.0 * (line.us * US + size / (line.gb_per_s * GB))
    return np.asarray(2.0 * machine.network.all_reduce(size, strided_group(tp)), dtype=np.float64)
