"""Times modules on shares of this device: alone on each, and in pairs side by side; and a copy, which only streams.

Subjects are short stacks of a module's layers over few and many tokens, forward and backward. Pairs are on halves. A
layer over hardly any tokens is timed too, alone and beside its like: how many threads launch at the same time.
"""

import os
from collections.abc import Callable, Sequence
from datetime import date
from itertools import combinations_with_replacement
from pathlib import Path

import torch

from planner import files
from planner.callbacks import OnProgress, silent
from planner.errors import InputError
from planner.launch import Worker, launch
from planner.models import build, init_weights
from planner.models.inputs import synthetic_batch
from planner.models.layers import PositionEncoding
from planner.profiling.device_parts import Call, require_shares, seconds_on_parts
from planner.profiling.fsdp_without_communication import COMPUTE_DTYPES, LayerStack
from planner.profiling.measure_profile import unsupported
from planner.profiling.measurement_context import processor_text, versions
from planner.profiling.measurement_grid import STACK_LAYERS
from planner.profiling.shares_fit import SharedPairTime, Subject, fit_shares
from planner.specs.base import with_fields
from planner.specs.hardware.profile import DeviceShares, Profile, Provenance
from planner.specs.layers import Module
from planner.specs.model import Model
from planner.specs.parallelism import Dtype

COPY = "copy"
COPIED_BYTES = {"cpu": 128 * 2**20, "cuda": 2**30}  # more than caches hold
TOKENS = {"cpu": 512, "cuda": 4096}  # of a subject
FEWEST_TOKENS = 16  # of a subject that the host is slower at than the device
LEAST_S = {"cpu": 0.5, "cuda": 0.3}  # of each timing
ROUNDS = 3  # of which the least counts
APART = 1.5  # times the passes of one thread, from which two launch at the same time


def profile_shares(
    model: Model, base: Profile, shares: Sequence[float], dtype: Dtype, target: Path, on_progress: OnProgress = silent
) -> Profile:
    """The profile at `target`, or else `base`, with what modules take on shares of the device; written there. Raises
    InputError.
    """
    if not {0.5, 1.0} <= {*shares}:
        message = "pairs are timed on halves, and all is compared with the whole device"
        raise InputError(message, where="--shares", fix="0.5 and 1 among them")
    specs = {f"{model.name}/{name}": spec for name, spec in model.modules.items() if not unsupported(spec)}
    if not specs:
        raise InputError(f"no module of {model.name} can be timed", where="MODEL", fix="profile another model")
    # A thread that waits for others of its call is not to spin: what it waits would count as CPU time
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    (found,) = launch(
        shares_rank,
        1,
        specs,
        base.name,
        tuple(shares),
        dtype,
        on_message=lambda _, message: on_progress(*message),
        kind=base.device.kind,
    )
    before = files.read(target, Profile) if target.exists() else base
    provenance = Provenance(
        source="measured by planner profile",
        date=date.today().isoformat(),
        machine=processor_text(base.device.kind),
        versions=versions(),
        note=before.provenance.note if before is not base else "shares of the device alone",
    )
    result = with_fields(before, provenance=provenance, shares=found)
    files.write(target, result)
    return result


def shares_rank(
    worker: Worker, specs: dict[str, Module], name: str, shares: Sequence[float], dtype: Dtype
) -> DeviceShares:
    """What `measure_shares` finds, in a process of its own."""
    require_shares(shares, worker.device)
    return measure_shares(specs, name, shares, dtype, worker.device, lambda *done: worker.report(done))


def measure_shares(
    specs: dict[str, Module],
    name: str,
    shares: Sequence[float],
    dtype: Dtype,
    device: torch.device,
    on_progress: OnProgress = silent,
) -> DeviceShares:
    """Times of subjects alone and in pairs, and what follows from them for the device called `name`."""
    kind, half = device.type, (0.5, 0.5)
    subjects = [Subject(COPY), *(Subject(module, TOKENS[kind]) for module in specs)]
    small = next((Subject(module, FEWEST_TOKENS) for module in specs), Subject(COPY))
    alone = [(subject, share) for subject in subjects for share in sorted(shares, reverse=True)]
    beside = [*combinations_with_replacement(subjects, 2)]
    total, done = ROUNDS * (len(alone) + len(beside) + 2), 0
    least: dict[tuple[tuple[Subject, ...], tuple[float, ...]], list[float]] = {}
    for _ in range(ROUNDS):  # in turn, so that a disturbance affects many a little
        cases = [*(((s,), (q,)) for s, q in alone), *((pair, half) for pair in beside)]
        for which, parts in [*cases, ((small,), (0.5,)), ((small, small), half)]:
            on_progress(done, total, " beside ".join(each.text for each in which))
            makers = [maker(each, specs, dtype, device) for each in which]
            found = seconds_on_parts(makers, parts, device, LEAST_S[kind])
            least[which, parts] = [*map(min, zip(found, least.get((which, parts), found), strict=True))]
            done += 1
    (launched,), together = least[(small,), (0.5,)], least[(small, small), half]
    apart = sum(launched / each for each in together) >= APART
    return fit_shares(
        {(subject, share): least[(subject,), (share,)][0] for subject, share in alone},
        [SharedPairTime(pair, half, tuple(least[pair, half])) for pair in beside],  # type: ignore[arg-type]
        [COPY],
        name,
        2 if apart else 1,
    )


def maker(subject: Subject, specs: dict[str, Module], dtype: Dtype, device: torch.device) -> Callable[[], Call]:
    """What makes the call of a subject, in the thread that will time it."""
    if subject.module == COPY:
        return lambda: copy_call(device)
    return lambda: passes_call(specs[subject.module], subject.tokens, dtype, device)


def copy_call(device: torch.device) -> Call:
    """A copy of a large tensor."""
    source = torch.ones(COPIED_BYTES[device.type] // 4, device=device)
    target = torch.empty_like(source)
    return lambda: target.copy_(source)


def passes_call(spec: Module, tokens: int, dtype: Dtype, device: torch.device) -> Call:
    """A forward and a backward of a short stack of a module's layers over one item."""
    number = COMPUTE_DTYPES[dtype]
    outside = with_fields(spec, layers=0)
    stack = LayerStack(spec, STACK_LAYERS, number, device)
    ends = build(outside, dtype=number, device=device)
    for each in (stack, ends):
        init_weights(each, 0)
    batch = synthetic_batch(outside, [(0, tokens)], 0, device=device)
    x = torch.randn(len(batch.positions), spec.hidden, dtype=number, device=device, requires_grad=True)
    places: PositionEncoding | None = ends.position_encoding(x, batch)
    ones = torch.ones_like(x)

    def passes() -> None:
        stack(x, places, batch).backward(ones)

    return passes
