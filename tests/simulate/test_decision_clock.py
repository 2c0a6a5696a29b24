"""The clock that asks: what it lets happen, what it refuses, and jobs that share GPUs."""

import pytest

from planner.errors import Infeasible, InputError
from planner.simulate import Action, run_jobs
from tests.cluster_jobs import fleet_of, job, require_lawful

FLEET = fleet_of(a=4, b=2)


def scripted(*decisions):
    """A policy that takes these actions at its first events, and then none."""
    left = iter(decisions)
    return lambda state, event: next(left, ())


def start_what_fits(state, event):
    free = sorted(gpu for gpus in state.free.values() for gpu in gpus if state.fleet.kind_of[gpu] == "a")
    for name, each in state.waiting.items():
        if len(free) >= each.job.gpus:
            taken, free = free[: each.job.gpus], free[each.job.gpus :]
            yield Action("start", name, tuple(taken))


def test_a_job_moves_is_resized_and_stops_and_its_work_is_done_once():
    one = job("one", 5.0, 2, a=100.0, b=50.0)
    one.seconds["a"][4] = 40.0
    history = run_jobs(
        [one],
        FLEET,
        scripted(
            [Action("start", "one", (0, 1)), Action("wait", until=15.0)],  # a tenth by then
            [Action("move", "one", (4, 5)), Action("wait", until=38.0)],  # ready at 18, 0.4 more
            [],  # the restart at 18
            [Action("resize", "one", (0, 1, 2, 3)), Action("wait", until=51.0)],  # ready at 41, a quarter more
            [],  # the restart at 41
            [Action("stop", "one"), Action("wait", until=60.0)],
            [Action("start", "one", (2, 3))],  # ready at 63, a quarter is left: 25 s
        ),
        3.0,
    )
    assert history.ends == pytest.approx({"one": 88.0}) and history.moves == 3
    require_lawful([one], FLEET, history, 3.0)


WRONG = {
    "start: no job `two` is waiting": [Action("start", "two", (0,))],
    "start: its GPUs must be different ones, at least one, from 0 to 5": [Action("start", "one", (0, 0))],
    "start: GPU 0 is not free": [Action("start", "one", (0, 1)), Action("start", "other", (0, 2))],
    "start: its GPUs are of several kinds, a and b": [Action("start", "one", (3, 4))],
    "start: how long it takes on 3 of a is not known": [Action("start", "one", (0, 1, 2))],
    "start: job `one` is decided twice": [Action("start", "one", (0, 1)), Action("start", "one", (2, 3))],
    "stop: no job `one` is running": [Action("stop", "one")],
    "pack: no job has these GPUs to itself": [Action("pack", "one", (0, 1))],
    "wait: 0 s is not after 0 s": [Action("wait", until=0.0)],
}


@pytest.mark.parametrize("message", WRONG)
def test_what_cannot_happen_is_refused_before_anything_does(message):
    jobs = [job("one", 0.0, 2, a=10.0, b=5.0), job("other", 0.0, 2, a=10.0)]
    with pytest.raises(InputError) as error:
        run_jobs(jobs, FLEET, scripted(WRONG[message]))
    assert error.value.message == message
    assert error.value.where == f"decision 0 at 0 s (actions[{len(WRONG[message]) - 1}])"


def test_a_move_has_as_many_gpus_and_a_resize_others():
    for do, gpus in (("move", (0, 1, 2, 3)), ("resize", (2, 3))):
        one = job("one", 0.0, 2, a=100.0)
        one.seconds["a"][4] = 60.0
        policy = scripted([Action("start", "one", (0, 1)), Action("wait", until=1.0)], [Action(do, "one", gpus)])
        with pytest.raises(InputError, match=f"it has 2 GPUs, and would have {len(gpus)}"):
            run_jobs([one], FLEET, policy)


def test_two_jobs_may_change_places_in_one_decision():
    jobs = [job("one", 0.0, 2, a=10.0), job("other", 0.0, 2, a=10.0)]
    first = [Action("start", "one", (0, 1)), Action("start", "other", (2, 3)), Action("wait", until=4.0)]
    history = run_jobs(jobs, FLEET, scripted(first, [Action("move", "one", (2, 3)), Action("move", "other", (0, 1))]))
    assert history.ends == {"one": 10.0, "other": 10.0} and history.moves == 2
    require_lawful(jobs, FLEET, history)


def test_a_policy_sees_what_it_cannot_change():
    def meddle(state, event):
        with pytest.raises(TypeError):
            state.waiting["one"] = None
        with pytest.raises(AttributeError):
            state.waiting["one"].left = 0.0
        return start_what_fits(state, event)

    assert run_jobs([job("one", 0.0, 1, a=1.0)], FLEET, meddle).ends == {"one": 1.0}


def test_jobs_that_share_gpus_slow_each_other_until_one_ends():
    """Alone 10 s each, beside another 16 s: packed at 2 s, when a fifth of one is done. It ends at 2 + 0.8 · 16."""
    jobs = [job("one", 0.0, 1, a=10.0), job("two", 2.0, 1, a=10.0)]
    for each in jobs:
        each.beside["a"] = {each.model: 10 / 16}
    policy = scripted([Action("start", "one", (0,))], [Action("pack", "two", (0,))])
    history = run_jobs(jobs, FLEET, policy)
    assert history.ends["one"] == pytest.approx(14.8)
    assert history.ends["two"] == pytest.approx(14.8 + 0.2 * 10)
    assert sum(segment.work for segment in history.segments) == pytest.approx(2.0)


def test_nothing_is_known_of_jobs_that_share_unless_it_is_told():
    jobs = [job("one", 0.0, 2, a=10.0), job("two", 2.0, 2, a=10.0)]
    policy = scripted([Action("start", "one", (0, 1))], [Action("pack", "two", (0, 1))])
    with pytest.raises(InputError, match="how long it takes on 2 of a is not known"):
        run_jobs(jobs, FLEET, policy)


def test_jobs_that_are_never_started_are_an_error():
    with pytest.raises(Infeasible, match="job `one` and 0 others wait, and nothing runs"):
        run_jobs([job("one", 0.0, 1, a=1.0)], FLEET, scripted())
