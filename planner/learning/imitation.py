"""Imitation: the teacher's decisions, one grant after the other, and a network that takes the same ones.

The loss is the cross-entropy of the candidate that the teacher takes, over all candidates (DL2, section 4.3).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import torch

from planner.callbacks import OnProgress
from planner.learning.episodes import Episode
from planner.learning.network import Batch, Choice, ScoreNetwork
from planner.policies import Allocation, Grants, Want, Wants, granted, towards
from planner.simulate import State

Teacher = Callable[[State], Iterable[tuple[str, Want]]]  # whom it gives what, one after the other
KEPT = 0.35  # of a teacher's decisions
EPOCHS, BATCH, RATE = 12, 256, 3e-3


class Lesson:
    """One event: what the teacher takes, step by step."""

    def __init__(self, steps: Iterable[tuple[str, Want]]) -> None:
        self.steps = [*steps]
        self.at = 0

    def choose(self, allocation: Allocation, grants: Grants) -> int:
        """The candidate of its next step that is not yet done; the last where there is none."""
        while self.at < len(self.steps):
            found = towards(grants, allocation, *self.steps[self.at])
            if found is not None:
                return found
            self.at += 1
        return len(grants.jobs) - 1


def taught(episode: Episode, teacher: Teacher, draw: np.random.Generator) -> list[Choice]:
    """Choices of a teacher that runs an episode, where there is a choice; some of them, drawn at random."""
    choices: list[Choice] = []

    def wants_of(state: State) -> Wants:
        lesson = Lesson(teacher(state))

        def choose(allocation: Allocation, grants: Grants) -> int:
            taken = lesson.choose(allocation, grants)
            if len(grants.jobs) > 1 and draw.random() < KEPT:
                choices.append(Choice(grants.features.astype(np.float32), taken))
            return taken

        granted(state, choose, "")
        return dict(lesson.steps)

    episode.run(wants_of)
    return choices


def imitate(choices: Sequence[Choice], seed: int, on_epoch: OnProgress) -> ScoreNetwork:
    """A network that takes what the teacher took."""
    torch.manual_seed(seed)
    network, draw = ScoreNetwork(choices), np.random.default_rng(seed)
    steps = EPOCHS * -(-len(choices) // BATCH)
    optimizer = torch.optim.Adam(network.parameters(), lr=RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for epoch in range(EPOCHS):
        on_epoch(epoch, EPOCHS, "imitation")
        for batch in batches(choices, draw):
            loss = -network.log_chances(batch).mean()
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()
            schedule.step()
    return network


def batches(choices: Sequence[Choice], draw: np.random.Generator) -> Iterator[Batch]:
    """All choices once, in random order."""
    order = draw.permutation(len(choices))
    for first in range(0, len(choices), BATCH):
        yield Batch.of_choices([choices[number] for number in order[first : first + BATCH]])


def agreement(network: ScoreNetwork, choices: Sequence[Choice]) -> float:
    """The part of choices in which both take the same candidate; where the teacher grants none, it does not count."""
    with torch.no_grad():
        kept = [choice for choice in choices if not choice.features[choice.taken, 0]]
        same = [int(network(torch.from_numpy(each.features)).argmax()) == each.taken for each in kept]
    return sum(same) / max(1, len(same))
