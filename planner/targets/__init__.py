"""What others train and serve with is told: of each a table, fields of a launch ↔ its arguments, and its files."""

from planner.targets.accelerate import ACCELERATE
from planner.targets.deepspeed import DEEPSPEED
from planner.targets.launch import Encoders, Launch, blackwell, canonical, decided_layout, encoder_layout, layout_of
from planner.targets.launch_command import LaunchCommand
from planner.targets.launchers import LAUNCHERS, Started, runtime_script, starting
from planner.targets.megatron_layers import GPT2_TOKENS, VOCAB_MULTIPLE, gated_ffn, padded_vocab
from planner.targets.megatron_script import MEGATRON, megatron_fields
from planner.targets.mimo import MIMO
from planner.targets.rows import Stated
from planner.targets.target import (
    ReadLaunch,
    Target,
    WrittenLaunch,
    arguments_of,
    chosen_version,
    located,
    read_target,
)
from planner.targets.torchtitan_files import TORCHTITAN
from planner.targets.vllm import Served, vllm_arguments, vllm_fields, vllm_script

# What `planner export` writes and `planner import` reads.
TARGETS: dict[str, Target] = {
    each.name: each for each in (MEGATRON._replace(beside=MIMO), TORCHTITAN, DEEPSPEED, ACCELERATE)
}

__all__ = [
    "GPT2_TOKENS",
    "LAUNCHERS",
    "TARGETS",
    "VOCAB_MULTIPLE",
    "Encoders",
    "Launch",
    "LaunchCommand",
    "ReadLaunch",
    "Served",
    "Started",
    "Stated",
    "Target",
    "WrittenLaunch",
    "arguments_of",
    "blackwell",
    "canonical",
    "chosen_version",
    "decided_layout",
    "encoder_layout",
    "gated_ffn",
    "layout_of",
    "located",
    "megatron_fields",
    "padded_vocab",
    "read_target",
    "runtime_script",
    "starting",
    "vllm_arguments",
    "vllm_fields",
    "vllm_script",
]
