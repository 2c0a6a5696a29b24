"""A training as it is after a round, in one safetensors file: the learner, and the best line so far."""

from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from planner.errors import InputError
from planner.files import read_head, write_bytes
from planner.learning.actor_critic import ActorCritic
from planner.policies import Floats

Best = tuple[float, int, Floats]  # mean completion over the teacher's, after which round, and with which line
MOST_BYTES = 1 << 24


def store_training(path: Path, learner: ActorCritic, rounds: int, best: Best, plan: bytes) -> None:
    """Write what `stored_training` reads, in place of what was there; `plan`: the digest of what is trained."""
    ratio, of_best, line = best
    told = {"rounds": np.array([rounds, of_best], np.float64), "ratio": np.array([ratio]), "best": line}
    told["plan"] = np.frombuffer(plan, np.uint8)
    write_bytes(path, save({**learner.tensors(), **told}))


def stored_training(path: Path, learner: ActorCritic, new: Best, plan: bytes) -> tuple[int, Best]:
    """Take up the training of a file: rounds that were done, and the best so far; from the start where there is none.
    Raises InputError for another file, and that of another plan.
    """
    if not path.exists():
        return 0, new
    try:
        tensors = load(read_head(path, MOST_BYTES))
        if tensors["plan"].tobytes() != plan:
            raise ValueError("it is of other traces, GPUs or options")
        learner.take(tensors)
        rounds, of_best = (int(number) for number in tensors["rounds"])
        return rounds, (float(tensors["ratio"][0]), of_best, tensors["best"])
    except (SafetensorError, KeyError, ValueError, IndexError) as error:
        message = f"this is no training to go on with: {error}"
        raise InputError(message, where=str(path), fix="delete it, and train from the start") from None
