"""Machines for tests: a device whose kernels have no launches and reach what is asked, and the shipped ones."""

from planner.costs.compute.assumed import complete
from planner.costs.compute.machine import Machine
from planner.costs.static.wires import Wires
from planner.specs.library import read
from planner.specs.model import Decoder
from planner.specs.parts import Experts
from planner.specs.profile import Device, Profile
from planner.specs.rates import AttentionCurve, GemmCurve, Rates
from planner.specs.timing import Timing

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
WIRES = Wires(per_node=8, near_gb_per_s=300.0, far_gb_per_s=25.0, near_us=0.0, far_us=0.0)


def ideal(timing=None, wires=WIRES):
    """Matrix products and attention at the peak, memory as fast as can be told, no launches."""
    rates = Rates(
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
    return Machine(device, rates, wires, timing or Timing())


def shipped(name="h100-80gb", **timing):
    device, rates = (profile := read(name, Profile)[0]).device, complete(profile.rates)
    return Machine(device, rates, Wires(8, 300.0, 42.0, 3.0, 8.0), Timing(**timing))
