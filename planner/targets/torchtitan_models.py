"""Models that torchtitan has by name: as flavors in TOML (0.2.2), as configurations that flags change (0.3.0)."""

from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

from planner.specs import library
from planner.specs.base import with_fields
from planner.specs.layers import Decoder
from planner.specs.model import Model
from planner.targets.launch import canonical_module
from planner.targets.rows import Arguments

QWEN_SMALL = {"heads": 16, "kv_heads": 8, "head_dim": 128, "tied": True}
# (model.name, model.flavor) → the shipped model, and how the flavor differs from it
FLAVORS: dict[tuple[str, str], tuple[str, dict[str, Any]]] = {
    ("llama3", "debugmodel"): (
        "llama-3-8b",
        {"layers": 6, "hidden": 256, "heads": 16, "kv_heads": 16, "ffn": 768, "vocab": 2048},
    ),
    ("llama3", "8B"): ("llama-3-8b", {}),
    ("llama3", "70B"): ("llama-3-70b", {}),
    ("llama3", "405B"): ("llama-3.1-405b", {}),
    ("llama4", "17bx16e"): ("llama-4-scout", {"window": None, "full_every": 0}),
    ("llama4", "17bx16e_irope"): ("llama-4-scout", {}),
    ("llama4", "17bx128e"): ("llama-4-maverick", {"window": None, "full_every": 0}),
    ("llama4", "17bx128e_irope"): ("llama-4-maverick", {}),
    ("deepseek_v3", "16B"): ("deepseek-v2-lite", {}),
    ("deepseek_v3", "671B"): ("deepseek-v3", {}),
    ("qwen3", "0.6B"): ("qwen3-8b", {**QWEN_SMALL, "layers": 28, "hidden": 1024, "ffn": 3072}),
    ("qwen3", "1.7B"): ("qwen3-8b", {**QWEN_SMALL, "layers": 28, "hidden": 2048, "ffn": 6144}),
    ("qwen3", "8B"): ("qwen3-8b", {}),
    ("qwen3", "14B"): ("qwen3-8b", {"layers": 40, "hidden": 5120, "heads": 40, "ffn": 17408}),
    ("qwen3", "32B"): ("qwen3-32b", {}),
    ("qwen3", "30B-A3B"): ("qwen3-30b-a3b", {}),
    ("qwen3", "235B-A22B"): ("qwen3-235b-a22b", {}),
    ("gpt_oss", "20b"): ("gpt-oss-20b", {}),
    ("gpt_oss", "120b"): ("gpt-oss-120b", {}),
}
UNPRICED_FIELDS = {"rope_base": 1e4, "rope_scaling": None, "norm_eps": 1e-5, "max_positions": 0}
UNPRICED_OF_EXPERTS = {"router_bias": False, "balance": 0.0, "scores": "softmax", "normalised": True, "counts": ()}

FLOAT8 = "quantize.linear.float8"
EP, TP = "parallelism.expert_parallel_degree", "parallelism.tensor_parallel_degree"
INTERLEAVED = {"parallelism.pipeline_parallel_schedule": "Interleaved1F1B"}
EAGER = {"training.disable_cuda_graphs": "true"}
COMPILED = {"compile.enable": "true", "compile.enable_async_tensor_parallel": "true"}


class Config(NamedTuple):
    """A configuration of 0.3.0: its model, and what it says where flags do not, beside the defaults of all."""

    name: str
    flavor: str
    batch: int
    tokens: int
    recompute: str
    more: Mapping[str, str] = {}

    def arguments(self) -> dict[str, str]:
        """What it says."""
        own = {"model.name": self.name, "model.flavor": self.flavor, "activation_checkpoint.mode": self.recompute}
        own |= {"training.local_batch_size": str(self.batch), "training.seq_len": str(self.tokens)}
        return own | {"training.disable_cuda_graphs": "false"} | dict(self.more)


CONFIGS: dict[str, Config] = {
    "llama3_debugmodel": Config("llama3", "debugmodel", 8, 2048, "selective", INTERLEAVED),
    "llama3_8b": Config("llama3", "8B", 1, 8192, "selective"),
    "llama3_70b": Config("llama3", "70B", 8, 8192, "full", {TP: "8"}),
    "llama3_405b": Config("llama3", "405B", 2, 8192, "full", {TP: "8", "model.converters": FLOAT8, **COMPILED}),
    "deepseek_v3_16b": Config("deepseek_v3", "16B", 4, 4096, "selective", {EP: "8", **INTERLEAVED, **EAGER}),
    "deepseek_v3_671b": Config("deepseek_v3", "671B", 4, 4096, "selective", {EP: "2", **INTERLEAVED, **EAGER}),
    "deepseek_v3_671b_float8": Config(
        "deepseek_v3", "671B", 4, 4096, "selective", {EP: "2", "model.converters": FLOAT8, **INTERLEAVED, **EAGER}
    ),
    "qwen3_0_6b": Config("qwen3", "0.6B", 4, 4096, "selective"),
    "qwen3_1_7b": Config("qwen3", "1.7B", 4, 4096, "selective"),
    "qwen3_14b": Config("qwen3", "14B", 4, 4096, "full"),
    "qwen3_32b": Config("qwen3", "32B", 2, 4096, "full"),
    "qwen3_30b_a3b": Config("qwen3", "30B-A3B", 2, 4096, "full"),
    "gpt_oss_20b": Config("gpt_oss", "20b", 1, 8192, "full"),
    "gpt_oss_120b": Config("gpt_oss", "120b", 1, 8192, "full"),
}


@cache
def flavor_module(name: str, flavor: str) -> Decoder:
    """The module of a flavor."""
    shipped, changes = FLAVORS[name, flavor]
    module = library.read_named(shipped, Model)[0].modules["llm"]
    assert type(module) is Decoder
    return with_fields(module, **changes)


def priced_module(module: Decoder, tp: int) -> Decoder:
    """A module without the fields that change no price, of which flavors have values of their own."""
    experts = module.moe and with_fields(module.moe, **UNPRICED_OF_EXPERTS)
    return with_fields(canonical_module(module, tp), moe=experts, **UNPRICED_FIELDS)  # type: ignore[return-value]


def flavor_of(module: Decoder, tp: int) -> tuple[str, str] | None:
    """The name and flavor of a module; None where torchtitan has none like it."""
    wanted = priced_module(module, tp)
    return next((each for each in FLAVORS if priced_module(flavor_module(*each), tp) == wanted), None)


def config_of(arguments: Arguments) -> str | None:
    """The configuration of 0.3.0 that has the model, and the precision, of these arguments."""
    own = (*arguments["model.name"], *arguments["model.flavor"], FLOAT8 in arguments.get("model.converters", ()))
    named = ((name, config) for name, config in CONFIGS.items())
    return next(
        (name for name, each in named if (each.name, each.flavor, "model.converters" in each.more) == own), None
    )
