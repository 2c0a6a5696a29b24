"""Actor and critic: from what comes of its own decisions a policy learns which to take more often (DL2, section 4.4).

An episode is run with grants drawn by their chances. What counts is how many jobs there are, over time, which sums up
to their completion times. With N(e) jobs between events e and e + 1, d(e) seconds apart, T seconds for the horizon, and
a critic's V(e) of what is to come:

    cost(e)  = N(e) T (1 - exp(-d(e) / T))                                              `advantages`
    gain(e)  = -sum over i >= 0 of (LAMBDA exp(-d / T))^i [cost + exp(-d / T) V(e + i + 1) - V(e + i)]
    loss     = -min(r gain, clip(r, 1 - CLIP, 1 + CLIP) gain),   r = chance now / chance when it was drawn

for each grant at e (generalised advantages, arXiv 1506.02438; clipped ratios, arXiv 1707.06347). Ratios let episodes of
earlier rounds be learned from again, out of a replay buffer. Job-aware exploration: with a chance of `EXPLORED`, a
grant goes to a job that has no GPUs, or else to the one that would run longest, whatever their scores.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from planner.learning.episodes import Episode
from planner.learning.network import Batch, Choice, ScoreNetwork, step
from planner.policies import FEATURES, Allocation, Floats, Grants, PolicyWeights, Wants, granted
from planner.simulate import State

HORIZON = 6.0  # T, in mean seconds of a job alone
LAMBDA, CLIP = 0.9, 0.2
ACTOR_RATE, CRITIC_RATE = 1e-3, 3e-3
UNIT = 10.0  # jobs: costs are divided by it
CRITIC_PASSES, CRITIC_STEPS, ACTOR_PASSES = 3, 12, 2
WIDTH, BATCH = 32, 1024
EXPLORED = 0.02  # of grants
FIRST, BEFORE = FEATURES.index("first"), FEATURES.index("seconds_before")
EMPTY = np.zeros((0, len(FEATURES)), np.float32)


class Moment(NamedTuple):
    """One event: when, how many jobs, its candidates, and what was drawn with which logarithm of its chance."""

    at: float
    jobs: int
    candidates: np.ndarray  # (candidates, features), before anything is granted
    choices: list[Choice]
    log_chances: list[float]


class Story(NamedTuple):
    """An episode as it went; times are in mean seconds of its jobs alone."""

    moments: list[Moment]
    end: float
    mean_completion: float


class Critic(nn.Module):
    """What is to come of a state, from the sum and the mean over its candidates: (states,)."""

    def __init__(self, network: ScoreNetwork) -> None:
        super().__init__()
        self.of_each = nn.Sequential(nn.Linear(len(FEATURES), WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU())
        self.of_all = nn.Sequential(nn.Linear(2 * WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1))
        self.seen = network.seen

    def forward(self, states: Batch) -> Tensor:
        number = len(states.taken)
        each = self.of_each((states.features - self.seen["mean"]) / self.seen["spread"])
        total = torch.zeros(number, WIDTH).index_add(0, states.of, each)
        counts = torch.bincount(states.of, minlength=number).clamp(min=1)[:, None]
        value: Tensor = self.of_all(torch.cat([total / UNIT, total / counts], 1)).squeeze(-1)
        return value


def played(episode: Episode, weights: PolicyWeights, draw: np.random.Generator) -> Story:
    """Run an episode with grants drawn by their chances."""
    unit, moments = episode.mean_seconds, list[Moment]()

    def wants_of(state: State) -> Wants:
        moment = Moment(state.now / unit, len(state.running) + len(state.waiting), EMPTY, [], [])

        def choose(allocation: Allocation, grants: Grants) -> int:
            nonlocal moment
            features = grants.features.astype(np.float32)
            if not len(moment.candidates):
                moment = moment._replace(candidates=features)
            chances = drawing_chances(weights.scores(grants.features), grants.features)
            taken = min(int(np.searchsorted(chances.cumsum(), draw.random())), len(chances) - 1)
            if len(chances) > 1:
                moment.choices.append(Choice(features, taken))
                moment.log_chances.append(float(np.log(chances[taken])))
            return taken

        wants = granted(state, choose, "", weights.idle)
        moments.append(moment)
        return wants

    history = episode.run(wants_of)
    moments = [moment for moment in moments if len(moment.candidates)]
    return Story(moments, max(history.ends.values()) / unit, episode.mean_completion(history) / unit)


def drawing_chances(scores: Floats, features: Floats) -> Floats:
    """The policy's chances, with those of job-aware exploration: (candidates,)."""
    chances = np.exp(scores - scores.max())
    forced = features[:, FIRST] > 0
    if not forced.any():
        forced = features[:, BEFORE] == features[:, BEFORE].max()
    drawn: Floats = (1 - EXPLORED) * chances / chances.sum() + EXPLORED * forced / forced.sum()
    return drawn


def advantages(story: Story, values: Floats) -> tuple[Floats, Floats]:
    """Of each moment: what it gains over what was expected, and what did come, for the critic: (moments,) each."""
    times = np.array([moment.at for moment in story.moments] + [story.end])
    discount = np.exp(-np.diff(times) / HORIZON)
    jobs = np.array([moment.jobs for moment in story.moments])
    costs = jobs * HORIZON * (1 - discount) / UNIT
    surprises = costs + discount * np.append(values[1:], 0.0) - values
    more, total = np.zeros(len(jobs)), 0.0
    for number in reversed(range(len(jobs))):
        total = surprises[number] + discount[number] * LAMBDA * total
        more[number] = total
    return -more, values + more


class ActorCritic:
    """A policy in training, its critic, and the optimizers of both."""

    def __init__(self, network: ScoreNetwork, seed: int) -> None:
        torch.manual_seed(seed)
        self.network, self.critic = network, Critic(network)
        self.actor_step = torch.optim.Adam(network.parameters(), lr=ACTOR_RATE)
        self.critic_step = torch.optim.Adam(self.critic.parameters(), lr=CRITIC_RATE)

    def learn(self, stories: Sequence[Story], draw: np.random.Generator, actor: bool = True) -> None:
        """Learn from episodes: the critic first, then, unless it is still new, the policy."""
        states = Batch.of_choices([Choice(moment.candidates, 0) for story in stories for moment in story.moments])
        for _ in range(CRITIC_PASSES):
            _, came = self.judged(stories, states)
            target = torch.from_numpy(came.astype(np.float32))
            for _ in range(CRITIC_STEPS):
                step(self.critic_step, ((self.critic(states) - target) ** 2).mean())
        if not actor:
            return
        gains, _ = self.judged(stories, states)
        gains = (gains - gains.mean()) / (gains.std() + 1e-6)
        moments = [moment for story in stories for moment in story.moments]
        choices = [choice for moment in moments for choice in moment.choices]
        before = torch.tensor([chance for moment in moments for chance in moment.log_chances])
        gain = torch.tensor(np.repeat(gains, [len(m.choices) for m in moments]), dtype=torch.float32)
        for _ in range(ACTOR_PASSES):
            order = draw.permutation(len(choices))
            for first in range(0, len(choices), BATCH):
                part = order[first : first + BATCH]
                chances = self.network.log_chances(Batch.of_choices([choices[number] for number in part]))
                ratio = (chances - before[part]).exp()
                clipped = ratio.clamp(1 - CLIP, 1 + CLIP)
                step(self.actor_step, -torch.minimum(ratio * gain[part], clipped * gain[part]).mean())

    def tensors(self) -> dict[str, np.ndarray]:
        """Everything that training changes, by name."""
        found: dict[str, Tensor] = {}
        for what, module, optimizer in self.parts():
            found |= {f"{what}.{name}": tensor for name, tensor in module.state_dict().items()}
            for number, state in optimizer.state_dict()["state"].items():
                found |= {f"{what}.step.{number}.{name}": tensor for name, tensor in state.items()}
        return {name: tensor.detach().numpy().copy() for name, tensor in found.items()}

    def take(self, tensors: Mapping[str, np.ndarray]) -> None:
        """What `tensors` has given. Raises KeyError and RuntimeError for tensors of something else."""
        for what, module, optimizer in self.parts():
            module.load_state_dict({name: torch.from_numpy(tensors[f"{what}.{name}"]) for name in module.state_dict()})
            whole = optimizer.state_dict()
            for name, tensor in tensors.items():
                if name.startswith(f"{what}.step."):
                    number, of = name.split(".")[2:]
                    whole["state"].setdefault(int(number), {})[of] = torch.from_numpy(tensor)
            optimizer.load_state_dict(whole)

    def parts(self) -> tuple[tuple[str, nn.Module, torch.optim.Optimizer], ...]:
        return ("actor", self.network, self.actor_step), ("critic", self.critic, self.critic_step)

    def judged(self, stories: Sequence[Story], states: Batch) -> tuple[Floats, Floats]:
        """`advantages` of all moments of all episodes."""
        with torch.no_grad():
            values = self.critic(states).double().numpy()
        ends = np.cumsum([len(story.moments) for story in stories])[:-1]
        judged = [advantages(story, of) for story, of in zip(stories, np.split(values, ends), strict=True)]
        gains, came = zip(*judged, strict=True)
        return np.concatenate(gains), np.concatenate(came)
