"""What was trained: a checkpoint from which training goes on, and of a decoder one that Hugging Face and `--weights`
read.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

import torch.distributed as dist

from planner import files
from planner.errors import InputError
from planner.models.pretrained import save_in_turn, saveable
from planner.models.safetensors import write_in_turn
from planner.plan.model import Plan
from planner.runtime.checkpoint import INDEX, KINDS, Kind, Side, index_of, read_index, tensors
from planner.runtime.executor import Executor
from planner.runtime.optimizers import states
from planner.runtime.stage import Stage
from planner.runtime.whole import Read, Turns
from planner.specs.model import Decoder

OTHER: dict[Side, Side] = {"states-a": "states-b", "states-b": "states-a"}


def save(executor: Executor, folder: Path, steps: int) -> None:
    """After so many steps. Every rank calls it; the first writes. Raises InputError."""
    executor.worker.begin("saving")
    if executor.worker.rank == 0:
        write_checkpoint(executor, folder, steps)
    else:
        for _, turns in every_tensor(executor):
            turns.send()
    save_decoder(executor, folder)
    dist.barrier()  # for whom it was saved it is there


def write_checkpoint(executor: Executor, folder: Path, steps: int) -> None:
    """On the first rank. What was there before stays until all is there."""
    side = spare(folder)
    shutil.rmtree(folder / side, ignore_errors=True)  # of one that was cut off
    for (module, kind), turns in every_tensor(executor):
        values = (tensor for _, tensor in turns)
        write_in_turn(tensors(folder, side, module, kind), turns.described, values)
    files.write(folder / INDEX, index_of(executor.local.plan, executor.local.options, steps, side))
    shutil.rmtree(folder / OTHER[side], ignore_errors=True)


def spare(folder: Path) -> Side:
    """Where no whole checkpoint lies."""
    try:
        return OTHER[read_index(folder).states]
    except InputError:  # there is none
        return "states-a"


def every_tensor(executor: Executor) -> Iterator[tuple[tuple[str, Kind], Turns]]:
    """Of every module, on all ranks in one order."""
    for module in executor.local.plan.layouts:
        for kind in KINDS:
            yield (module, kind), Turns(executor.local, module, reading(executor, module, kind))


def reading(executor: Executor, module: str, kind: Kind) -> Read:
    """Where a stage's tensors of this kind are."""
    return Stage.weights if kind == "weights" else lambda stage: states(executor.optimizers[module], stage, kind)


def save_decoder(executor: Executor, folder: Path) -> None:
    """config.json and model.safetensors of the plan's decoder, if it has one alone, and of a kind that has names there;
    over those that were there.
    """
    local, module = executor.local, decoder_of(executor.local.plan)
    if module is None:
        return
    turns = Turns(local, module, Stage.weights)
    if local.worker.rank == 0:
        save_in_turn(turns.described, turns, local.plan.uses.models[module], folder)
    else:
        turns.send()


def decoder_of(plan: Plan) -> str | None:
    decoders = [module for module in plan.layouts if isinstance(plan.uses.models[module], Decoder)]
    return decoders[0] if len(decoders) == 1 and saveable(plan.uses.models[decoders[0]]) else None
