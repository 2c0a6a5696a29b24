"""The machine that a static layout runs on: kernel rates, network bandwidth, and the framework that launches
kernels.
"""

from dataclasses import dataclass, replace

import numpy as np

from planner.costs.compute.assumed_rates import complete_rates
from planner.costs.compute.layer_work import AttentionCore, LayerWork, Matmul
from planner.costs.layout_columns import CAST_PRECISIONS, Number, Precision
from planner.costs.network_model import NetworkModel, network_of
from planner.specs.base import with_fields
from planner.specs.framework.memory_coefficients import MemoryCoefficients
from planner.specs.framework.timing_coefficients import TimingCoefficients
from planner.specs.hardware.cluster import Cluster
from planner.specs.hardware.device_rates import AttentionCurve, DeviceRates
from planner.specs.hardware.profile import Device
from planner.specs.layers import Module
from planner.units import GB, US

TERA = 1e12
MEGATRON_ACCOUNTING = MemoryCoefficients()
# The exposed share of the memory traffic of gradient accumulation; other tiles of the product hide the rest. Of 0, 0.3,
# 0.5 and 1 it had the least error over published records.
EXPOSED_ACCUMULATION = 0.5

# Bytes moved for a score in backward over those in forward, with a fused softmax of the lower triangle: forward writes
# the score (2), reads half and writes all of the softmax (1 + 2), drops out (2 + 2, and a mask of 1) and reads (2).
# Backward writes the gradient (2), reads the scores (2), drops out (2 + 1 + 2), goes through the softmax (2 + 2) and
# reads its gradient twice (2 + 2). (Megatron-LM's CoreAttention and scaled_upper_triang_masked_softmax.)
SCORE_GRADIENTS = 17.0 / 12.0
# Head widths that FlashAttention-2 is compiled for (csrc/flash_attn/src of Dao-AILab/flash-attention 2.7).
KERNEL_WIDTHS = (32, 64, 96, 128, 160, 192, 224, 256)
# Half-precision rows that tensor cores take (NVIDIA, Matrix Multiplication Background), and a V100's peak with them
# over that without (data sheet: 125 and 31 TFLOP/s).
ALIGNED_ELEMENTS = 8
UNALIGNED_WORK = 4.0
HALF_PRECISION = ("bf16", "fp16")
# Kernels in NVFP4 were not timed: they are taken to reach the share of their peak that those in fp8 do, and to be cast
# in as many seconds.
KERNELS_AS = {"fp4": "fp8"}
# Of products on tensor cores that read such rows piece by piece. Measured on an H200 (torch 2.11, 2026-11-27): layers
# of a vision tower whose MLP is 3,420 wide take 2.3 times what products at their usual rate would, forward and backward
# alike, all of which its MLP would have to be 3.3 times as slow for; some of it are passes over memory.
UNALIGNED_PRODUCT = 3.0


@dataclass(frozen=True, slots=True)
class MachineModel:
    """A device with its rates and network, and a framework's coefficients."""

    device: Device
    rates: DeviceRates
    network: NetworkModel
    timing: TimingCoefficients
    accounting: MemoryCoefficients = MEGATRON_ACCOUNTING

    def __hash__(self) -> int:
        """By what has a hash: rates and networks are tables. Machines are few, and equal ones are asked for again."""
        return hash((self.timing, self.accounting))

    def matmul(self, product: Matmul, precision: Precision) -> Number:
        """Seconds of a matrix product: m, n and k each count a few more for filling the device, and one launch."""
        dtype = precision if product.layer_precision or precision not in CAST_PRECISIONS else "bf16"
        dtype = "float32" if dtype == "float64" else dtype
        timed = KERNELS_AS.get(dtype, dtype)
        curve = self.rates.gemm.get(timed) or self.rates.gemm["bf16"]
        share = curve.share * self.sustained_share(timed) * (self.grouped_share if product.grouped else 1.0)
        casts = self.timing.cast * self.cast_share(product, dtype) if dtype in CAST_PRECISIONS else 1.0
        n0 = curve.n0 * casts * self.peak(dtype) / self.peak(timed)
        filled = 2.0 * (product.m + curve.m0) * (product.n + n0) * (product.k + curve.k0) * product.count
        unaligned = self.unaligned_work(product) if dtype in HALF_PRECISION else 1.0
        return unaligned * filled / (share * self.peak(dtype)) + curve.launch_us * US

    def unaligned_work(self, product: Matmul) -> Number:
        """A product's work in half precision over that of one whose rows can be copied in blocks, on devices whose
        tensor cores need that (those later than Ampere): a width that is odd, or that tp divides too often, has none.
        """
        if "fp8" not in self.device.tflops or not product.has_weights:
            return 1.0
        outputs = product.n if self.accounting.fused else product.n / product.joined
        aligned = [np.rint(width) % ALIGNED_ELEMENTS == 0 for width in (outputs, product.k)]
        return np.where(aligned[0] & aligned[1], 1.0, UNALIGNED_PRODUCT)

    def cast_share(self, product: Matmul, precision: Precision) -> Number:
        """The share of a product's tokens that each rank casts to fp8 in kernels of their own."""
        if product.grouped and self.fuses_experts(precision):
            return 0.0
        return product.cast if self.timing.gathers_fp8 else 1.0

    def fuses_experts(self, precision: Precision) -> bool:
        """Whether one kernel has all experts of a rank, their activation and their casts."""
        return self.timing.experts_at_once and precision in CAST_PRECISIONS and self.device.microscaling

    @property
    def grouped_share(self) -> Number:
        """The share of a single product's rate that grouped products of several experts reach, at most 1."""
        return np.minimum(1.0, (self.rates.grouped_share or 1.0) * self.timing.experts)

    def attention(self, core: AttentionCore, forward: bool) -> Number:
        """Seconds of flash attention, and one launch."""
        per_pair, fill = self.attention_terms(core, forward)
        pairs = core.pairs * core.heads * core.width * (1.0 + fill / core.length)
        return per_pair * pairs + self.attention_launch(core)

    def head_padding(self, core: AttentionCore) -> float:
        """Work on a head over that of its own width, where this width was not timed: fused kernels are compiled for
        some widths and pad others. Products of a stored matrix use no tensor cores in rows that are not aligned.
        """
        if str(core.head_dim) in self.rates.attention or self.device.kind != "cuda":
            return 1.0
        if self.timing.score_bytes:
            return 1.0 if core.head_dim % ALIGNED_ELEMENTS == 0 else UNALIGNED_WORK
        return min((each for each in KERNEL_WIDTHS if each >= core.head_dim), default=core.head_dim) / core.head_dim

    def attention_launch(self, core: AttentionCore) -> float:
        """Seconds of one launch of attention."""
        return self.attention_curve(core).launch_us * US

    def attention_curve(self, core: AttentionCore) -> AttentionCurve:
        """The rate curve of attention for this head dimension."""
        return self.rates.attention.get(str(core.head_dim)) or self.rates.attention["any"]

    def attention_terms(self, core: AttentionCore, forward: bool) -> tuple[Number, float]:
        """Seconds per pair of tokens, head and element of a head; and a kernel's start, in tokens.
        Backward has 2.5 times the work of forward (arXiv 2307.08691). Clocks that matrix products cannot sustain
        attention can: its softmax leaves tensor cores idle, and FlashAttention's figures are of long runs. Its kernels
        are the same code whichever framework calls them.
        """
        curve = self.attention_curve(core)
        share = curve.share if forward else curve.backward_share
        share *= self.timing.attention if "fp8" in self.device.tflops else self.timing.attention_ampere
        backward = 2.0 if self.timing.score_bytes else 2.5  # a stored matrix is not recomputed
        work = 4.0 * (1.0 if forward else backward) * self.head_padding(core) * self.computed_pairs(core)
        return work / (share * self.peak(core.dtype)), curve.s0

    def computed_pairs(self, core: AttentionCore) -> float:
        """Pairs that are computed over those that are attended to: a matrix of scores is computed, written and read
        whole, and masked thereafter. A layer of 22B then spends 1.4 ms on recomputing it, and 1.3 were measured
        (arXiv 2205.05198, Table 4).
        """
        return 2.0 if self.timing.score_bytes and core.causal else 1.0

    def score_terms(self, core: AttentionCore, forward: bool) -> float:
        """Seconds per pair and head of writing and reading the attention matrix, where it is materialised."""
        moved = self.timing.score_bytes * self.computed_pairs(core) * (1.0 if forward else SCORE_GRADIENTS)
        return moved / self.bandwidth

    def memory_seconds(self, work: LayerWork, precision: Precision) -> Number:
        """Seconds of kernels that are bound by memory."""
        moved = work.memory_bytes
        if self.fuses_experts(precision):
            moved = moved - work.expert_activation_bytes
        return moved * self.timing.passes / self.bandwidth

    def operand_seconds(self, work: LayerWork, element: float) -> Number:
        """Seconds of reading the operands of matrix products and writing their results, at memory bandwidth."""
        each = (p.count * (p.m * p.k + p.k * p.n + p.m * p.n) for p in work.matmuls)
        return element * sum(each) / self.bandwidth

    @property
    def bandwidth(self) -> float:
        """Bytes per second of device memory that kernels reach."""
        return self.device.memory_gb_per_s * GB * (self.rates.memory_share or 1.0)

    def sustained_share(self, dtype: str) -> float:
        """The share of an isolated kernel's rate that is sustained in training, where clocks fall and other kernels
        run.
        """
        return self.rates.sustained.get(dtype, self.rates.sustained.get("bf16", 1.0)) * self.timing.kernels

    def peak(self, dtype: str) -> float:
        """FLOP/s of a dtype on the data sheet."""
        return peak_flops(self.device, dtype)

    def forward(self, work: LayerWork, precision: Precision) -> Number:
        """Seconds of one forward pass over this work, attention aside."""
        seconds = self.memory_seconds(work, precision) + self.launch_gap_seconds(work)
        for product in work.matmuls:
            seconds = seconds + self.matmul(product, precision)
        return seconds

    def backward(self, work: LayerWork, precision: Precision) -> Number:
        """Seconds of one backward pass, attention aside: an input and, where weights are trained, a weight gradient per
        product, and twice the memory traffic. Products without weights are recomputed, and have two gradients.
        """
        seconds = 2.0 * self.memory_seconds(work, precision) + self.launch_gap_seconds(work)
        for product in work.matmuls:
            seconds = seconds + self.matmul(product, precision) * (1.0 if product.has_weights else 3.0)
        return seconds + self.weight_gradient_seconds(work, precision)

    def head_backward(self, module: Module, work: LayerWork, precision: Precision) -> Number:
        """Seconds of one backward pass over what is behind a module's layers, of a loss perhaps with logits again."""
        again = self.timing.recomputes_logits and module.output_vocabulary
        return self.backward(work, precision) + (self.forward(work, precision) if again else 0.0)

    def weight_gradient_seconds(self, work: LayerWork, precision: Precision) -> Number:
        """Seconds of the weight gradients of a backward; attention has none, nor has what is frozen."""
        seconds: Number = 0.0
        for product in work.matmuls:
            if product.has_weights and product.trained:
                seconds = seconds + self.matmul(product, precision) + self.accumulation_seconds(product)
        return seconds

    def attention_seconds(self, core: AttentionCore, forward: bool) -> Number:
        """Seconds of attention with its matrix, where that is materialised."""
        return self.attention(core, forward) + core.pairs * core.heads * self.score_terms(core, forward)

    def accumulation_seconds(self, product: Matmul) -> Number:
        """Seconds of adding weight gradients to those of earlier micro-batches, however few the tokens."""
        return EXPOSED_ACCUMULATION * 2.0 * self.timing.gradient_bytes * product.weights / self.bandwidth

    def launch_gap_seconds(self, work: LayerWork) -> Number:
        """Seconds between kernels on the device."""
        return np.asarray(work.kernels * self.rates.launch_us * US)

    def host_seconds(self, work: LayerWork, tp: Number, precision: Precision) -> Number:
        """Seconds in which the host launches one pass over a layer, whatever its size; of experts it launches one after
        another, or none of it where a CUDA graph has them all. The device waits where it is quicker.
        """
        local = [product.count for product in work.matmuls if product.grouped]
        if local and self.fuses_experts(precision):
            return np.zeros(np.shape(tp))
        experts = self.timing.expert_us + self.timing.each_expert_us * local[0] if local else 0.0
        return np.asarray((self.timing.layer_us + experts + np.where(tp > 1, self.timing.tp_us, 0.0)) * US)

    @property
    def without_launches(self) -> "MachineModel":
        """The machine whose host launches kernels in no time."""
        return replace(
            self, timing=with_fields(self.timing, layer_us=0.0, tp_us=0.0, expert_us=0.0, each_expert_us=0.0)
        )

    @property
    def exposing(self) -> "MachineModel":
        """The machine on which no communication within a pass runs beside compute."""
        exposed = {"tp_exposed": 1.0, "tp_exposed_backward": 1.0, "ep_exposed": 1.0, "overlapped": 1.0}
        return replace(self, timing=with_fields(self.timing, **exposed))

    @property
    def dp_window(self) -> float:
        """The share of concurrent compute in which replicas can communicate; 0 on a CPU, where both use the
        same cores.
        """
        hides = self.timing.overlaps_replicas and self.device.kind == "cuda"
        return self.timing.dp_window if hides else 0.0

    @property
    def updated_window(self) -> float:
        """The share of concurrent compute in which updated weights can be gathered: none where that ends before the
        next forward begins.
        """
        return self.dp_window if self.timing.gathers_ahead else 0.0

    @property
    def backward_window(self) -> float:
        """The share of ZeRO-3's backward in which replicas can communicate: none where each gather waits for the
        reduction before it, and that for its gradients.
        """
        return self.dp_window if self.timing.prefetches else 0.0

    def replica_window(self, gathers: bool, once: bool) -> float:
        """The share of compute that can hide a collective before a forward (it gathers) or after a backward, once a
        step or in each micro-batch.
        """
        if gathers:
            return self.updated_window if once else self.dp_window
        return self.dp_window if once else self.backward_window

    @property
    def exposed_send_share(self) -> float:
        """The share of sends between stages that is exposed."""
        return self.timing.pp_exposed if self.device.kind == "cuda" else 1.0

    def jitter(self, ranks: Number) -> Number:
        """The share that is added to everything because the slowest of many ranks is critical."""
        return self.timing.jitter * np.log2(np.maximum(1.0, ranks / self.network.per_node))


def peak_flops(device: Device, dtype: str) -> float:
    """FLOP/s of a dtype on the data sheet, or of the next dtype that the device has."""
    tflops = device.tflops
    half = tflops.get("bf16") or tflops.get("fp16")
    peak = tflops.get(dtype) or (half if dtype in ("fp8", "fp16", "bf16") else None)
    return (peak or max(tflops.values())) * TERA


def machine_of(
    cluster: Cluster,
    kind: str,
    device: Device,
    rates: DeviceRates | None,
    timing: TimingCoefficients,
    accounting: MemoryCoefficients | None = None,
) -> MachineModel:
    """The machine that ranks of one kind in a cluster form."""
    known = complete_rates(rates, device.kind)
    return MachineModel(device, known, network_of(cluster, kind, known), timing, accounting or MEGATRON_ACCOUNTING)
