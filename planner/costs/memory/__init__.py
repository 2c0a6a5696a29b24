"""Memory: bytes by kind, what a rank may hold, how likely it runs out, and how many tokens that leaves."""

from planner.costs.memory.allowed_memory import allowed_bytes, device_accounting
from planner.costs.memory.footprint import Footprint, footprint, fullest_stage, layer_token_bytes
from planner.costs.memory.model_states import layers_before
from planner.costs.memory.offload import Offloading
from planner.costs.memory.oom_chance import oom_chance
from planner.costs.memory.resident_memory import resident_footprint
from planner.costs.memory.token_caps import ActivationBytes

__all__ = [
    "ActivationBytes",
    "Footprint",
    "Offloading",
    "allowed_bytes",
    "device_accounting",
    "footprint",
    "fullest_stage",
    "layer_token_bytes",
    "layers_before",
    "oom_chance",
    "resident_footprint",
]
