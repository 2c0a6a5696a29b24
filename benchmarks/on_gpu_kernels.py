"""What kernels reach on one GPU, and what a process takes of its memory: each part in a rank of its own, so that the
launching process makes no CUDA context, which would count as the ranks'.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

from benchmarks.on_gpu_session import Session
from planner.launch.processes import launch
from planner.launch.worker import Worker, joined_world
from planner.models.kernels.attention import packed_attention
from planner.models.kernels.attention_tiles import Masking
from planner.units import GIB

TOKENS = 16384
# Inputs and outputs of products: a decoder's, a small tower's, and such with rows that do not end at 16 bytes.
PRODUCTS = (
    (4096, 4096),
    (4096, 6144),
    (4096, 14336),
    (14336, 4096),
    (4096, 128256),
    (1280, 1280),
    (1280, 3840),
    (1280, 3420),
    (1280, 3424),
    (1280, 3456),
    (3420, 1280),
    (3424, 1280),
    (4096, 4092),
    (4096, 4095),
)
HEAD_DIMS = (64, 80, 96, 128)
LENGTHS = (512, 2048, 8192, 32768)
HEADS = 16


def on_one_rank(session: Session, body: Callable[..., Any], *args: Any) -> Any:
    """What `body(device, *args)` returns in a rank of its own."""
    return launch(joined, 1, body, *args, kind=session.kind)[0]


def joined(worker: Worker, body: Callable[..., Any], *args: Any) -> Any:
    with joined_world(worker):
        return body(worker.device, *args)


def seconds_of(call: Callable[[], Any], device: torch.device, calls: int = 8) -> float:
    """Seconds of a call among others like it, behind as many to warm up."""
    if device.type == "cpu":  # a trial of this program
        began = time.perf_counter()
        call()
        return time.perf_counter() - began
    for _ in range(calls):
        call()
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    first.record()
    for _ in range(calls):
        call()
    last.record()
    last.synchronize()
    return first.elapsed_time(last) * 1e-3 / calls


# ------------------------------------------------------------------------------------------------------------- kernels


def kernel_rates(session: Session) -> list[dict[str, Any]]:
    """Matrix products, attention and pointwise operations in bf16, on random numbers, each among others like it."""
    tokens = TOKENS if session.kind == "cuda" else 64
    found = on_one_rank(session, timed_kernels, tokens)
    for row in found:
        session.say("  " + ", ".join(f"{name} {value}" for name, value in row.items()))
    return found  # type: ignore[no-any-return]


def timed_kernels(device: torch.device, tokens: int) -> list[dict[str, Any]]:
    rows = [product(device, tokens, *shape) for shape in (PRODUCTS if device.type == "cuda" else PRODUCTS[:1])]
    rows += [
        attention(device, length, 2 * tokens, width, causal)
        for width in HEAD_DIMS
        for length in LENGTHS
        if length <= 2 * tokens
        for causal in (True, False)
    ]
    return rows + pointwise(device, tokens)


def product(device: torch.device, tokens: int, inputs: int, outputs: int) -> dict[str, Any]:
    """TFLOP/s of a linear layer: forward, gradients of inputs, gradients of weights."""
    x, w, y = (
        torch.randn(shape, device=device).bfloat16()
        for shape in ((tokens, inputs), (outputs, inputs), (tokens, outputs))
    )
    work = 2.0 * tokens * inputs * outputs / 1e12
    calls = {"forward": lambda: x @ w.T, "inputs": lambda: y @ w, "weights": lambda: y.T @ x}
    rates = {name: round(work / seconds_of(call, device), 1) for name, call in calls.items()}
    return {"product": f"{inputs} to {outputs}", **rates}


def attention(device: torch.device, length: int, tokens: int, width: int, causal: bool) -> dict[str, Any]:
    """TFLOP/s of the attention that the runtime uses: forward, and backward with two and a half times its work."""
    q, k, v = (torch.randn(tokens, HEADS, width, device=device).bfloat16().requires_grad_() for _ in range(3))
    ends = torch.arange(0, tokens + 1, length, dtype=torch.int32)
    out = packed_attention(q, k, v, ends, Masking(causal))
    gradient = torch.randn_like(out)
    work = 4.0 * (0.5 if causal else 1.0) * tokens * length * HEADS * width / 1e12
    forward = seconds_of(lambda: packed_attention(q, k, v, ends, Masking(causal)), device)
    backward = seconds_of(lambda: torch.autograd.grad(out, (q, k, v), gradient, retain_graph=True), device)
    rates = {"forward": round(work / forward, 1), "backward": round(2.5 * work / backward, 1)}
    return {"attention": f"heads of {width}, {length} tokens{', causal' if causal else ''}", **rates}


def pointwise(device: torch.device, tokens: int) -> list[dict[str, Any]]:
    """GB/s of what reads and writes memory, counting each tensor once."""
    a, b = (torch.randn(tokens, 14336, device=device).bfloat16() for _ in range(2))
    wide, weight = a.float(), torch.ones(14336, device=device).bfloat16()
    size = a.nbytes
    calls: dict[str, tuple[int, Callable[[], Tensor]]] = {
        "copy": (2 * size, partial(torch.clone, a)),
        "add": (3 * size, partial(torch.add, a, b)),
        "cast to float32": (3 * size, a.float),
        "cast to bf16": (3 * size, wide.bfloat16),
        "silu": (2 * size, partial(F.silu, a)),
        "rms norm": (2 * size, partial(F.rms_norm, a, (14336,), weight, 1e-6)),
        "softmax in float32": (4 * size, partial(torch.softmax, wide, 1)),
    }
    return [
        {"pointwise": name, "gb_per_s": round(n / seconds_of(call, device) / 1e9)} for name, (n, call) in calls.items()
    ]


# -------------------------------------------------------------------------------------------------------------- memory


def rank_memory(session: Session) -> dict[str, float]:
    """GiB of the device that a rank has beside its allocator's, after each thing that takes some."""
    found: dict[str, float] = on_one_rank(session, outside_allocator)
    for name, gib in found.items():
        session.say(f"  {name:<40} {gib:6.3f} GiB")
    return found


def outside_allocator(device: torch.device) -> dict[str, float]:
    found: dict[str, float] = {}
    if device.type == "cpu":
        return found

    def now(name: str) -> None:
        torch.cuda.synchronize()
        free, total = torch.cuda.mem_get_info(device)
        found[name] = (total - free - torch.cuda.memory_reserved(device)) / GIB

    now("a context, and NCCL joined")
    x = torch.randn(4096, 4096, device=device)
    now("a random tensor")
    half = x.bfloat16()
    _ = half @ half
    now("a product in bf16")
    _ = x @ x
    now("a product in float32")
    q = torch.randn(4096, 16, 128, device=device).bfloat16().requires_grad_()
    ends = torch.tensor([0, 2048, 4096], dtype=torch.int32)
    packed_attention(q, q, q, ends, Masking(True)).sum().backward()  # type: ignore[no-untyped-call]
    now("attention, both passes")
    dist.all_reduce(x)
    now("a sum over ranks")
    gathered = torch.empty(len(x) * dist.get_world_size(), 4096, device=device)
    dist.all_gather_into_tensor(gathered, x)
    dist.reduce_scatter_tensor(x, gathered)
    now("a gather and a reduction")
    parameter = torch.nn.Parameter(x)
    parameter.grad = torch.ones_like(x)
    torch.optim.AdamW([parameter], fused=True).step()
    now("an update")
    return found
