"""A training after a round, in one safetensors file: networks, their optimizers, and the best policy so far."""

from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from planner.errors import InputError
from planner.files import read_head, write_bytes
from planner.learning.actor_critic import ActorCritic
from planner.policies import PolicyWeights

Best = tuple[float, int, PolicyWeights]  # its ratio, after which round, and what it is
MOST_BYTES = 1 << 24


def store_training(path: Path, learner: ActorCritic, rounds: int, best: Best) -> None:
    """Write what `stored_training` reads, in place of what was there."""
    tensors = {f"state.{name}": tensor for name, tensor in learner.tensors().items()}
    tensors |= {f"best.{name}": np.ascontiguousarray(tensor) for name, tensor in best[2].tensors.items()}
    tensors["rounds"] = np.array([rounds, best[1]], np.float64)
    tensors["ratio"] = np.array([best[0]], np.float64)
    write_bytes(path, save(tensors))


def stored_training(path: Path, learner: ActorCritic, new: Best) -> tuple[int, Best]:
    """Take up the training of a file: rounds that were done, and the best so far; from the start where there is none.
    Raises InputError for another file.
    """
    if not path.exists():
        return 0, new
    try:
        tensors = load(read_head(path, MOST_BYTES))
        learner.take({name[6:]: tensor for name, tensor in tensors.items() if name.startswith("state.")})
        weights = {name: tensors[f"best.{name}"] for name in new[2].tensors}
        rounds, of_best = (int(number) for number in tensors["rounds"])
        best = (float(tensors["ratio"][0]), of_best, PolicyWeights(weights, new[2].teacher, new[2].kinds, new[2].idle))
    except (SafetensorError, KeyError, RuntimeError, ValueError, IndexError) as error:
        message = f"this is no training to go on with: {error}"
        raise InputError(message, where=str(path), fix="delete it, and train from the start") from None
    return rounds, best
