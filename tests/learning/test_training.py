"""Training: the same seed the same bytes, cut off or not; a known optimum is found; bad files are refused."""

from random import Random

import numpy as np
import pytest

from planner.errors import InputError
from planner.learning import TrainingPlan, train_policy
from planner.learning.actor_critic import ActorCritic
from planner.learning.checkpoint import store_training, stored_training
from planner.policies import TEACHERS, LearnedPolicy, policy, read_policy
from planner.simulate import run_jobs
from planner.specs.cluster_jobs.actions_file import PolicyChoice
from planner.specs.cluster_jobs.jobs import ClusterJob
from tests.cluster_jobs import fleet_of

FLEET = fleet_of(a=2)


def silent(done, of, what):
    """No progress is shown."""


def linear(name: str, submit: float, seconds: float) -> ClusterJob:
    """Twice as fast on two GPUs."""
    return ClusterJob(id=name, submit_s=submit, gpus=1, seconds={"a": {1: seconds, 2: seconds / 2}})


def plan_of(rounds: int, count: int = 40, lessons: int = 2) -> TrainingPlan:
    draw, submit, jobs = Random(0), 0.0, []
    for number in range(count):
        submit += draw.expovariate(1 / 10)
        jobs.append(linear(f"job-{number}", submit, draw.uniform(5, 40)))
    return TrainingPlan(((*jobs,),), FLEET, TEACHERS["marginal_gain"], "marginal_gain", rounds=rounds, lessons=lessons)


class Enough(Exception):
    """So many rounds were seen."""


@pytest.mark.slow
def test_the_same_seed_is_the_same_bytes_also_where_it_was_cut_off(tmp_path):
    whole = train_policy(plan_of(2, 20), tmp_path / "one", silent).weights.data()

    def cut(done, of, what):
        if "rounds" in what and done == 1:
            raise Enough

    with pytest.raises(Enough):
        train_policy(plan_of(2, 20), tmp_path / "two", cut)
    assert (tmp_path / "two").exists()
    assert train_policy(plan_of(2, 20), tmp_path / "two", silent).weights.data() == whole


@pytest.mark.soak
def test_the_optimum_of_two_gpus_and_three_jobs_is_learned(tmp_path):
    """The shortest first, each on both GPUs: 5, 15 and 35 s. The teacher gives each job one first: 10, 20 and 35 s."""
    three = [linear("short", 0, 10.0), linear("middle", 0, 20.0), linear("long", 0, 40.0)]
    taught = run_jobs(three, FLEET, policy(PolicyChoice(order="marginal_gain"), FLEET)).ends
    assert taught == {"short": 10, "middle": 20, "long": 35}
    training = train_policy(plan_of(10, 120, 12), tmp_path / "training", silent)
    assert run_jobs(three, FLEET, LearnedPolicy(training.weights)).ends == {"short": 5, "middle": 15, "long": 35}
    assert training.learned < 1 and training.learned < training.imitated


def test_what_is_written_is_read_again_and_what_is_no_policy_is_refused(tmp_path):
    file, plan = tmp_path / "policy.safetensors", plan_of(0)
    weights = train_policy(plan, tmp_path / "training", silent).weights
    file.write_bytes(weights.data())
    again, sha256 = read_policy(file, ("a",))
    assert again.data() == weights.data() and again.teacher == "marginal_gain"
    chosen = PolicyChoice(order="learned", weights=str(file), weights_sha256=sha256)
    assert run_jobs(plan.traces[0], FLEET, policy(chosen, FLEET)).ends
    broken = {**weights.tensors, "w2": np.full_like(weights.tensors["w2"], np.nan)}
    other = file.read_bytes().replace(b"jobs_without", b"jobs_withall")
    for data, message in (
        (type(weights)(broken, "drf", ("a",)).data(), "numbers that are not finite"),
        (other, "other features"),
        (b"no file of tensors", "no file of a policy"),
    ):
        (tmp_path / "bad").write_bytes(data)
        with pytest.raises(InputError, match=message):
            read_policy(tmp_path / "bad", ("a",))
    with pytest.raises(InputError, match="trained for 1 kinds"):
        read_policy(file, ("a", "b"))
    with pytest.raises(InputError, match="not the one that decided"):
        policy(PolicyChoice(order="learned", weights=str(file), weights_sha256="0" * 64), FLEET)


def test_a_training_goes_on_only_with_what_it_began_with(tmp_path):
    learner, best = ActorCritic(), (1.0, 0, ActorCritic().line)
    store_training(tmp_path / "training", learner, 3, best, plan_of(4).digest)
    rounds, _ = stored_training(tmp_path / "training", ActorCritic(), best, plan_of(9).digest)
    assert rounds == 3
    with pytest.raises(InputError, match="of other traces, GPUs or options"):
        stored_training(tmp_path / "training", ActorCritic(), best, plan_of(4, 41).digest)


def test_too_few_jobs_are_no_lesson(tmp_path):
    with pytest.raises(InputError, match="the traces have 1 jobs"):
        train_policy(plan_of(0, 1), tmp_path / "training", silent)
