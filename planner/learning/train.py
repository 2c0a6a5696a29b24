"""Training of a policy: it imitates its teacher, then improves by what came of its decisions; the best that was seen on
episodes of validation is kept, the imitation among them.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path

import numpy as np
import torch

from planner.callbacks import OnProgress
from planner.errors import InputError
from planner.learning.actor_critic import ActorCritic, played
from planner.learning.checkpoint import store_training, stored_training
from planner.learning.episodes import Episode, divided, drawn_episode
from planner.learning.imitation import Teacher, agreement, imitate, taught
from planner.learning.network import Choice
from planner.policies import LearnedPolicy, PolicyWeights
from planner.specs.cluster_jobs.jobs import ClusterJob, Fleet

JUDGED = 6  # episodes of validation, and held out
EPISODES, RUNS = 2, 6  # of a round, and how often each is run
VALIDATED = 5  # rounds from one validation to the next
LEAST_JOBS = 20  # of all traces


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """From whom, on what, and how much. The same plan gives the same policy."""

    traces: tuple[tuple[ClusterJob, ...], ...]
    fleet: Fleet
    teacher: Teacher
    teacher_name: str
    restart_s: float = 0.0
    rounds: int = 30
    seed: int = 0
    lessons: int = 24  # episodes that the teacher shows

    @property
    def digest(self) -> bytes:
        """Of all that rounds depend on, but for how many there are."""
        asked = (self.traces, self.fleet.ranks, self.teacher_name, self.restart_s, self.seed, self.lessons)
        return hashlib.sha256(repr(asked).encode()).digest()

    def draw(self, stage: int) -> np.random.Generator:
        """Random numbers of one stage."""
        return np.random.default_rng((self.seed, stage))

    def episodes(self, traces: Sequence[Sequence[ClusterJob]], stage: int, count: int) -> list[Episode]:
        draw = self.draw(stage)
        return [drawn_episode(traces, self.fleet, self.restart_s, draw) for _ in range(count)]


@dataclass(frozen=True, slots=True)
class Training:
    """A trained policy, and what it is worth on ends of traces from which nothing was learned."""

    weights: PolicyWeights
    agreement: float  # of the imitation with its teacher, in held-out choices
    imitated: float  # mean completion of the imitation over the teacher's, the mean of held-out episodes
    learned: float  # the same of what was kept
    round: int  # after which it was kept; 0: the imitation


def train_policy(plan: TrainingPlan, kept: Path, on_progress: OnProgress) -> Training:
    """Train. What rounds came to stands in the file `kept`, from which it goes on. Raises InputError."""
    if sum(map(len, plan.traces)) < LEAST_JOBS:
        message = f"the traces have {sum(map(len, plan.traces))} jobs, of which nothing can be learned"
        raise InputError(message, where="TRACE", fix=f"traces of at least {LEAST_JOBS} jobs")
    torch.set_num_threads(1)  # sums in one order: the same bytes
    learned_from, held_out = divided(plan.traces)
    choices = shown(plan, plan.episodes(learned_from, 1, plan.lessons), 1, on_progress)
    network = imitate(choices, plan.seed, on_progress)
    agreed = agreement(network, shown(plan, plan.episodes(held_out, 2, JUDGED), 2, on_progress))
    imitated = network.weights(plan.teacher_name, (*plan.fleet.counts,))
    best = improved(plan, imitated, learned_from, kept, on_progress)
    unseen = plan.episodes(held_out, 3, JUDGED)
    of_teacher = [taught_mean(plan, episode) for episode in unseen]
    return Training(
        best[1], agreed, ratio(imitated, unseen, of_teacher), ratio(best[1], unseen, of_teacher), round=best[0]
    )


def improved(
    plan: TrainingPlan,
    imitation: PolicyWeights,
    traces: Sequence[Sequence[ClusterJob]],
    kept: Path,
    on_progress: OnProgress,
) -> tuple[int, PolicyWeights]:
    """The best line that rounds of the actor and the critic came to, as weights, and after which round."""
    validation = plan.episodes(traces, 4, JUDGED)
    of_teacher = [taught_mean(plan, episode) for episode in validation]
    best = (ratio(imitation, validation, of_teacher), 0, imitation.tensors["line"])
    learner = ActorCritic()
    first, best = stored_training(kept, learner, best, plan.digest)
    for number in range(first, plan.rounds):
        on_progress(number, plan.rounds, f"rounds: {best[0] - 1:+.1%} of the teacher's completion")
        weights, draw = imitation.with_line(learner.line), plan.draw(100 + number)
        for episode in plan.episodes(traces, 10_000 + number, EPISODES):
            learner.see([played(episode, weights, draw) for _ in range(RUNS)])
        learner.step()
        if (number + 1) % VALIDATED == 0 or number + 1 == plan.rounds:
            weights = imitation.with_line(learner.line)
            best = min(
                best, (ratio(weights, validation, of_teacher), number + 1, learner.line.copy()), key=itemgetter(0, 1)
            )
        store_training(kept, learner, number + 1, best, plan.digest)
    return best[1], imitation.with_line(best[2])


def shown(plan: TrainingPlan, episodes: Sequence[Episode], stage: int, on_progress: OnProgress) -> list[Choice]:
    """The teacher's choices in episodes."""
    draw, choices = plan.draw(1000 + stage), list[Choice]()
    for number, episode in enumerate(episodes):
        on_progress(number, len(episodes), "lessons")
        choices += taught(episode, plan.teacher, draw)
    if not choices:
        message = "the teacher never has a choice: no two jobs are there at a time"
        raise InputError(message, where="TRACE", fix="traces with more jobs, or fewer GPUs")
    return choices


def taught_mean(plan: TrainingPlan, episode: Episode) -> float:
    """The teacher's mean completion, seconds."""
    return episode.mean_completion(episode.run(lambda state: dict(plan.teacher(state))))


def ratio(weights: PolicyWeights, episodes: Sequence[Episode], of_teacher: Sequence[float]) -> float:
    """Mean completion over the teacher's, the mean of episodes; nobody falls back."""
    means = [episode.mean_completion(episode.run(LearnedPolicy(weights).wants)) for episode in episodes]
    return float(np.mean([mean / other for mean, other in zip(means, of_teacher, strict=True)]))
