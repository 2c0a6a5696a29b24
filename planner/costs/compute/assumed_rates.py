"""Assumed rates of a device that was not timed: its data sheet's peaks, at the shares that timed devices reach of
theirs.
"""

from math import sqrt

from planner.costs.layout_columns import CAST_PRECISIONS
from planner.specs.base import with_fields
from planner.specs.hardware.device_rates import AttentionCurve, DeviceRates, GemmCurve
from planner.specs.hardware.profile import Device

ASSUMED_SPREAD = 0.25  # spread of what assumed rates predict; a fit of the device has less
LINK_GB_PER_S = 25.0  # within a node, where the device does not say: two thirds of PCIe Gen4 x16
ADAPTER_GB_PER_S = 12.5  # between nodes: one 100 Gb/s port
ASSUMED_RATES = DeviceRates(  # the middle of what was fitted on A100, H100, H200 and B200
    source="analytic",
    spread=ASSUMED_SPREAD,
    gemm={
        "bf16": GemmCurve(share=0.78, m0=40.0, n0=40.0, k0=100.0, launch_us=4.0),
        "fp8": GemmCurve(share=0.7, m0=60.0, n0=300.0, k0=200.0, launch_us=5.0),
    },
    attention={"any": AttentionCurve(share=0.6, backward_share=0.5, s0=600.0, launch_us=20.0)},
    # Libraries of training multiply expert by expert at nearly a single product's rate (GroupedLinear of Transformer
    # Engine calls cuBLAS for each); tables of serving are of other kernels (Triton's), at 0.5 to 0.7.
    grouped_share=0.9,
    memory_share=0.8,
    link_share=0.7,
    adapter_share=0.85,
    launch_us=3.0,
    sustained={"bf16": 0.9, "fp8": 0.9},
)


ASSUMED_CPU_RATES = with_fields(  # no tiles to fill; the share of its peak that analytic models usually take
    ASSUMED_RATES,
    gemm={"bf16": GemmCurve(share=0.55)},
    attention={"any": AttentionCurve(share=0.45, backward_share=0.45)},
    sustained={},
)


def complete_rates(rates: DeviceRates | None, kind: str = "cuda") -> DeviceRates:
    """Rates with every gap filled from those assumed of the device kind; all assumed where there are none."""
    assumed = ASSUMED_CPU_RATES if kind == "cpu" else ASSUMED_RATES
    if rates is None:
        return assumed
    return with_fields(
        rates,
        gemm=assumed.gemm | rates.gemm,
        attention=assumed.attention | rates.attention,
        grouped_share=rates.grouped_share or assumed.grouped_share,
        memory_share=rates.memory_share or assumed.memory_share,
        link_share=rates.link_share or assumed.link_share,
        adapter_share=rates.adapter_share or assumed.adapter_share,
        launch_us=rates.launch_us or assumed.launch_us,
        sustained=assumed.sustained | rates.sustained,
    )


def step_spread(software: float, rates: DeviceRates | None, dtype: str = "bf16") -> float:
    """The spread of a step's seconds: what the framework's fit leaves, and what is assumed of a device that was not
    timed in training in this dtype, as independent errors.
    """
    timed = rates is not None and (dtype if dtype in CAST_PRECISIONS else "bf16") in rates.sustained
    return sqrt(software**2 + (0.0 if timed else ASSUMED_SPREAD) ** 2)


def link_gb_per_s(device: Device) -> float:
    """GB/s of a device's links within a node; assumed where the device file does not give it."""
    return device.link_gb_per_s or LINK_GB_PER_S


def adapter_gb_per_s(device: Device) -> float:
    """GB/s of a device's network adapter; assumed where the device file does not give it."""
    return device.adapter_gb_per_s or ADAPTER_GB_PER_S
