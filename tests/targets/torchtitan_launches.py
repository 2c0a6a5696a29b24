"""Launches that torchtitan may be told, in both of its forms, and what may be wrong with a file."""

from planner.plan.mesh.even_stages import even_stages
from planner.targets import Launch
from planner.targets.torchtitan_models import flavor_module
from tests.targets.launches import launch, spans

LLAMA_8B, LLAMA_70B = flavor_module("llama3", "8B"), flavor_module("llama3", "70B")
LLAMA_405B, QWEN_32B = flavor_module("llama3", "405B"), flavor_module("qwen3", "32B")
DEEPSEEK_16B, DEEPSEEK_671B = flavor_module("deepseek_v3", "16B"), flavor_module("deepseek_v3", "671B")
QWEN_MOE, GPT_OSS = flavor_module("qwen3", "30B-A3B"), flavor_module("gpt_oss", "20b")
SCOUT = flavor_module("llama4", "17bx16e")
BOTH, TOML, FLAGS = ("0.2", "0.3"), ("0.2",), ("0.3",)

# By name, with the versions that can be told.
LAUNCHES: dict[str, tuple[Launch, tuple[str, ...]]] = {
    "fsdp": (launch(LLAMA_8B, 8, 8192, 64, zero=3, recompute="selective"), BOTH),
    "fsdp-2": (launch(LLAMA_8B, 8, 8192, 64, zero=2, recompute="full"), BOTH),
    "ddp": (launch(LLAMA_8B, 16, 4096, 64, zero=0), BOTH),
    "alone": (launch(LLAMA_8B, 1, 4096, 8, zero=0), BOTH),
    "hsdp": (launch(LLAMA_8B, 64, 4096, 256, zero=3, replica=4), BOTH),
    "tp": (launch(LLAMA_70B, 64, 8192, 64, tp=8, zero=3, recompute="full"), BOTH),
    "async-tp": (launch(LLAMA_70B, 64, 8192, 64, tp=8, zero=3, recompute="full", overlap=("tp",)), BOTH),
    "tp-alone": (launch(LLAMA_8B, 8, 4096, 16, tp=4, zero=3, sequence_parallel=False), FLAGS),
    "tp-without-shards": (launch(LLAMA_8B, 8, 4096, 16, tp=8, zero=0), FLAGS),
    "cp": (launch(LLAMA_8B, 32, 131072, 16, cp=8, zero=3, recompute="full"), BOTH),
    "pp": (launch(LLAMA_70B, 64, 8192, 256, tp=4, pp=4, zero=2, micro_batch=2), BOTH),
    "gpipe": (launch(LLAMA_70B, 64, 8192, 256, tp=4, pp=4, zero=2, schedule="gpipe"), BOTH),
    "vpp": (launch(LLAMA_70B, 64, 8192, 128, tp=4, cp=2, pp=4, vpp=5, zero=3, recompute="full"), BOTH),
    "hsdp-pp": (launch(LLAMA_70B, 128, 8192, 256, tp=4, pp=4, replica=2, zero=3), BOTH),
    "uneven": (launch(LLAMA_70B, 64, 4096, 512, tp=8, pp=4, zero=2, stages=spans(19, 21, 21, 19)), BOTH),
    "usual-uneven": (
        launch(LLAMA_405B, 256, 8192, 256, tp=8, pp=16, zero=2, dtype="fp8", stages=even_stages(126, 16)),
        BOTH,
    ),
    "one-less": (launch(LLAMA_8B, 16, 4096, 64, pp=2, zero=2, stages=spans(15, 17)), BOTH),
    "bf16-405b": (launch(LLAMA_405B, 256, 8192, 256, tp=8, zero=3, recompute="full"), TOML),
    "fp8": (launch(LLAMA_70B, 64, 8192, 64, tp=4, zero=3, dtype="fp8"), TOML),
    "float32": (launch(LLAMA_8B, 8, 4096, 64, zero=3, dtype="float32"), BOTH),
    "qwen": (launch(QWEN_32B, 32, 4096, 64, tp=4, zero=3, recompute="full"), BOTH),
    "moe": (launch(DEEPSEEK_16B, 32, 4096, 128, ep=8, zero=3, recompute="selective"), BOTH),
    "moe-fp8": (launch(DEEPSEEK_671B, 256, 4096, 1024, ep=64, pp=4, zero=2, dtype="fp8"), BOTH),
    "moe-etp": (launch(SCOUT, 64, 8192, 64, tp=4, ep=8, etp=4, zero=3), TOML),
    "moe-deepep": (launch(QWEN_MOE, 64, 4096, 128, ep=16, zero=3, dispatch="node_level"), TOML),
    "moe-folded": (launch(DEEPSEEK_671B, 128, 4096, 256, tp=4, pp=4, vpp=2, ep=16, zero=3), BOTH),
    "gpt-oss": (launch(GPT_OSS, 16, 8192, 32, ep=8, zero=3, recompute="full"), BOTH),
    "qwen-pp": (launch(QWEN_32B, 32, 4096, 64, tp=2, pp=4, zero=2), FLAGS),
}  # fmt: skip
