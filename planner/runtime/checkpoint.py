"""A folder from which training goes on: an index, and beside it the tensors of all modules. It loads no torch.

    FOLDER/checkpoint.yaml                    the index (planner.checkpoint/1): written last, by one rename
    FOLDER/states-a/llm.weights.safetensors   of the checkpoint that it names; the next one becomes states-b

So a folder is never without its last whole checkpoint, and one without an index is none. Files hold whole parameters
under the zoo's own names, whatever the layout was, and anybody can read them. torch.distributed.checkpoint would know a
whole from DTensors alone, which parts of matrices and of experts are not here, and its files need it to be read.
"""

import hashlib
import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import ClassVar, Literal

from planner import files
from planner.errors import InputError
from planner.files.writable import stands
from planner.plan.model import Plan
from planner.runtime.options import RunOptions
from planner.runtime.training import Schedule
from planner.specs.base import Count, Name, Spec
from planner.specs.layers import Module
from planner.specs.parallelism import Dtype
from planner.specs.token_rows import OFFSETS, TOKENS

INDEX = "checkpoint.yaml"
Kind = Literal["weights", "exp_avg", "exp_avg_sq", "step"]  # step: updates of each parameter so far
STATES: tuple[Kind, ...] = ("exp_avg", "exp_avg_sq", "step")  # of the optimizer
KINDS: tuple[Kind, ...] = ("weights", *STATES)
Side = Literal["states-a", "states-b"]
OTHER: dict[Side, Side] = {"states-a": "states-b", "states-b": "states-a"}
PIECE = 2**20  # bytes that are read at once


class Trained(Spec, kw_only=True):
    """What `Training` says, all of it."""

    learning_rate: float
    schedule: Schedule
    warmup: int
    clip: float | None
    betas: tuple[float, float]
    decay: float


class CheckpointFile(Spec, kw_only=True):
    """`planner.checkpoint/1`: how far a run has come, and what it must be told to go on with the same numbers."""

    FORMAT: ClassVar[str] = "planner.checkpoint/1"
    format: str
    states: Side  # folder of the tensors, beside this file
    steps: Count  # done: a run goes on with the next one's items and learning rate
    total: Count  # that the run was to have: where schedules of its learning rate end
    seed: int
    data: str | None = None  # digest of its tokens; None: synthetic items
    dtypes: dict[Name, Dtype]  # by module
    training: Trained
    models: dict[Name, Module]


def read_index(folder: Path) -> CheckpointFile:
    """Raises InputError."""
    if not stands(folder / INDEX, f"--resume {folder}"):
        what, fix = f"this is no checkpoint: there is no {INDEX}", "name a folder that `planner run --save` wrote"
        raise InputError(what, where=f"--resume {folder}", fix=fix)
    return files.read(folder / INDEX, CheckpointFile)


def index_of(plan: Plan, options: RunOptions, steps: int, states: Side, data: str | None = None) -> CheckpointFile:
    """Of a run after so many steps, with the digest of its data."""
    return CheckpointFile(
        format=CheckpointFile.FORMAT,
        states=states,
        steps=steps,
        total=options.count(plan),
        seed=options.seed,
        data=data,
        dtypes=dtypes_of(plan, options),
        training=Trained(**asdict(options.training)),
        models={module: plan.uses.models[module] for module in plan.layouts},
    )


def tensors(states: Path, module: str, kind: Kind) -> Path:
    """The file of them in a folder of states."""
    return states / f"{module}.{kind}.safetensors"


def dtypes_of(plan: Plan, options: RunOptions) -> dict[str, Dtype]:
    return {module: options.dtype or layout.dtype for module, layout in plan.layouts.items()}


def data_of(options: RunOptions) -> str | None:
    """Digest of where the rows of its tokens begin, how many bytes these have, and the first and last of them. Raises
    InputError.
    """
    if options.data is None:
        return None
    made = hashlib.sha256()
    for name in (OFFSETS, TOKENS):
        path = options.data / name
        try:
            for piece in pieces(path, ends=name == TOKENS):
                made.update(piece)
        except OSError as error:
            message = f"cannot read the tokens: {error.strerror}"
            raise InputError(message, where=str(path), fix="check the path") from error
    return made.hexdigest()[:16]


def pieces(path: Path, ends: bool) -> Iterator[bytes]:
    """Of a file, one after the other; or its size, its first and its last. Raises OSError."""
    with path.open("rb") as raw:
        if ends:
            size = os.fstat(raw.fileno()).st_size
            yield f"{size} bytes".encode()
            yield raw.read(PIECE)
            raw.seek(max(0, size - PIECE))
        while piece := raw.read(PIECE):
            yield piece
