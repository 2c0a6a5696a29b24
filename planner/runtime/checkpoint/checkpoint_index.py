"""The checkpoint folder: an index, and beside it what each rank wrote. Importing this loads no torch. Ranks that
resume share its files, and each reads some of them whole, to see that they have the bytes that were saved.

    FOLDER/checkpoint.yaml                 the index (planner.checkpoint/1): written last, by one rename
    FOLDER/states-a/rank-3.safetensors     tensors of the checkpoint in the index; the next one becomes states-b

So a folder always has its last complete checkpoint, and one without an index has none. A file has shards of tensors
under `module/kind/` and their names in the model zoo, and says which region of the full tensor each is: ranks of any
other layout find in it what they hold.

torch.distributed.checkpoint is not used. Its index is a pickle, so that reading a damaged or foreign one runs whatever
it says; it has no digests, by which a torn or overwritten file is noticed; it unshards DTensors, which shards of tp and
of experts, some of them in several sections, are not here; and only it can read its files.
"""

import hashlib
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import ClassVar, Literal

from planner import files
from planner.errors import InputError
from planner.files import path_exists, plain_name, require_regular
from planner.launch import Worker
from planner.plan.plan_file import Plan
from planner.runtime.run_options import LearningRateSchedule, RunOptions
from planner.specs.base import Count, Name, Spec
from planner.specs.layers import Module
from planner.specs.parallelism import Dtype
from planner.specs.workload.loss_weighting import LossWeighting
from planner.specs.workload.sample_folder import CLIPS, IMAGES, media_files
from planner.specs.workload.token_folder import OFFSETS, TOKENS

INDEX_FILE = "checkpoint.yaml"
TensorKind = Literal["weights", "exp_avg", "exp_avg_sq", "step"]  # step: number of updates of each parameter so far
OPTIMIZER_KINDS: tuple[TensorKind, ...] = ("exp_avg", "exp_avg_sq", "step")  # optimizer state
TENSOR_KINDS: tuple[TensorKind, ...] = ("weights", *OPTIMIZER_KINDS)
StatesFolder = Literal["states-a", "states-b"]
OTHER_STATES_FOLDER: dict[StatesFolder, StatesFolder] = {"states-a": "states-b", "states-b": "states-a"}
NEW_STATES = "states-new"  # folder of the files until all ranks have written theirs
UNACCEPTED = "unaccepted"  # in a folder of tensors until the index names it: what a kill leaves so may be replaced
SUFFIX = ".safetensors"
READ_BYTES = 2**20  # read at once


class TrainingRecord(Spec, kw_only=True):
    """The fields of `TrainingOptions`."""

    learning_rate: float
    schedule: LearningRateSchedule
    warmup: int
    clip: float | None
    betas: tuple[float, float]
    decay: float


class CheckpointFile(Spec, kw_only=True):
    """`planner.checkpoint/1`: how many steps are done, and the options that a resumed run must share."""

    FORMAT: ClassVar[str] = "planner.checkpoint/1"
    format: str
    states: StatesFolder  # folder of the tensors, beside this file
    digests: dict[str, str]  # SHA-256 of each file of tensors, by its name
    plan: str  # digest of the plan that wrote it; another one of the same model may resume
    steps: Count  # done: a resumed run begins with the next one's items and learning rate
    total: Count  # planned length of the run, at which learning rate schedules end
    seed: int  # of weights and synthetic items: nothing else in training is random
    data: str | None = None  # digest of the data; None: synthetic items
    dtypes: dict[Name, Dtype]  # by module
    training: TrainingRecord
    loss: LossWeighting = "token"
    models: dict[Name, Module]


def read_index(folder: Path) -> CheckpointFile:
    """Reads the index of a checkpoint. Raises InputError when there is none, or it is invalid."""
    if not path_exists(folder / INDEX_FILE, f"--resume {folder}"):
        message = f"this is no checkpoint: there is no {INDEX_FILE}"
        fix = "name a folder that `planner run --save` wrote"
        raise InputError(message, where=f"--resume {folder}", fix=fix)
    index = files.read(folder / INDEX_FILE, CheckpointFile)
    for name in index.digests:
        plain_name(name, f"{folder / INDEX_FILE} (digests)")
    return index


def saved_steps(folder: Path | None) -> int | None:
    """Steps of the checkpoint in a folder; None: there is none. Raises InputError where its index is invalid."""
    if folder is None or not path_exists(folder / INDEX_FILE, str(folder)):
        return None
    return read_index(folder).steps


@dataclass(frozen=True, slots=True)
class SavedStates:
    """What was written of a run's state: after so many steps, in which folder, with which digests."""

    steps: int
    folder: StatesFolder
    digests: dict[str, str]


def checkpoint_index(plan: Plan, options: RunOptions, saved: SavedStates, data: str | None = None) -> CheckpointFile:
    """The index of what was saved of a run; `data`: digest of its data."""
    return CheckpointFile(
        format=CheckpointFile.FORMAT,
        states=saved.folder,
        digests=saved.digests,
        plan=hashlib.sha256(files.json_text(plan).encode()).hexdigest()[:16],
        steps=saved.steps,
        total=options.step_count(plan),
        seed=options.seed,
        data=data,
        dtypes=module_dtypes(plan, options),
        training=TrainingRecord(**asdict(options.training)),
        loss=plan.uses.loss,
        models={module: plan.uses.models[module] for module in plan.layouts},
    )


def saved_kinds(module: Module) -> tuple[TensorKind, ...]:
    """The tensors that are saved of a module: one that is frozen has no optimizer states."""
    return ("weights",) if module.trained == "none" else TENSOR_KINDS


def shard_file(rank: int) -> str:
    """Name of the file with the shards that a rank wrote."""
    return f"rank-{rank}{SUFFIX}"


def shard_prefix(module: str, kind: TensorKind) -> str:
    """What names of tensors of one kind of a module begin with."""
    return f"{module}/{kind}/"


def module_dtypes(plan: Plan, options: RunOptions) -> dict[str, Dtype]:
    """The dtype of each module, with that of the options if they have one."""
    return {module: options.dtype or layout.dtype for module, layout in plan.layouts.items()}


def data_digest(options: RunOptions) -> str | None:
    """Digest of where samples and media begin, and of size, first and last bytes of their values. Raises InputError."""
    if options.data is None:
        return None
    digest = hashlib.sha256()
    for name in (OFFSETS, TOKENS, *media_files(options.data)):
        path = options.data / name
        try:
            for block in file_blocks(path, ends_only=name in (TOKENS, IMAGES.values, CLIPS.values)):
                digest.update(block)
        except OSError as error:
            message = f"cannot read the tokens: {error.strerror}"
            raise InputError(message, where=str(path), fix="check the path") from error
    return digest.hexdigest()[:16]


def file_blocks(path: Path, ends_only: bool = False) -> Iterator[bytes]:
    """Blocks of a file; with `ends_only` its size, first and last block. Raises OSError, and InputError for no file."""
    require_regular(path)
    with path.open("rb") as raw:
        if ends_only:
            size = os.fstat(raw.fileno()).st_size
            yield f"{size} bytes".encode()
            yield raw.read(READ_BYTES)
            raw.seek(max(0, size - READ_BYTES))
        while block := raw.read(READ_BYTES):
            yield block


class DamagedCheckpoint(InputError):
    """A checkpoint is not what was saved."""


def require_intact(worker: Worker, folder: Path | None) -> None:
    """Raises DamagedCheckpoint on a rank that finds a file with other bytes than the index in `folder` says."""
    if folder is None:
        return
    index = read_index(folder)
    for name in sorted(index.digests)[worker.rank :: worker.world_size]:
        file = folder / index.states / name
        if file_digest(file) != index.digests[name]:
            fix = f"resume from another copy; or, to train on what is there, write its sha256sum into {INDEX_FILE}"
            raise DamagedCheckpoint("the file has other bytes than were saved: it is damaged", where=str(file), fix=fix)


def file_digest(file: Path) -> str:
    """SHA-256 of a file. Raises InputError."""
    digest = hashlib.sha256()
    try:
        for block in file_blocks(file):
            digest.update(block)
    except OSError as error:
        raise InputError(f"cannot read the file: {error.strerror}", where=str(file), fix="check the path") from error
    return digest.hexdigest()
