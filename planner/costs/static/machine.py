"""Where a static strategy runs: how fast its kernels are, how wide its wires, and the framework that launches them."""

from dataclasses import dataclass

import numpy as np

from planner.costs.static.setup import Number, Precision
from planner.costs.static.wires import Wires
from planner.costs.static.work import Attention, Matmul, Work
from planner.specs.profile import Device
from planner.specs.rates import Rates
from planner.specs.timing import Timing
from planner.units import GB, US

TERA = 1e12
# Of the traffic of gradients that add up over micro-batches, what a product's end does not hide behind other tiles: of
# 0, 0.3, 0.5 and 1, what left the least error over published rows.
UNHIDDEN = 0.5


@dataclass(frozen=True, slots=True)
class Machine:
    """A device's rates, its network, and a framework's traits."""

    device: Device
    rates: Rates
    wires: Wires
    timing: Timing

    def matmul(self, product: Matmul, precision: Precision) -> Number:
        """Seconds, with what it takes to start and to fill the device: each of m, n, k costs a few more of its kind."""
        dtype = precision if product.wide or precision != "fp8" else "bf16"
        curve = self.rates.gemm.get(dtype) or self.rates.gemm["bf16"]
        share = curve.share * self.sustained(dtype) * (self.grouped if product.grouped else 1.0)
        n0 = curve.n0 * (self.timing.cast if dtype == "fp8" else 1.0)
        filled = 2.0 * (product.m + curve.m0) * (product.n + n0) * (product.k + curve.k0) * product.count
        return filled / (share * self.peak(dtype)) + curve.launch_us * US

    @property
    def grouped(self) -> Number:
        """Of the rate of one product by itself, what those of several experts reach; no more than that one's."""
        return np.minimum(1.0, (self.rates.grouped_share or 1.0) * self.timing.experts)

    def attention(self, core: Attention, forward: bool) -> Number:
        """Seconds of flash attention; backward has 2.5 times the work (arXiv 2307.08691)."""
        curve = self.rates.attention.get(str(core.head_dim)) or self.rates.attention["any"]
        share = (curve.share if forward else curve.backward_share) * self.sustained("bf16")
        share *= self.timing.attention if "fp8" in self.device.tflops else 1.0  # Ampere has no newer kernels
        flops = core.flops * (1.0 if forward else 2.5) * (1.0 + curve.s0 / core.length)
        return flops / (share * self.peak(core.dtype)) + curve.launch_us * US

    def scores(self, core: Attention) -> Number:
        """Seconds of writing and reading attention's matrix, where it exists."""
        return core.pairs * core.heads * self.timing.score_bytes / self.bandwidth

    def moved(self, work: Work) -> Number:
        """Seconds of what is bound by memory."""
        return work.moved * self.timing.passes / self.bandwidth

    @property
    def bandwidth(self) -> float:
        """Bytes per second of the device's memory, as kernels reach it."""
        return self.device.memory_gb_per_s * GB * (self.rates.memory_share or 1.0)

    def sustained(self, dtype: str) -> float:
        """Of the rate of a kernel timed alone, what it keeps in training: clocks fall, and others run beside it."""
        return self.rates.sustained.get(dtype, self.rates.sustained.get("bf16", 1.0)) * self.timing.kernels

    def peak(self, dtype: str) -> float:
        """FLOP/s of a dtype, or of the next one that the device has."""
        tflops = self.device.tflops
        half = tflops.get("bf16") or tflops.get("fp16")
        found = tflops.get(dtype) or (half if dtype in ("fp8", "fp16", "bf16") else None)
        return (found or max(tflops.values())) * TERA

    def forward(self, work: Work, precision: Precision) -> Number:
        """Seconds of one forward pass over this work."""
        seconds = self.moved(work) + self.launches(work)
        for product in work.matmuls:
            seconds = seconds + self.matmul(product, precision)
        if work.attention:
            seconds = seconds + self.attention(work.attention, True) + self.scores(work.attention)
        return seconds

    def backward(self, work: Work, precision: Precision, products: int = 2) -> Number:
        """Seconds of one backward pass: for each product one with the weights and one for their gradients, if these are
        trained, and twice the passes over memory.
        """
        seconds = 2.0 * self.moved(work) + self.launches(work)
        for product in work.matmuls:
            seconds = seconds + products * self.matmul(product, precision)
            if products > 1:
                seconds = seconds + self.accumulated(product)
        if work.attention:
            seconds = seconds + self.attention(work.attention, False) + 2.0 * self.scores(work.attention)
        return seconds

    def accumulated(self, product: Matmul) -> Number:
        """Seconds of reading gradients that earlier micro-batches left and writing the sum, however few the tokens."""
        return UNHIDDEN * 2.0 * self.timing.gradient_bytes * product.weights / self.bandwidth

    def launches(self, work: Work) -> Number:
        """Seconds between kernels, on the device."""
        return np.asarray(work.kernels * self.rates.launch_us * US)

    def host(self, work: Work, tp: Number) -> Number:
        """Seconds in which the host launches one pass over a layer, whatever its size: the device waits for it where
        it is quicker.
        """
        experts = self.timing.expert_us if any(p.grouped for p in work.matmuls) else 0.0
        return np.asarray((self.timing.layer_us + experts + np.where(tp > 1, self.timing.tp_us, 0.0)) * US)
