"""What one GPU has to say: its speed, a profile of a decoder and of a vision tower, and plans that really ran on it.

Each part runs whatever became of the others; a failure is a result too. After every part all that is known is written:
the device profile `<device>.yaml` (with its journal), `raw.json`, `summary.txt`, and a trace of the longest run.
"""

import argparse
import platform
import random
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import torch

from benchmarks import on_gpu_layouts as layouts
from benchmarks.on_gpu_jobs import one_rank_job, run
from benchmarks.on_gpu_kernels import kernel_rates, on_one_rank, rank_memory, seconds_of
from benchmarks.on_gpu_session import Session
from planner import files
from planner.launch.processes import launch
from planner.launch.worker import Worker, joined_world
from planner.profiling import ProfileOptions, device_name, profile
from planner.profiling.fsdp_without_communication import COMPUTE_DTYPES
from planner.profiling.measurement import Measurement, elapsed_seconds
from planner.profiling.measurement_context import processor_text, versions
from planner.profiling.module_bench import ModuleBench
from planner.runtime import RunOptions
from planner.specs import library
from planner.specs.base import with_fields
from planner.specs.hardware.profile import PassFit, Profile
from planner.specs.layers import Module
from planner.specs.model import Model
from planner.specs.parallelism import Dtype, Parallelism
from planner.units import MS, percent

SEED = 0
ROUNDS = 5


# ------------------------------------------------------------------------------------------------- speed of the device


def speed(session: Session) -> dict[str, float]:
    """Matrix products and copies, the best of a few: what a data sheet calls peak."""
    found: dict[str, float] = on_one_rank(session, peaks)
    for name, value in found.items():
        session.say(f"  {name:<16} {value:10.1f}")
    return found


def peaks(device: torch.device) -> dict[str, float]:
    found = {f"{name}_tflops": matrix_tflops(dtype, device) for name, dtype in COMPUTE_DTYPES.items()}
    found["copy_gb_per_s"] = copy_gb_per_s(device)
    if device.type == "cuda":
        found["memory_gib"] = torch.cuda.mem_get_info()[1] / 2**30
    return found


def matrix_tflops(dtype: torch.dtype, device: torch.device) -> float:
    size = 8192 if device.type == "cuda" else 512
    a, b = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    return 2 * size**3 / min(seconds_of(lambda: a @ b, device, 1) for _ in range(10)) / 1e12


def copy_gb_per_s(device: torch.device) -> float:
    """Bytes read and written."""
    block = torch.empty(2**30 if device.type == "cuda" else 2**26, dtype=torch.uint8, device=device)
    other = torch.empty_like(block)
    return 2 * block.nbytes / min(seconds_of(lambda: other.copy_(block), device, 1) for _ in range(10)) / 1e9


# ------------------------------------------------------------------------------------------------------------- profile


def decoder(session: Session) -> Model:
    name = "llama-3-8b" if session.kind == "cuda" else "tiny-decoder"
    return library.read_named(name, Model)[0]


def tower(session: Session) -> Model:
    """A vision tower, with attention over whole images."""
    model = library.read_named("qwen2.5-vl-7b" if session.kind == "cuda" else "tiny-vit", Model)[0]
    whole = with_fields(model.modules["vision"], window=None, full_layers=())
    return with_fields(model, modules={"vision": whole}, edges=())


def measure(session: Session, model: Model) -> Any:
    """Profile a model into the session's device profile."""
    base = library.read_named(session.device, Profile)[0]
    options = ProfileOptions(1, session.dtype, session.quick)
    measured = profile(model.name, model, base, options, session.profile_path)
    for name in model.modules:
        costs = measured.modules[f"{model.name}/{name}"]
        session.say(f"  {model.name}/{name}: {costs.measured_at}; spread {percent(costs.spread)}")
        for part, passes in (("layer", costs.layer), ("ends", costs.ends)):
            if passes and passes.forward and passes.backward and passes.holdout_error is not None:
                session.say(
                    f"    {part:<6} forward {said(passes.forward)}, backward {said(passes.backward)}, "
                    f"keeps {passes.activation_kib_per_token:g} KiB a token, held out {percent(passes.holdout_error)}"
                )
        for how, made in costs.recomputing.items():
            kept = f"keeps {made.activation_kib_per_token:g} KiB a token"
            session.say(f"    recompute {how}: backward {said(made.backward or PassFit())}, {kept}")
        session.say(f"    update {costs.update_ns_per_parameter:g} ns a parameter")
    return files.read(session.profile_path, Profile).modules


def said(fit: PassFit) -> str:
    return f"{fit.ms_per_token2:.3g} Σs² + {fit.ms_per_token:.3g} Σs + {fit.ms:.3g} ms"


# ------------------------------------------------------------------------------------ sizes that the profile never saw


def unseen(session: Session) -> list[dict[str, Any]]:
    """Layers and ends of the decoder on batches that are not in the grid, predicted and measured."""
    model = decoder(session)
    ((name, spec),) = model.modules.items()
    costs = files.read(session.profile_path, Profile).modules[f"{model.name}/{name}"]
    pieces = [Measurement("", kind, sizes, 0) for sizes in mixed_batches(session) for kind in ("layer", "ends")]
    (found,) = launch(unseen_rank, 1, spec, session.dtype, pieces, kind=session.kind)
    rows = []
    for piece, times in zip(pieces, found, strict=True):
        passes, layers = (costs.layer, 2) if piece.kind == "layer" else (costs.ends, 1)
        assert passes is not None
        for way, fit, measured in zip(("F", "B"), (passes.forward, passes.backward), times, strict=True):
            expected = layers * predicted(fit or PassFit(), piece.sizes)
            row = {"kind": piece.kind, "pass": way, "sizes": piece.sizes, "predicted_s": expected}
            rows.append({**row, "measured_s": measured, "error": expected / measured - 1})
    for kind in ("layer", "ends"):
        errors = [abs(row["error"]) for row in rows if row["kind"] == kind]
        session.say(f"  {kind}: median error {percent(median(errors))}, worst {percent(max(errors))}")
    return rows


def mixed_batches(session: Session) -> list[tuple[int, ...]]:
    """Documents of log-normal lengths, packed."""
    numbers, scale = random.Random(SEED), 4 if session.kind == "cuda" else 0.25
    batches = []
    for total in (700, 1500, 3000, 6000):
        lengths: list[int] = []
        while sum(lengths) < total * scale:
            lengths.append(max(16, int(scale * numbers.lognormvariate(6.0, 1.0))))
        batches.append(tuple(lengths))
    return batches


def predicted(fit: PassFit, sizes: tuple[int, ...]) -> float:
    return (fit.ms_per_token2 * sum(s * s for s in sizes) + fit.ms_per_token * sum(sizes) + fit.ms) * MS


def unseen_rank(worker: Worker, spec: Module, dtype: Dtype, pieces: list[Measurement]) -> list[list[float]]:
    """Median seconds of the passes of every piece."""
    with joined_world(worker):
        bench = ModuleBench(spec, dtype, worker.device)
        rounds = [
            [[elapsed_seconds([span], 1) for span in bench.run(piece)] for piece in pieces] for _ in range(ROUNDS + 1)
        ]
        return [[median(times) for times in zip(*samples, strict=True)] for samples in zip(*rounds[1:], strict=True)]


# --------------------------------------------------------------------------------------------------------------- plans


def correct(session: Session, name: str) -> dict[str, Any]:
    """A tiny model in float32, held against one process."""
    job = one_rank_job(session, library.read_named(name, Model)[0], Parallelism(zero=3, dtype="float32"), 1024, 200)
    return run(session, job, RunOptions(steps=2, verify=True))


def few_layers(session: Session) -> Model:
    """Some layers of the profiled decoder, priced like all of them."""
    whole = decoder(session)
    ((module, spec),) = whole.modules.items()
    few = with_fields(whole, name=f"{whole.name}-4-layers", modules={module: with_fields(spec, layers=4)})
    known = files.read(session.profile_path, Profile)
    alias = {f"{few.name}/{module}": known.modules[f"{whole.name}/{module}"]}  # costs are per layer
    files.write(session.scratch / "profile.yaml", with_fields(known, modules=known.modules | alias))
    return few


def timed(session: Session) -> dict[str, Any]:
    """They train for some steps."""
    job = layouts.job_of(session, few_layers(session), Parallelism(zero=3, dtype=session.dtype))
    return run(session, job, RunOptions(steps=6))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--quick", action="store_true", help="a coarse grid")
    chosen = parser.parse_args()
    with TemporaryDirectory() as scratch:
        everything(Session(chosen.folder, Path(scratch), chosen.device, chosen.quick, device_name(chosen.device)))


def everything(session: Session) -> None:
    session.say(f"{processor_text(session.kind)}, Python {platform.python_version()}, torch {versions()['torch']}")
    session.results["machine"] = {
        "name": processor_text(session.kind),
        "versions": versions(),
        "cuda": torch.version.cuda,
    }
    session.part("speed", speed)
    session.part("memory outside of the allocator", rank_memory)
    session.part("rates of kernels", kernel_rates)
    session.part("profile a decoder", lambda s: measure(s, decoder(s)))
    session.part("profile a vision tower", lambda s: measure(s, tower(s)))
    session.part("sizes that the profile never saw", unseen)
    session.part("a tiny decoder is right", lambda s: correct(s, "tiny-decoder"))
    session.part("a tiny vision tower is right", lambda s: correct(s, "tiny-vit"))
    session.part("kernels are right", layouts.kernels)
    session.part("every kind of layer is right", layouts.right)
    session.part("train a few layers of the decoder", timed)
    session.part("recompute", lambda s: layouts.recomputed(s, few_layers(s)))
    session.part("offload", lambda s: layouts.offloaded(s, few_layers(s)))
    session.part("resume", lambda s: layouts.resumed(s, few_layers(s)))


if __name__ == "__main__":
    main()
