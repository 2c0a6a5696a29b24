"""Machines for tests: devices without launches at chosen rates, and the shipped ones."""

from dataclasses import replace

from planner.costs.compute.assumed_rates import complete_rates
from planner.costs.machine_model import MachineModel
from planner.costs.network_model import NetworkLevel, NetworkModel
from planner.specs.framework.timing_coefficients import TimingCoefficients
from planner.specs.hardware.device_rates import AttentionCurve, DeviceRates, GemmCurve
from planner.specs.hardware.profile import Device, Profile
from planner.specs.layers import Decoder
from planner.specs.layers.components import Experts
from planner.specs.library import read_named

GPT = Decoder(
    layers=16,
    hidden=2048,
    heads=16,
    ffn=8192,
    vocab=51200,
    gated=False,
    norm="layer",
    bias="all",
    positions="learned",
    max_positions=2048,
    tied=True,
)
LLAMA = Decoder(layers=32, hidden=4096, heads=32, kv_heads=8, ffn=14336, vocab=128256)
MIXTRAL = Decoder(
    layers=32, hidden=4096, heads=32, kv_heads=8, ffn=14336, vocab=32000, moe=Experts(experts=8, topk=2, ffn=14336)
)
PEAK = 100.0  # TFLOP/s


def nodes(near_gb_per_s: float, far_gb_per_s: float, near_us: float = 0.0, far_us: float = 0.0) -> NetworkModel:
    """Of eight ranks each, as many as one likes."""
    return NetworkModel((NetworkLevel(8, near_gb_per_s, near_us), NetworkLevel(2**20, far_gb_per_s, far_us)))


NETWORK = nodes(300.0, 25.0)


def ideal(timing=None, network=NETWORK):
    """Matrix products and attention at the peak, memory as fast as can be told, no launches."""
    rates = DeviceRates(
        source="analytic",
        spread=0.0,
        gemm={"bf16": GemmCurve(share=1.0)},
        attention={"any": AttentionCurve(share=1.0, backward_share=1.0)},
        grouped_share=1.0,
        memory_share=1.0,
        launch_us=0.0,
        sustained={"bf16": 1.0},
    )
    device = Device(kind="cuda", memory_gib=80.0, tflops={"bf16": PEAK}, memory_gb_per_s=1e12)
    return MachineModel(device, rates, network, timing or TimingCoefficients())


def shipped(name="h100-80gb", **timing):
    device, rates = (profile := read_named(name, Profile)[0]).device, complete_rates(profile.rates)
    return MachineModel(device, rates, nodes(300.0, 42.0, 3.0, 8.0), TimingCoefficients(**timing))


def on(machine: MachineModel, kind: str) -> MachineModel:
    """The same on a device of another kind."""
    from planner.specs.base import with_fields

    return replace(machine, device=with_fields(machine.device, kind=kind))
