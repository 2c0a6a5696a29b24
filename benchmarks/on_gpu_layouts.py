"""What one GPU can show of the runtime's layouts and models: that each kind is right, and what recompute and offload
do to memory and time, beside what the plan said.
"""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from benchmarks.on_gpu_jobs import memory_lines, one_rank_job, prepared, run
from benchmarks.on_gpu_kernels import on_one_rank
from benchmarks.on_gpu_session import Session
from planner import files, pipeline
from planner.costs import pricing_of
from planner.models.kernels.attention import packed_attention
from planner.models.kernels.attention_tiles import Masking
from planner.plan.plan_file import OffloadedItem, Plan
from planner.runtime import RunOptions
from planner.scoring.offload_check import task_offloading
from planner.specs.base import with_fields
from planner.specs.job import Job
from planner.specs.layers import Audio, Decoder, Module, Vit
from planner.specs.layers.components import Experts, LatentAttentionShape
from planner.specs.model import Model
from planner.specs.parallelism import Parallelism, Recompute
from planner.units import GIB, duration, percent

DECODER = Decoder(layers=4, hidden=128, heads=8, kv_heads=4, ffn=384, vocab=2048)
KINDS: dict[str, Module] = {  # one of each kind of layer, small enough to be held against one process
    "experts": with_fields(DECODER, moe=Experts(experts=8, topk=2, ffn=128, shared_ffn=128, dense_layers=1)),
    "latent": with_fields(
        DECODER,
        kv_heads=None,
        latent=LatentAttentionShape(q_rank=64, kv_rank=32, rope_dim=8, nope_dim=16, value_dim=16),
    ),
    "window": with_fields(DECODER, window=64, full_every=2, qk_norm=True),
    "sinks": with_fields(DECODER, sinks=True, bias="qkv"),
    "windowed-tower": Vit(
        layers=2, hidden=128, heads=8, ffn=256, patch=4, merge=2, out=64, window=16, full_layers=(1,)
    ),
    "audio": Audio(layers=2, hidden=128, heads=8, ffn=256, mels=16, pool=2, out=64),
}
RECOMPUTES: tuple[Recompute, ...] = ("none", "selective", "full")
SHARES = (0.0, 0.5, 1.0)  # of the most that hides behind compute
UNKNOWN_GB_PER_S = 8.0  # to the host of a device that states none: only a trial of this program on a CPU


def right(session: Session) -> dict[str, Any]:
    """Each kind of layer in float32 against one process, and in bf16 for some steps."""
    found = {}
    for name, spec in KINDS.items():
        session.say(f"  {name}")
        job = one_rank_job(session, model_of(name, spec), Parallelism(zero=3, dtype="float32"), 1024, 200)
        found[name] = run(session, job, RunOptions(steps=2, verify=True))
        if session.kind == "cuda":
            job = one_rank_job(session, model_of(name, spec), Parallelism(zero=3, dtype="bf16"), 1024, 200)
            found[f"{name} bf16"] = run(session, job, RunOptions(steps=3, verify=True))
    return found


def recomputed(session: Session, few: Model) -> list[dict[str, Any]]:
    """The same steps with activations kept and made again: time and peak memory, predicted and measured."""
    rows = []
    for recompute in RECOMPUTES:
        wish = Parallelism(zero=3, dtype=session.dtype, recompute=recompute)
        rows.append(compared(session, f"recompute {recompute}", prepared(session, job_of(session, few, wish))))
    return rows


def offloaded(session: Session, few: Model) -> list[dict[str, Any]]:
    """The same steps with activations sent to the host: memory must fall, losses must stay."""
    plan, rows = prepared(session, job_of(session, few, Parallelism(zero=3, dtype=session.dtype))), []
    for share in SHARES:
        rows.append(compared(session, f"offload {share:g} of what hides", with_offload(plan, share)))
        same = max(abs(a / b - 1) for a, b in zip(rows[-1]["losses"], rows[0]["losses"], strict=True))
        session.say(f"    losses differ by {same:.1e} from those without")
    return rows


def resumed(session: Session, few: Model) -> dict[str, Any]:
    """Four steps, and two of them again from a checkpoint written behind the second: losses must stay."""
    plan = prepared(session, job_of(session, few, Parallelism(zero=3, dtype=session.dtype)))
    folder = session.scratch / "checkpoint"
    whole = pipeline.run(plan, RunOptions(steps=4, save=folder, save_every=2, keep=2), lambda _: None)
    half = folder / "kept" / "step-2"
    again = pipeline.run(plan, RunOptions(steps=4, resume=half), lambda _: None)
    same = max(abs(a / b - 1) for a, b in zip(again.losses[-2:], whole.losses[-2:], strict=True))
    session.say(f"  losses of the last two steps differ by {same:.1e}; {whole.losses} {again.losses}")
    return {"losses": whole.losses, "resumed": again.losses, "step_seconds": whole.step_seconds}


def compared(session: Session, name: str, plan: Plan) -> dict[str, Any]:
    ran = pipeline.run(plan, RunOptions(steps=4), lambda _: None)
    planned = max(max(score.memory.peaks) for score in pipeline.simulate(plan))
    session.say(
        f"  {name:<20} predicted {duration(ran.predicted_step_seconds or 0.0)}, measured {duration(ran.step_seconds)}; "
        f"peak predicted {planned / GIB:.2f}, measured {said(ran.peak_bytes)} GiB"
    )
    for line in memory_lines(ran):
        session.say(f"    {line}")
    return {
        "name": name,
        "predicted_step_seconds": ran.predicted_step_seconds,
        "step_seconds": ran.step_seconds,
        "predicted_peak_bytes": planned,
        "peak_bytes": ran.peak_bytes,
        "memory_bytes": [asdict(rank) for rank in ran.memory],
        "losses": ran.losses,
    }


def said(peak_bytes: float | None) -> str:
    return "no" if peak_bytes is None else f"{peak_bytes / GIB:.2f}"


def with_offload(plan: Plan, share: float) -> Plan:
    """Every item's activations offloaded by this share of what hides."""
    devices = {
        name: with_fields(device, host_gb_per_s=device.host_gb_per_s or UNKNOWN_GB_PER_S)
        for name, device in plan.uses.devices.items()
    }
    plan = with_fields(plan, uses=with_fields(plan.uses, devices=devices))
    tasks = [task for task in pipeline.simulate(plan)[0].tasks if task.phase == "F"]
    hidden = task_offloading(plan, pricing_of(plan), tasks[0])
    sizes = {item: size for task in tasks for item, size in zip(task.items, task.sizes, strict=True)}
    most = {item: hidden.largest_ratio(size) for item, size in sizes.items()}

    def pieces(entries: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(OffloadedItem(item=entry, offload=share * most[entry]) if share else entry for entry in entries)

    steps = tuple(
        with_fields(
            step,
            micro_batches=tuple(
                {group: pieces(entries) for group, entries in row.items() if not isinstance(entries, dict)}
                for row in step.micro_batches
            ),
        )
        for step in plan.steps
    )
    return with_fields(plan, steps=steps)


def job_of(session: Session, few: Model, wish: Parallelism) -> Path:
    """Of a model whose layers' costs lie in `profile.yaml`, beside the job."""
    tokens, middle = (16384, 2000) if session.kind == "cuda" else (1024, 200)
    job = one_rank_job(session, few, wish, tokens, middle)
    files.write(job, with_fields(files.read(job, Job), profile="./profile.yaml"))
    return job


def model_of(name: str, spec: Module) -> Model:
    return Model(format=Model.FORMAT, name=name, source="made for this benchmark", modules={"m": spec})


def kernels(session: Session) -> dict[str, Any]:
    """Half precision, by the kernels that this device has for it, against float32 of the same numbers."""
    found: dict[str, Any] = on_one_rank(session, half_precision_errors)
    for name, error in found.items():
        session.say(f"  attention, {name:<8} bf16 differs by {percent(error)} from float32")
    return found


def half_precision_errors(device: torch.device) -> dict[str, float]:
    lengths = torch.tensor((700, 20, 3000, 276))
    ends = torch.cat([torch.zeros(1), lengths.cumsum(0)]).int()
    generator = torch.Generator(device).manual_seed(0)
    q, k, v = (
        torch.randn(int(lengths.sum()), heads, 64, device=device, generator=generator).bfloat16() for heads in (8, 2, 2)
    )
    sinks = torch.randn(8, device=device, generator=generator).bfloat16()
    cases = {
        "causal": (Masking(True), None),
        "window": (Masking(True, 256), None),
        "whole": (Masking(False), None),
        "blocks": (Masking(False, 64), None),
        "sinks": (Masking(True), sinks),
    }
    found = {}
    for name, (masking, logits) in cases.items():
        got = packed_attention(q, k, v, ends, masking, logits).float()
        wide = q.float(), k.float(), v.float()
        exact = packed_attention(*wide, ends, masking, None if logits is None else logits.float())
        found[name] = ((got - exact).norm() / exact.norm()).item()
    return found
