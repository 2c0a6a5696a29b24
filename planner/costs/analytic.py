"""Costs from shapes and data sheets, for what nobody measured: FLOPs over a share of the peak, bytes over bandwidth."""

from planner.specs.job import Dtype, Recompute
from planner.specs.model import Module
from planner.specs.profile import Device, Fit, ModuleCosts, Passes
from planner.specs.shapes import BYTES, end_flops, layer_activation_elements, layer_flops

MATMUL_SHARE = 0.55  # of dense peak: MegaScale's MFU at 175B on 12,288 GPUs is 55.2 % (arXiv 2402.15627, table 2)
ATTENTION_SHARE = 0.45  # assumed: flash attention stays below matmuls of the same size
UPDATE_BYTES = 28  # Adam reads and writes weight, two moments and master copy, reads the gradient, in float32
SPREAD = 0.35  # assumed, and wide: nothing here was measured


def analytic_costs(module: Module, device: Device, dtype: Dtype, recompute: Recompute) -> ModuleCosts:
    """A module's costs from its shape and its device's data sheet."""
    peak = device.tflops.get(dtype) or device.tflops.get("float32") or max(device.tflops.values())
    squared, linear = layer_flops(module)
    layer = Fit(ms_per_token2=milliseconds(squared, peak, ATTENTION_SHARE), ms_per_token=milliseconds(linear, peak))
    ends = Fit(ms_per_token=milliseconds(end_flops(module), peak))
    kept = layer_activation_elements(module, recompute) * BYTES[dtype]
    return ModuleCosts(
        source="analytic",
        spread=SPREAD,
        layer=Passes(
            forward=layer,
            backward=scaled(layer, 3.0 if recompute == "full" else 2.0),
            activation_kib_per_token=kept / 1024,
        ),
        ends=Passes(
            forward=ends, backward=scaled(ends, 2.0), activation_kib_per_token=module.hidden * BYTES[dtype] / 1024
        ),
        update_ns_per_parameter=UPDATE_BYTES / device.memory_gb_per_s,
        measured_at="",
    )


def milliseconds(flops: float, peak_tflops: float, share: float = MATMUL_SHARE) -> float:
    return flops / (peak_tflops * share * 1e9)


def scaled(fit: Fit, factor: float) -> Fit:
    return Fit(ms_per_token2=fit.ms_per_token2 * factor, ms_per_token=fit.ms_per_token * factor, ms=fit.ms * factor)
