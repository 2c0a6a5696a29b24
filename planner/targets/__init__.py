"""What other programs are told to train with: of each a table, fields of a launch ↔ its arguments, and its files."""

from planner.targets.launch import Launch, blackwell, canonical, layout_of
from planner.targets.launch_command import LaunchCommand
from planner.targets.megatron_layers import GPT2_TOKENS, VOCAB_MULTIPLE, gated_ffn, padded_vocab
from planner.targets.megatron_script import MEGATRON, megatron_fields
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

TARGETS: dict[str, Target] = {"megatron": MEGATRON}  # what `planner export` writes and `planner import` reads

__all__ = [
    "GPT2_TOKENS",
    "TARGETS",
    "VOCAB_MULTIPLE",
    "Launch",
    "LaunchCommand",
    "ReadLaunch",
    "Stated",
    "Target",
    "WrittenLaunch",
    "arguments_of",
    "blackwell",
    "canonical",
    "chosen_version",
    "gated_ffn",
    "layout_of",
    "located",
    "megatron_fields",
    "padded_vocab",
    "read_target",
]
