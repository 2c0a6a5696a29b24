"""Writes shipped models from the config.json files of their repositories, so that both agree:
`python -m tests.write_models FOLDER`, where the folder has files such as Qwen--Qwen3-VL-8B-Instruct.json.
"""

import sys
from pathlib import Path
from typing import Any

from planner import files, hf
from planner.specs.base import with_fields
from planner.specs.layers.resize import SmartResize
from planner.specs.library import shipped_folder
from planner.specs.model import Model

QWEN3_PIXELS = SmartResize(min_pixels=65536, max_pixels=16777216)  # preprocessor_config.json of Qwen3-VL
MADE: dict[str, str] = {  # shipped name: repository
    "deepseek-v3": "deepseek-ai/DeepSeek-V3",
    "deepseek-v3.2": "deepseek-ai/DeepSeek-V3.2",
    "glm-5": "zai-org/GLM-5",
    "gpt-oss-120b": "openai/gpt-oss-120b",
    "gpt-oss-20b": "openai/gpt-oss-20b",
    "kimi-k2": "moonshotai/Kimi-K2-Instruct",
    "llama-3.1-405b": "meta-llama/Meta-Llama-3.1-405B",
    "llama-4-maverick": "meta-llama/Llama-4-Maverick-17B-128E-Instruct",
    "llama-4-scout": "meta-llama/Llama-4-Scout-17B-16E-Instruct",
    "minimax-m2.5": "MiniMaxAI/MiniMax-M2.5",
    "mixtral-8x22b": "mistralai/Mixtral-8x22B-v0.1",
    "mixtral-8x7b": "mistralai/Mixtral-8x7B-v0.1",
    "nemotron-h-56b": "nvidia/Nemotron-H-56B-Base-8K",
    "olmo-2-32b": "allenai/OLMo-2-0325-32B",
    "phi-4": "microsoft/phi-4",
    "qwen3-235b-a22b": "Qwen/Qwen3-235B-A22B",
    "qwen3-30b-a3b": "Qwen/Qwen3-30B-A3B",
    "qwen3-32b": "Qwen/Qwen3-32B",
    "qwen3-8b": "Qwen/Qwen3-8B",
    "qwen3-vl-30b-a3b": "Qwen/Qwen3-VL-30B-A3B-Instruct",
    "qwen3-vl-8b": "Qwen/Qwen3-VL-8B-Instruct",
    "qwen3.5-27b": "Qwen/Qwen3.5-27B",
    "qwen3.5-122b-a10b": "Qwen/Qwen3.5-122B-A10B",
}
TEXT_ALONE = {"llama-4-maverick", "llama-4-scout"}  # shipped without their towers


def shipped_model(name: str, config: Path) -> Model:
    """The model of a config.json, as it is shipped under this name."""
    imported = hf.read(config)
    modules: dict[str, Any] = dict(imported.model.modules)
    if name in TEXT_ALONE:
        imported = imported._replace(
            model=with_fields(imported.model, edges=(), modules={"llm": modules["llm"]}),
            notes=tuple(note for note in imported.notes if "vision_config" not in note.what and not note.parameters),
        )
        modules = dict(imported.model.modules)
    if "vision" in modules:
        modules["vision"] = with_fields(modules["vision"], resize=QWEN3_PIXELS)
    said = {note.what.partition(" {")[0] for note in imported.notes}
    left_out = sorted(what for what in said if not what.startswith("as usual for this kind"))
    source = f"config.json of {MADE[name]}" + (f"; left out, or otherwise: {', '.join(left_out)}" if left_out else "")
    return with_fields(imported.model, name=name, source=source, modules=modules)


def config_of(name: str, folder: Path) -> Path:
    """The config.json of a shipped model in this folder."""
    return folder / f"{MADE[name].replace('/', '--')}.json"


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    for name in MADE:
        if config_of(name, folder).is_file():
            files.write(shipped_folder() / "models" / f"{name}.yaml", shipped_model(name, config_of(name, folder)))
            print(f"written: {name}")
