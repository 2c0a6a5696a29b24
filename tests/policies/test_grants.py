"""GPUs granted step by step: they lead to what a teacher wants, mean nothing by names, and none is illegal."""

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.policies import FEATURES, TEACHERS, Allocation, LearnedPolicy, PolicyWeights, granted, towards
from planner.policies.choice import MARGINAL_GAIN
from planner.policies.policy_weights import SHAPES
from planner.simulate import run_jobs
from planner.specs.base import with_fields
from planner.specs.cluster_jobs.jobs import Fleet
from planner.specs.hardware.cluster import RankKind
from tests.cluster_jobs import fleet_of, random_jobs, require_lawful
from tests.examples import examples


def random_weights(seed: int, kinds: tuple[str, ...] = ("a", "b"), idle: bool = True) -> PolicyWeights:
    draw = np.random.default_rng(seed)
    tensors = {name: draw.normal(size=shape) for name, shape in SHAPES.items()}
    tensors |= {"line": np.zeros(2 * len(FEATURES)), "mean": np.zeros(len(FEATURES)), "spread": np.ones(len(FEATURES))}
    tensors |= {"least": np.full(len(FEATURES), -1e9), "most": np.full(len(FEATURES), 1e9)}
    return PolicyWeights(tensors, "marginal_gain", kinds, idle)


def states_of(seed: int, fleet: Fleet, decide) -> list:
    """States at which a policy decides about random jobs, which it then does."""
    states, jobs = [], random_jobs(seed, fleet)

    def watched(state, event):
        states.append(state)
        return decide(state, event)

    history = run_jobs(jobs, fleet, watched, restart_s=3.0)
    require_lawful(jobs, fleet, history)
    return states


@examples(40)
@given(st.integers(0, 10**6))
def test_grants_lead_to_exactly_what_the_teacher_wants(seed):
    fleet = fleet_of(a=6, b=4)

    def decide(state, event):
        steps = [*MARGINAL_GAIN.taken(state)]
        left = [*steps]

        def choose(allocation, grants):
            while left:
                found = towards(grants, allocation, *left[0])
                if found is not None:
                    return found
                left.pop(0)
            return len(grants.jobs) - 1

        if state.running or state.waiting:
            wanted = {job: (want.kind, want.gpus) for job, want in steps}
            assert {job: (w.kind, w.gpus) for job, w in granted(state, choose, "").items()} == wanted
        return LearnedPolicy(random_weights(seed))(state, event)

    run_jobs(random_jobs(seed, fleet), fleet, decide, restart_s=3.0)


@examples(60)
@given(st.integers(0, 10**6))
def test_whatever_the_weights_no_action_is_illegal_and_all_jobs_end(seed):
    """The clock refuses what cannot happen, and jobs that wait while nothing runs."""
    fleet = fleet_of(a=8, b=6)
    assert states_of(seed, fleet, LearnedPolicy(random_weights(seed, idle=bool(seed % 2))))


@examples(30)
@given(st.integers(0, 10**6))
def test_names_of_jobs_and_gpus_change_nothing(seed):
    draw, names = Random(seed), {"a": "zebra", "b": "aardvark"}
    jobs = random_jobs(seed, fleet_of(a=8, b=6))
    fleets = [Fleet([RankKind(kind=k, count=c, per_node=2) for k, c in (("a", 8), ("b", 6))])]
    fleets.append(Fleet([RankKind(kind=names[each.kind], count=each.count, per_node=2) for each in fleets[0].ranks]))
    ids = draw.sample(range(1000), len(jobs))
    others = [
        with_fields(job, id=f"other-{number}", seconds={names[kind]: by for kind, by in job.seconds.items()})
        for job, number in zip(jobs, ids, strict=True)
    ]
    ends = []
    for fleet, named in zip(fleets, (jobs, others), strict=True):
        history = run_jobs(named, fleet, LearnedPolicy(random_weights(seed)), restart_s=2.0)
        ends.append([history.ends[job.id] for job in named])
    assert ends[0] == pytest.approx(ends[1], rel=1e-9)


def test_a_candidate_ends_its_job_sooner_and_fits():
    fleet = fleet_of(a=6, b=4)
    for seed in range(10):
        for state in states_of(seed, fleet, LearnedPolicy(random_weights(seed)))[:4]:
            if not state.waiting and not state.running:
                continue
            allocation, draw = Allocation(state), Random(seed)
            while draw.random() < 0.9:
                found = allocation.grants()
                able = np.flatnonzero(found.jobs >= 0).tolist()
                if not able:
                    break
                assert found.features.shape == (len(found.jobs), len(FEATURES)) and np.isfinite(found.features).all()
                at = draw.choice(able)
                job, kind, count = int(found.jobs[at]), int(found.kinds[at]), int(found.counts[at])
                before = allocation.ends[job]
                allocation.give(job, kind, count)
                assert allocation.ends[job] < before and (allocation.room >= 0).all()


def test_a_state_unlike_those_of_training_is_the_teachers():
    weights = random_weights(1)
    narrow = PolicyWeights(
        {**weights.tensors, "least": np.zeros(len(FEATURES)), "most": np.zeros(len(FEATURES))}, "drf", ("a",)
    )
    fleet = fleet_of(a=6, b=4)
    policy = LearnedPolicy(narrow, "", lambda state: dict(TEACHERS["drf"](state)))
    states_of(3, fleet, policy)
    assert policy.learned == 0 or policy.fallen_back > policy.learned
