"""The machine that a static layout runs on: kernel rates, network bandwidth, and the framework that launches
kernels.
"""

from dataclasses import dataclass

import numpy as np

from planner.costs.columns import Number, Precision
from planner.costs.compute.assumed import complete
from planner.costs.compute.work import Attention, Matmul, Work
from planner.costs.network.network import Network, network_of
from planner.specs.accounting import Accounting
from planner.specs.cluster import Cluster
from planner.specs.profile import Device
from planner.specs.rates import AttentionCurve, Rates
from planner.specs.timing import Timing
from planner.units import GB, US

TERA = 1e12
MEGATRON_ACCOUNTING = Accounting()
# The exposed share of the memory traffic of gradient accumulation; other tiles of the product hide the rest. Of 0, 0.3,
# 0.5 and 1 it had the least error over published records.
EXPOSED_ACCUMULATION = 0.5


@dataclass(frozen=True, slots=True)
class Machine:
    """A device with its rates and network, and a framework's coefficients."""

    device: Device
    rates: Rates
    network: Network
    timing: Timing
    accounting: Accounting = MEGATRON_ACCOUNTING

    def matmul(self, product: Matmul, precision: Precision) -> Number:
        """Seconds of a matrix product: m, n and k each count a few more for filling the device, and one launch."""
        dtype = precision if product.wide or precision != "fp8" else "bf16"
        dtype = "float32" if dtype == "float64" else dtype
        curve = self.rates.gemm.get(dtype) or self.rates.gemm["bf16"]
        share = curve.share * self.sustained(dtype) * (self.grouped if product.grouped else 1.0)
        n0 = curve.n0 * (self.timing.cast if dtype == "fp8" else 1.0)
        filled = 2.0 * (product.m + curve.m0) * (product.n + n0) * (product.k + curve.k0) * product.count
        return filled / (share * self.peak(dtype)) + curve.launch_us * US

    @property
    def grouped(self) -> Number:
        """The share of a single product's rate that grouped products of several experts reach, at most 1."""
        return np.minimum(1.0, (self.rates.grouped_share or 1.0) * self.timing.experts)

    def attention(self, core: Attention, forward: bool) -> Number:
        """Seconds of flash attention, and one launch."""
        per_pair, fill = self.attention_terms(core, forward)
        pairs = core.pairs * core.heads * core.width * (1.0 + fill / core.length)
        return per_pair * pairs + self.attention_launch(core)

    def attention_launch(self, core: Attention) -> float:
        """Seconds of one launch of attention."""
        return self.attention_curve(core).launch_us * US

    def attention_curve(self, core: Attention) -> AttentionCurve:
        """The rate curve of attention for this head dimension."""
        return self.rates.attention.get(str(core.head_dim)) or self.rates.attention["any"]

    def attention_terms(self, core: Attention, forward: bool) -> tuple[Number, float]:
        """Seconds per pair of tokens, head and element of a head; and the tokens that a kernel's start is worth.
        Backward has 2.5 times the work of forward (arXiv 2307.08691).
        """
        curve = self.attention_curve(core)
        share = (curve.share if forward else curve.backward_share) * self.sustained("bf16")
        share *= self.timing.attention if "fp8" in self.device.tflops else 1.0  # Ampere has no newer kernels
        return 4.0 * (1.0 if forward else 2.5) / (share * self.peak(core.dtype)), curve.s0

    def scores(self, core: Attention) -> Number:
        """Seconds of writing and reading the attention matrix, where it is materialised."""
        return core.pairs * core.heads * self.timing.score_bytes / self.bandwidth

    def moved(self, work: Work) -> Number:
        """Seconds of kernels that are bound by memory."""
        return work.moved * self.timing.passes / self.bandwidth

    def operands(self, work: Work, element: float) -> Number:
        """Seconds of reading the operands of matrix products and writing their results, at memory bandwidth."""
        each = (p.count * (p.m * p.k + p.k * p.n + p.m * p.n) for p in work.matmuls)
        return element * sum(each) / self.bandwidth

    @property
    def bandwidth(self) -> float:
        """Bytes per second of device memory that kernels reach."""
        return self.device.memory_gb_per_s * GB * (self.rates.memory_share or 1.0)

    def sustained(self, dtype: str) -> float:
        """The share of an isolated kernel's rate that is sustained in training, where clocks fall and other kernels
        run.
        """
        return self.rates.sustained.get(dtype, self.rates.sustained.get("bf16", 1.0)) * self.timing.kernels

    def peak(self, dtype: str) -> float:
        """FLOP/s of a dtype on the data sheet."""
        return peak_flops(self.device, dtype)

    def forward(self, work: Work, precision: Precision) -> Number:
        """Seconds of one forward pass over this work, attention aside."""
        seconds = self.moved(work) + self.launches(work)
        for product in work.matmuls:
            seconds = seconds + self.matmul(product, precision)
        return seconds

    def backward(self, work: Work, precision: Precision, products: int = 2) -> Number:
        """Seconds of one backward pass, attention aside: an input and, where weights are trained, a weight gradient per
        product, and twice the memory traffic. Products without weights are recomputed, and have two gradients.
        """
        seconds = 2.0 * self.moved(work) + self.launches(work)
        for product in work.matmuls:
            seconds = seconds + self.matmul(product, precision) * (1.0 if product.trained else 3.0)
        return seconds + self.weights(work, precision) if products > 1 else seconds

    def weights(self, work: Work, precision: Precision) -> Number:
        """Seconds of the weight gradients of a backward; attention has none."""
        seconds: Number = 0.0
        for product in work.matmuls:
            if product.trained:
                seconds = seconds + self.matmul(product, precision) + self.accumulation_seconds(product)
        return seconds

    def attended(self, core: Attention, forward: bool) -> Number:
        """Seconds of attention with its matrix, where that is materialised: written and read twice as often in
        backward.
        """
        return self.attention(core, forward) + (1.0 if forward else 2.0) * self.scores(core)

    def accumulation_seconds(self, product: Matmul) -> Number:
        """Seconds of adding weight gradients to those of earlier micro-batches, however few the tokens."""
        return EXPOSED_ACCUMULATION * 2.0 * self.timing.gradient_bytes * product.weights / self.bandwidth

    def launches(self, work: Work) -> Number:
        """Seconds between kernels on the device."""
        return np.asarray(work.kernels * self.rates.launch_us * US)

    def host(self, work: Work, tp: Number) -> Number:
        """Seconds in which the host launches one pass over a layer, whatever its size. The device waits where it is
        quicker.
        """
        experts = self.timing.expert_us if any(p.grouped for p in work.matmuls) else 0.0
        return np.asarray((self.timing.layer_us + experts + np.where(tp > 1, self.timing.tp_us, 0.0)) * US)

    @property
    def window(self) -> float:
        """The share of concurrent compute in which replicas can communicate; 0 on a CPU, where both use the
        same cores.
        """
        return self.timing.dp_window if self.device.kind == "cuda" else 0.0

    @property
    def sent(self) -> float:
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
    cluster: Cluster, device: Device, rates: Rates | None, timing: Timing, accounting: Accounting | None = None
) -> Machine:
    """The machine that ranks of one kind in a cluster form."""
    known = complete(rates, device.kind)
    return Machine(device, known, network_of(cluster, known), timing, accounting or MEGATRON_ACCOUNTING)
