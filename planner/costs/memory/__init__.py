"""Memory: bytes by kind, what a rank may hold, how likely it runs out, and how many tokens that leaves."""

from planner.costs.memory.allowed_memory import FRAGMENTED, allowed_bytes, device_accounting, oom_chance
from planner.costs.memory.footprint import (
    Footprint,
    footprint,
    fullest_stage,
    layer_token_bytes,
    layers_on_stage,
)
from planner.costs.memory.layer_room import LayerKept, LayerRoom, layer_kept, layer_room, usual_kind
from planner.costs.memory.model_states import moment_width
from planner.costs.memory.offload import STEPS as OFFLOAD_STEPS
from planner.costs.memory.offload import Offloading
from planner.costs.memory.pipeline_activations import in_flight
from planner.costs.memory.stage_bytes import StageBytes, stages_bytes
from planner.costs.memory.token_caps import ActivationBytes, resident_footprint
