"""Of jobs that are run exactly, replays find the step, what binds it, the clocks, the slow rank and its cause."""

import pytest

from planner.replay.timing import find_stragglers
from planner.workflows.replaying import replay_traces
from tests.replay.exact_jobs import CAUSES, Cause, Job, draw_job, run, truth, write
from tests.replay.handmade_traces import Recorder

FOUND = {
    "loader": ("data loader", ""),
    "gc": ("garbage collection", ""),
    "span": ("host span", "## tokenize ##"),
    "host": ("host", ""),
    "pause": ("host span", "between operators"),
    "gemm": ("kernels", "gemm"),
    "elementwise": ("kernels", "elementwise"),
    "clock": ("clock", ""),
    "copy": ("copies", "memcpy"),
    "stall": ("", ""),
}
EVEN = Job(2, 4, 3, host=10, kernel=200, collective=60, loader=100, seed=0)
LENGTHS = {"loader": 2000, "gc": 2000, "span": 2000, "pause": 2000, "stall": 2000}
FACTORS = {"host": 25.0, "gemm": 1.08, "elementwise": 1.5, "clock": 1.08, "copy": 20.0}


def replayed(job, folder, ran=None):
    return replay_traces(write(ran or run(job), folder))


def wrong(job, ran, true, folder):
    """What a replay of a random job says otherwise than is true."""
    answer = replayed(job, folder, ran)
    found = set()
    if abs(answer.replay.measured_step_seconds * 1e6 / true.step - 1) > 0.01:
        found.add("step")
    if answer.verdict.bound != true.bound:
        found.add("verdict")
    base = answer.replay.graphs[0].trace.base
    moment = ran.end / 2
    for rank, clock in enumerate(answer.replay.matched.clocks):
        own, first = (job.offsets[each] + moment * (1 + job.drifts[each]) for each in (rank, 0))
        own_seconds = own / 1e6 - base
        if abs((own_seconds - clock.common(own_seconds)) * 1e6 - (own - first)) > 20:
            found.add("clock")
    slow = [late for late in answer.stragglers if late.slow]
    if (slow[0].rank if slow else None) != true.straggler:
        found.add("straggler" if true.straggler is not None else "named")
    elif slow and slow[0].cause[:2] != FOUND[job.cause.what]:
        found.add("cause")
    return found


@pytest.mark.parametrize("seed", range(16))
@pytest.mark.every(4)
def test_random_jobs_are_understood(tmp_path, seed):
    job, ran, true = draw_job(seed)
    assert not wrong(job, ran, true, tmp_path)


@pytest.mark.soak
def test_of_five_hundred_random_jobs_nearly_all_are_understood(tmp_path):
    found = [wrong(*draw_job(seed), tmp_path) for seed in range(5000, 5500)]
    for what, most in (
        ("step", 0.01),
        ("verdict", 0.05),
        ("clock", 0.0),
        ("straggler", 0.01),
        ("cause", 0.01),
        ("named", 0.005),
    ):
        assert sum(what in each for each in found) <= most * len(found), what


def test_a_step_of_a_host_that_runs_ahead_takes_what_the_device_takes(tmp_path):
    job = EVEN._replace(ranks=1, collective=0.0, synchronises=False, loader=0.0)
    ran = run(job)
    answer = replayed(job, tmp_path, ran)
    assert answer.replay.measured_step_seconds * 1e6 == pytest.approx(ran.step, rel=1e-3)
    assert answer.replay.step_seconds * 1e6 == pytest.approx(ran.step, rel=1e-3)
    host = max(step.end.segment.end for step in answer.replay.graphs[0].steps) * 1e6 / job.steps
    assert host < 0.3 * ran.step  # which alone would be stated if a step ended with its annotation
    assert answer.verdict.bound == "gpu"
    assert answer.verdict.host_ahead * 1e6 > ran.step


@pytest.mark.parametrize("offset", [0.0, 3e3, 5e6, 3.6e9])
def test_a_clock_that_is_wrong_hides_no_straggler(tmp_path, offset):
    job = EVEN._replace(offsets=(1e10, 1e10 + offset), drifts=(0.0, 4e-5), cause=Cause("loader", 1, 2000))
    answer = replayed(job, tmp_path)
    clock = answer.replay.matched.clocks[1]
    assert clock.offset * 1e6 == pytest.approx(offset, abs=20)
    assert (answer.stragglers[0].rank, answer.stragglers[0].slow) == (1, True)


@pytest.mark.parametrize("cause", CAUSES)
@pytest.mark.every(3)
def test_every_cause_is_named_of_two_ranks(tmp_path, cause):
    """Where it delays the other: a slow host does so only where the host is slower than the device."""
    more = {"host": {"kernel": 20.0}}.get(cause, {})
    job = EVEN._replace(cause=Cause(cause, 1, LENGTHS.get(cause, 0.0), FACTORS.get(cause, 1.0)), **more)
    _, true = truth(job)
    first, second = replayed(job, tmp_path).stragglers
    assert (true.straggler, first.rank, first.slow, second.slow) == (1, 1, True, False)
    assert first.cause[:2] == FOUND[cause]
    assert first.delay * 1e6 == pytest.approx(true.delay * run(job).end, rel=0.1)


def test_a_cause_that_delays_nobody_is_none(tmp_path):
    """The host of one rank takes twice as long, but the device has work meanwhile."""
    job = EVEN._replace(cause=Cause("host", 1, factor=2.0), synchronises=False)
    assert not any(late.slow for late in replayed(job, tmp_path).stragglers)


def test_ranks_with_the_same_times_are_even(tmp_path):
    answer = replayed(EVEN._replace(ranks=4), tmp_path)
    assert [(late.last, late.slow) for late in answer.stragglers] == [(0, False)] * 4


def test_steps_that_only_some_ranks_recorded_are_left_out_of_the_matching(tmp_path):
    """Rank 0 lacks the last step, rank 1 the first."""
    ran = run(EVEN._replace(offsets=(1e10, 2e10)))
    for recorder, gone in zip(ran.traces, (3, 0), strict=True):
        steps = [e for e in recorder.events if e["name"].startswith("ProfilerStep")]
        low, high = steps[gone]["ts"], steps[gone]["ts"] + steps[gone]["dur"]
        recorder.events = [e for e in recorder.events if not low <= e["ts"] < high]
    answer = replayed(EVEN, tmp_path, ran)
    assert len(answer.replay.matched.collectives) == 2 * EVEN.layers
    assert answer.replay.matched.clocks[1].offset == pytest.approx(1e4, abs=2e-5)


def test_waits_that_nothing_explains_are_not_explained(tmp_path):
    """The host sleeps between operators: the replay copies that and has no error, and says how much it copied."""
    job = EVEN._replace(ranks=1, collective=0.0, cause=None)
    slept = job._replace(cause=Cause("pause", 0, 5000))
    ran = run(slept)
    answer = replayed(slept, tmp_path, ran)
    assert answer.replay.worst_error < 1e-3
    assert answer.verdict.explained == pytest.approx(1 - 4900 / ran.step, abs=0.02)
    assert replayed(job, tmp_path).verdict.explained > 0.98


def test_collectives_of_host_threads_are_seen(tmp_path):
    """As gloo's: an operator hands an all-reduce to a thread, and the host waits for it."""
    paths = []
    for rank, work in ((0, 1000), (1, 3000)):
        r = Recorder(rank, 2)
        for step in range(3):
            t = step * 5000
            r.step(step, t, 5000).op("aten::mm", t + 10, work)
            r.op("c10d::allreduce_", t + 20 + work, 50)
            r.span("user_annotation", "gloo:all_reduce", t + 60 + work, 3400 - work, thread=9)
            r.op("aten::add_", t + 3500, 1400)
        paths.append(r.write(tmp_path, f"gloo{rank}.json"))
    answer = replay_traces(paths)
    assert len(answer.replay.matched.collectives) == 3
    parts = answer.replay.breakdown(0).parts
    assert parts.compute == pytest.approx(2.44e-3, rel=0.01)
    assert parts.exposed_communication == pytest.approx(2.4e-3, rel=0.02)
    first = find_stragglers(answer.replay)[0]
    assert (first.rank, first.slow, first.cause.name) == (1, True, "aten::mm")
