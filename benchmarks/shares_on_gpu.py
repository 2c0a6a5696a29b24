"""Two towers on one device: alone on shares of it, in pairs, and a step of both in turn and side by side.

benchmarks/shares_on_gpu.sh has it write FOLDER/shares.json: what `planner profile --shares` finds, and the ratio of a
step in turn over one side by side on halves, its median and quartiles over rounds. Whatever it is, it was measured.
"""

import argparse
import json
import time
from pathlib import Path
from statistics import median, quantiles

import msgspec
import torch

from planner.profiling.device_parts import green_contexts, require_shares, seconds_on_parts
from planner.profiling.measure_shares import measure_shares, passes_call
from planner.specs.base import spec_of
from planner.specs.layers.decoder import Decoder
from planner.specs.layers.vit import Vit

TARGET = 1.05  # below which `best` proposes no shares on this device
SIZES = {"cuda": (1280, 2048, 4096), "cpu": (192, 256, 256)}  # hidden of the tower and of the decoder, tokens
SHARES = {"cuda": (0.25, 0.5, 0.75, 1.0), "cpu": (0.5, 1.0)}
ROUNDS = 7
LEAST_S = 0.2


def towers(kind: str) -> dict[str, object]:
    tower, hidden, _ = SIZES[kind]
    usual = {"layers": 2, "positions": "rope"}
    vision = {**usual, "hidden": tower, "heads": tower // 64, "ffn": 4 * tower, "patch": 14, "merge": 2, "out": hidden}
    decoder = {**usual, "hidden": hidden, "heads": hidden // 64, "ffn": 3 * hidden, "vocab": 64}
    return {"two/vision": spec_of(Vit, vision), "two/llm": spec_of(Decoder, decoder)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    asked = parser.parse_args()
    device = torch.device(asked.device, 0 if asked.device == "cuda" else None)
    specs, dtype = towers(device.type), "bf16" if device.type == "cuda" else "float32"
    require_shares(SHARES[device.type], device)
    began = time.perf_counter()
    found = measure_shares(specs, asked.device, SHARES[device.type], dtype, device)
    tokens, ratios = SIZES[device.type][2], []
    makers = [lambda spec=spec: passes_call(spec, tokens, dtype, device) for spec in specs.values()]
    for _ in range(ROUNDS):
        whole = [seconds_on_parts([make], (1.0,), device, LEAST_S)[0] for make in makers]
        beside = seconds_on_parts(makers, (0.5, 0.5), device, LEAST_S)
        ratios.append(sum(alone / together for alone, together in zip(whole, beside, strict=True)))
    low, _, high = quantiles(ratios, n=4)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    answer = {
        "device": name,
        "torch": torch.__version__,
        "green_contexts": green_contexts(),
        "shares": msgspec.to_builtins(found),
        "side_by_side_over_in_turn": {"median": median(ratios), "quartiles": [low, high], "rounds": ROUNDS},
        "reaches_target": median(ratios) >= TARGET,
        "seconds": time.perf_counter() - began,
    }
    (asked.folder / "shares.json").write_text(json.dumps(answer, indent=1) + "\n")
    print(json.dumps({key: value for key, value in answer.items() if key != "shares"}))


if __name__ == "__main__":
    main()
