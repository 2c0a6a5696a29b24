"""Natural actor-critic: which of its own decisions made jobs end sooner, and more of these (after DL2, section 4.4).

What is learned is a line added to the scores of the network that imitates:

    score(x) = network(z) + line . y(x),    y = [z, z first],   z = the scaled features          `PolicyWeights.scores`

An episode is run several times with grants drawn by their chances p. With N(e) jobs from event e to event e + 1, d(e)
seconds apart, T seconds for the horizon, and the other runs of the same jobs, interpolated at the time of e:

    cost(e)      = N(e) d(e) + LAMBDA exp(-d(e) / T) cost(e + 1)                                 `costs_to_go`
    gain(e)      = mean over the other runs of cost - cost(e), clipped to some spreads           `gains_of`
    direction(e) = sum over its grants of y(taken) - sum over candidates of p y                  `played`

The critic is the line w for which gain = w . direction fits best, with compatible features (Sutton et al., NIPS 1999);
w is the natural gradient (Peters and Schaal, Neurocomputing 71, 2008), along which the line moves as far as the mean
divergence of a grant's chances allows. What other runs had at that time takes out which jobs come (arXiv 1807.02264).
Sums of earlier rounds fade by `KEPT` a round, and are what a replay buffer would hold. Job-aware exploration: a part
`EXPLORED` of grants goes to a job that has no GPUs, or else to the one that would run longest; it is nobody's decision,
and has no direction. Why a line: whole networks, with clipped ratios, did not learn anything in the same time.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from planner.learning.episodes import Episode
from planner.policies import FEATURES, LINE, Allocation, Floats, Grants, PolicyWeights, Wants, granted
from planner.simulate import State

HORIZON, LAMBDA = 10.0, 0.5  # T in mean seconds of a job alone
CLIPPED = 2.0  # spreads
KEPT, RIDGE, DIVERGENCE = 0.8, 0.1, 0.03
EXPLORED = 0.01
FIRST, BEFORE = FEATURES.index("first"), FEATURES.index("seconds_before")


@dataclass(slots=True)
class Run:
    """An episode as it went, in mean seconds of its jobs alone."""

    times: list[float] = field(default_factory=list)  # of events
    jobs: list[int] = field(default_factory=list)  # from each event on
    directions: list[Floats] = field(default_factory=list)  # (LINE,) of each event
    spread: Floats = field(default_factory=lambda: np.zeros((LINE, LINE)))  # of y, summed over grants
    grants: int = 0
    end: float = 0.0


def played(episode: Episode, weights: PolicyWeights, draw: np.random.Generator) -> Run:
    """Run an episode with grants drawn by their chances."""
    run, unit = Run(), episode.mean_seconds

    def choose(allocation: Allocation, grants: Grants) -> int:
        if draw.random() < EXPLORED:
            return int(draw.choice(np.flatnonzero(neglected(grants.features))))
        chances = np.exp((scores := weights.scores(grants.features)) - scores.max())
        chances /= chances.sum()
        taken = min(int(np.searchsorted(chances.cumsum(), draw.random())), len(chances) - 1)
        lines = weights.lines(grants.features)
        mean = chances @ lines
        run.directions[-1] += lines[taken] - mean
        run.spread += (lines * chances[:, None]).T @ lines - np.outer(mean, mean)
        run.grants += 1
        return taken

    def wants_of(state: State) -> Wants:
        run.times.append(state.now / unit)
        run.jobs.append(len(state.running) + len(state.waiting))
        run.directions.append(np.zeros(LINE))
        return granted(state, choose, "", weights.idle)

    run.end = max(episode.run(wants_of).ends.values()) / unit
    return run


def neglected(features: Floats) -> np.ndarray:
    """Candidates of jobs that have no GPUs; where there are none, of the job that would run longest."""
    first = features[:, FIRST] > 0
    return first if first.any() else features[:, BEFORE] == features[:, BEFORE].max()


def costs_to_go(run: Run) -> Floats:
    """Of each event: jobs that are there times how long, nearer times counting more."""
    spans, costs = np.diff([*run.times, run.end]), np.zeros(len(run.times) + 1)
    for number in reversed(range(len(run.times))):
        later = LAMBDA * np.exp(-spans[number] / HORIZON) * costs[number + 1]
        costs[number] = run.jobs[number] * spans[number] + later
    return costs[:-1]


def gains_of(runs: Sequence[Run]) -> Floats:
    """What each event of several runs of one episode gained over the other runs at that time, in clipped spreads."""
    costs = [costs_to_go(run) for run in runs]
    gains = []
    for run, own in zip(runs, costs, strict=True):
        others = [
            np.interp(run.times, other.times, of) for other, of in zip(runs, costs, strict=True) if other is not run
        ]
        gains.append(np.mean(others, axis=0) - own)
    found = np.concatenate(gains)
    spread = found.std()
    return np.clip(found / spread, -CLIPPED, CLIPPED) if spread else found


@dataclass(slots=True)
class ActorCritic:
    """The line, and the sums from which its next step follows."""

    line: Floats = field(default_factory=lambda: np.zeros(LINE))
    normal: Floats = field(default_factory=lambda: np.zeros((LINE, LINE)))  # sum of direction directionᵀ
    toward: Floats = field(default_factory=lambda: np.zeros(LINE))  # sum of gain direction
    spread: Floats = field(default_factory=lambda: np.zeros((LINE, LINE)))
    grants: Floats = field(default_factory=lambda: np.zeros(1))

    def see(self, runs: Sequence[Run]) -> None:
        """Add the runs of one episode."""
        directions = np.concatenate([run.directions for run in runs])
        self.normal += directions.T @ directions
        self.toward += gains_of(runs) @ directions
        self.spread += sum(run.spread for run in runs)
        self.grants += sum(run.grants for run in runs)

    def step(self) -> None:
        """Move the line along the natural gradient, and let the sums fade."""
        ridge = RIDGE * np.trace(self.normal) / LINE
        if ridge > 0:
            natural = np.linalg.solve(self.normal + ridge * np.eye(LINE), self.toward)
            divergence = 0.5 * natural @ (self.spread / self.grants) @ natural
            if divergence > 0:
                self.line += natural * np.sqrt(DIVERGENCE / divergence)
        for each in (self.normal, self.toward, self.spread, self.grants):
            each *= KEPT

    def tensors(self) -> dict[str, Floats]:
        """Everything that training changes, by name."""
        return {name: getattr(self, name).copy() for name in self.__slots__}

    def take(self, tensors: Mapping[str, Floats]) -> None:
        """What `tensors` has given. Raises KeyError and ValueError for tensors of something else."""
        for name in self.__slots__:
            getattr(self, name)[...] = tensors[name]
