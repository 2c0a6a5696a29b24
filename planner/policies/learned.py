"""A policy that was learned: grants by a network's scores; its teacher decides where a state is unlike all that it was
trained on.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from planner.policies.grants import NOTHING, Allocation, Grants
from planner.policies.policy_weights import FAR, PolicyWeights
from planner.policies.want import Wants
from planner.policies.wanted_actions import decided_anew
from planner.simulate import Action, Event, State

Choose = Callable[[Allocation, Grants], int]  # which of the candidates


def granted(state: State, choose: Choose, reason: str, idle: bool = True) -> Wants:
    """GPUs granted until none fits, or none are: whoever has them at the end runs."""
    if not (state.running or state.waiting):
        return {}
    allocation = Allocation(state, idle)
    while len((grants := allocation.grants()).jobs) and (grants.jobs != NOTHING).any():
        chosen = choose(allocation, grants)
        if grants.jobs[chosen] == NOTHING:
            break
        allocation.give(int(grants.jobs[chosen]), int(grants.kinds[chosen]), int(grants.counts[chosen]))
    return allocation.wants(reason)


@dataclass(slots=True)
class LearnedPolicy:
    """Decides about all jobs anew by weights; `teacher` does where a state is too far from those of training."""

    weights: PolicyWeights
    sha256: str = ""  # of their file
    teacher: Callable[[State], Wants] | None = None  # None: nobody else decides
    learned: int = 0  # decisions by weights
    fallen_back: int = 0  # decisions by the teacher

    def __call__(self, state: State, event: Event) -> Iterable[Action]:
        return decided_anew(state, self.wants(state)) if event.changes else ()

    def wants(self, state: State) -> Wants:
        """Kinds and counts of all jobs that get any."""
        furthest = 0.0

        def choose(allocation: Allocation, grants: Grants) -> int:
            nonlocal furthest
            furthest = max(furthest, self.weights.distance(grants.features) if self.teacher else 0.0)
            return int(self.weights.scores(grants.features).argmax()) if furthest <= FAR else len(grants.jobs) - 1

        wants = granted(state, choose, "the learned policy scores it highest", self.weights.idle)
        if self.teacher and furthest > FAR:
            self.fallen_back += 1
            return self.teacher(state)
        self.learned += 1
        return wants

    @property
    def note(self) -> str:
        """How many decisions were whose."""
        of, name = self.learned + self.fallen_back, self.weights.teacher
        return f"{self.fallen_back} of {of} decisions are its teacher's, {name}: states unlike those of its training"
