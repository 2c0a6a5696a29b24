"""Every policy keeps the laws of schedules, whatever jobs come; and what each order and program promises."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner import files
from planner.errors import InputError
from planner.policies import ORDERS, least_makespan, policy, policy_names, schedule_jobs
from planner.policies.fair import max_min_shares
from planner.policies.joint import JointPolicy
from planner.policies.orders import ends_a_second
from planner.policies.queue_policy import DEPTH, reserve
from planner.policies.replay import replayed
from planner.policies.want import Want
from planner.simulate import Event, State, arrived, run_jobs
from planner.specs.base import with_fields
from planner.specs.cluster_jobs.actions_file import ActionsFile, PolicyChoice
from planner.specs.cluster_jobs.jobs import Fleet
from planner.specs.hardware.cluster import RankKind
from planner.workflows.scheduling import bound_of
from tests.cluster_jobs import fleet_of, job, random_jobs, require_lawful
from tests.examples import examples, share

FLEET = fleet_of(a=4, b=6)
COMES = Event(0.0, (("arrival", "one"),))
CHOICES = [
    *(PolicyChoice(order=order, rounds="20" if order in ("makespan", "max_min") else "") for order in policy_names()),
    PolicyChoice(backfill=False),
    PolicyChoice(rounds="gavel", backfill=False),
    *(
        PolicyChoice(order=order, place="joint", preempt=preempt)
        for order in ("srtf", "las")
        for preempt in (False, True)
    ),
    *(PolicyChoice(order=order, place="first", preempt=True, restart_s=7.0) for order in ORDERS),
    *(PolicyChoice(order=order, restart_s=7.0) for order in ("marginal_gain", "makespan")),
    *(PolicyChoice(order=order, place="cells", restart_s=7.0) for order in ORDERS),
    PolicyChoice(place="pack"),
    *(PolicyChoice(order=order, place="pack", preempt=True, restart_s=7.0) for order in ORDERS),
    PolicyChoice(order="srtf", place="cells,pack", restart_s=7.0),
    PolicyChoice(order="las", place="joint,pack"),
]


def name_of(choice: PolicyChoice) -> str:
    return "-".join(str(getattr(choice, each)) for each in choice.__struct_fields__)


def state_of(jobs, fleet=FLEET, now=0.0) -> State:
    free = {number: frozenset(node.gpus) for number, node in enumerate(fleet.nodes)}
    return State(now, fleet, {each.id: arrived(each, n, fleet) for n, each in enumerate(jobs)}, {}, free)


@pytest.mark.parametrize("choice", CHOICES, ids=name_of)
@pytest.mark.every(6)
def test_work_is_done_once_and_no_gpu_twice_and_no_bound_is_beaten(choice):
    for seed in range(share(30)):
        jobs = random_jobs(seed, FLEET)
        schedule = schedule_jobs(jobs, FLEET, choice)
        require_lawful(jobs, FLEET, schedule.history, choice.restart_s)
        if not choice.counts_change and "pack" not in choice.places:  # the bound is for GPUs as they are asked for
            assert schedule.outcome.makespan_s >= bound_of(jobs, FLEET) * (1 - 1e-6)


@pytest.mark.parametrize("choice", CHOICES, ids=name_of)
@pytest.mark.every(3)
def test_a_file_of_decisions_gives_the_same_bits(choice):
    jobs = random_jobs(3, FLEET)
    schedule = schedule_jobs(jobs, FLEET, choice)
    read = files.parse(files.dump(schedule.file()), ActionsFile, "actions.yaml")
    assert read == schedule.file()
    again = run_jobs(read.jobs, Fleet(read.cluster), replayed(read.decisions, "f"), choice.restart_s)
    assert again.ends == schedule.history.ends and again.segments == schedule.history.segments


@pytest.mark.parametrize("choice", CHOICES, ids=name_of)
@pytest.mark.every(6)
def test_renaming_gpus_changes_nothing(choice):
    """The kinds of a cluster in another order: other numbers, the same times."""
    other = fleet_of(b=6, a=4)
    for seed in range(share(12)):
        jobs = random_jobs(seed, FLEET)
        one, two = (schedule_jobs(jobs, fleet, choice).history.ends for fleet in (FLEET, other))
        assert one == two


def test_recorded_decisions_that_do_not_fit_are_located():
    stored = schedule_jobs(random_jobs(1, FLEET), FLEET, PolicyChoice()).file()
    late = files.parse(files.dump(stored).replace("at_s: 0.0", "at_s: 0.5", 1), ActionsFile, "actions.yaml")
    with pytest.raises(InputError) as error:
        run_jobs(late.jobs, FLEET, replayed(late.decisions, "actions.yaml"))
    assert error.value.where == "actions.yaml (decisions)" and "was recorded at 0.5 s" in error.value.message


# ---------------------------------------------------------------------------------------------------------- in order


@examples(60)
@given(st.integers(0, 10**6))
def test_backfilling_never_delays_who_is_first(seed):
    """At every decision the first job that does not start has a reservation, and starts then at the latest (EASY)."""
    fleet, due = fleet_of(a=8), {}
    jobs = random_jobs(seed, fleet, 20, late=30.0)
    decide = policy(PolicyChoice(), fleet)

    def watched(state, event):
        actions = [*decide(state, event)]
        started = {action.job for action in actions}
        for name, at in due.items():
            assert name not in state.waiting or name in started or state.now < at
        blocked = [each for name, each in state.waiting.items() if name not in started]
        if blocked:
            wants = {action.job: Want("a", len(action.gpus), "") for action in actions}
            due.setdefault(blocked[0].job.id, reserve(state, blocked[0], wants).at)
        return actions

    run_jobs(jobs, fleet, watched)


def test_a_short_job_goes_ahead_and_a_long_one_does_not():
    """Of 4 GPUs 3 are taken until 10; the first that waits wants 4, so that only what ends by then may start."""
    jobs = [job("runs", 0, 3, a=10.0), job("wide", 1, 4, a=10.0), job("long", 2, 1, a=10.0), job("short", 3, 1, a=7.0)]
    ends = schedule_jobs(jobs, fleet_of(a=4), PolicyChoice()).history.ends
    assert ends == {"runs": 10, "short": 10, "wide": 20, "long": 30}
    ends = schedule_jobs(jobs, fleet_of(a=4), PolicyChoice(backfill=False)).history.ends
    assert ends == {"runs": 10, "wide": 20, "long": 30, "short": 27}


def test_all_that_ends_at_once_is_spare_beside_a_reservation():
    """5 of 6 GPUs end at 10, the wide job takes 3 of them: the sixth is nobody's."""
    jobs = [job("A", 0, 2, a=10.0), job("B", 0, 3, a=10.0), job("wide", 1, 3, a=5.0), job("small", 2, 1, a=20.0)]
    assert schedule_jobs(jobs, fleet_of(a=6), PolicyChoice()).history.ends["small"] == 22


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize(("between", "ahead"), [(DEPTH - 1, True), (DEPTH, False)])
def test_so_many_behind_who_waits_are_looked_at(at_once, between, ahead):
    """One GPU is free, and who would go ahead on it comes after so many that wait: with all, or later."""
    late = 2 if at_once else 3
    jobs = [job("runs", 0, 3, a=100.0), job("head", 1, 4, a=1.0)]
    jobs += [job(f"wide-{n}", 2, 4, a=1.0) for n in range(between)]
    history = schedule_jobs([*jobs, job("small", late, 1, a=10.0)], fleet_of(a=4), PolicyChoice()).history
    assert (history.ends["small"] == late + 10) == ahead


def test_shares_of_nobody_and_of_very_long_jobs():
    apart = [job("one", 0, 1, a=10.0), job("two", 1000, 1, a=10.0)]
    assert schedule_jobs(apart, fleet_of(a=8), PolicyChoice(order="max_min")).outcome.makespan_s == 1010
    jobs = [job("long", 0, 8, a=1e12), job("short", 0, 8, a=1.0)]
    assert bound_of(jobs, fleet_of(a=8)) == pytest.approx(1e12)


def test_rounds_end_with_jobs_and_are_refused_where_they_would_never():
    """Between jobs that are 1e12 s apart nobody is woken; a job of 1e12 s is one of too many rounds."""
    apart = [job("one", 0, 1, a=10.0), job("two", 1e12, 1, a=10.0)]
    history = schedule_jobs(apart, fleet_of(a=8), PolicyChoice(order="max_min")).history
    assert history.ends["two"] == 1e12 + 10 and len(history.decisions) < 9
    with pytest.raises(InputError, match="takes 1e\\+12 s, over 100,000 rounds"):
        schedule_jobs([job("long", 0, 8, a=1e12)], fleet_of(a=8), PolicyChoice(order="max_min"))


def test_the_shortest_first_is_best_on_one_gpu():
    jobs = [job(str(n), 0, 1, a=seconds) for n, seconds in enumerate((5.0, 1.0, 3.0, 2.0, 4.0))]
    outcome = schedule_jobs(jobs, fleet_of(a=1), PolicyChoice(order="srtf")).outcome
    assert outcome.mean_completion_s == pytest.approx((1 + 3 + 6 + 10 + 15) / 5)


def test_with_preemption_the_shortest_remaining_runs():
    jobs = [job("long", 0, 1, a=10.0), job("short", 2, 1, a=3.0)]
    ends = schedule_jobs(jobs, fleet_of(a=1), PolicyChoice(order="srtf", preempt=True)).history.ends
    assert ends == {"short": 5, "long": 13}


def test_least_attained_service_lets_a_newcomer_run():
    jobs = [job("old", 0, 1, a=100.0), job("new", 10, 1, a=100.0)]
    ends = schedule_jobs(jobs, fleet_of(a=1), PolicyChoice(order="las", preempt=True)).history.ends
    assert ends == {"new": 110, "old": 200}


@examples(40)
@given(st.integers(0, 10**6))
def test_kinds_are_chosen_jointly_as_brute_force_does(seed):
    """The integer program gives as much as the best of all choices of kinds."""
    fleet = fleet_of(a=2, b=2)
    jobs = random_jobs(seed, fleet, 5, late=0.0)
    state = state_of(jobs, fleet)
    gained = sum(
        ends_a_second(state, state.waiting[name], want.kind)
        for name, want in JointPolicy(ORDERS["srtf"]).wants(state).items()
    )

    def best(rest, room):
        if not rest:
            return 0.0
        here, options = rest[0], [best(rest[1:], room)]
        for kind in fleet.kinds_for(here):
            if room[kind] >= here.gpus:
                gain = ends_a_second(state, state.waiting[here.id], kind)
                options.append(gain + best(rest[1:], {**room, kind: room[kind] - here.gpus}))
        return max(options)

    assert gained == pytest.approx(best(jobs, dict(fleet.counts)), rel=1e-6)


# ------------------------------------------------------------------------------------------------- shares and counts


def test_the_least_makespan_is_that_of_a_schedule_by_hand():
    """One GPU twice as quick as the other, for both jobs: they change places halfway, and end after 4 / 6 + 4 / 12."""
    jobs = [job("one", 0, 1, a=6.0, b=12.0), job("two", 0, 1, a=6.0, b=12.0)]
    seconds, shares = least_makespan(state_of(jobs, fleet_of(a=1, b=1)))
    assert seconds == pytest.approx(8.0)
    assert sum(shares.values()) == pytest.approx(2.0)


@examples(30)
@given(st.integers(0, 10**6))
def test_no_shares_serve_the_worst_served_better_than_max_min(seed):
    """Shares drawn at random, as large as they may be, never leave the job that fares worst better off."""
    draw, jobs = Random(seed), random_jobs(seed, FLEET, 6)
    pairs = [(each, kind) for each in jobs for kind in FLEET.kinds_for(each)]
    other = {(each.id, kind): draw.random() for each, kind in pairs}
    of_jobs = [sum(x for (name, _), x in other.items() if name == each.id) for each in jobs]
    of_kinds = [
        sum(other[each.id, k] * each.gpus for each, k in pairs if k == kind) / n for kind, n in FLEET.counts.items()
    ]
    scale = 1 / max(*of_jobs, *of_kinds)
    drawn = {pair: x * scale for pair, x in other.items()}
    best, drawn_best = (min(served(each, x) for each in jobs) for x in (max_min_shares(state_of(jobs)), drawn))
    assert best >= drawn_best - 1e-6


def served(each, shares) -> float:
    """The speed of a job over that of equal shares, by its GPUs."""
    rates = {kind: 1 / each.seconds[kind][each.gpus] for kind in FLEET.kinds_for(each)}
    equal = sum(rate * FLEET.counts[kind] for kind, rate in rates.items()) / FLEET.size
    return each.gpus * sum(shares.get((each.id, kind), 0.0) * rate for kind, rate in rates.items()) / equal


def test_users_get_equal_dominant_shares():
    jobs = [with_fields(job(f"{user}{n}", n, 1, a=10.0), user=user) for n, user in enumerate("aaaab")]
    actions = policy(PolicyChoice(order="drf"), fleet_of(a=2))(state_of(jobs, fleet_of(a=2)), COMES)
    assert sorted(action.job for action in actions) == ["a0", "b4"]


def test_the_next_gpus_go_to_whom_they_save_most():
    """Four GPUs: each job has one; the third and fourth save the slow job 50 s, and the quick one 5."""
    slow, quick = job("slow", 0, 1, a=100.0), job("quick", 0, 1, a=10.0)
    slow.seconds["a"] |= {2: 50.0, 3: 34.0}
    quick.seconds["a"] |= {2: 5.0}
    actions = policy(PolicyChoice(order="marginal_gain"), fleet_of(a=4))(state_of([slow, quick], fleet_of(a=4)), COMES)
    assert {action.job: len(action.gpus) for action in actions} == {"slow": 3, "quick": 1}


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        (PolicyChoice(order="lifo"), "no order is called `lifo`"),
        (PolicyChoice(place="cels"), "no place is called `cels`"),
        (PolicyChoice(place="joint"), "the order fifo does not say what a job gains by a kind"),
        (PolicyChoice(order="srtf", place="joint", backfill=False), "together have no first job that others wait for"),
        (PolicyChoice(order="drf", preempt=True), "drf says itself who runs where"),
        (PolicyChoice(rounds="soon"), "rounds of `soon` are none"),
        (PolicyChoice(order="makespan", rounds="60", restart_s=60.0), "a restart of 60 s takes all of a round of 60 s"),
        (PolicyChoice(order="marginal_gain", rounds="60"), "rounds give jobs the counts that they ask for"),
        (PolicyChoice(place="pack", rounds="60"), "and GPUs of their own"),
        (PolicyChoice(place="cells,first"), "say twice which kind"),
    ],
)
def test_what_does_not_go_together_is_refused_by_name(choice, message):
    with pytest.raises(InputError, match=message):
        policy(choice, fleet_of(a=1))


def test_a_cluster_of_nodes_gives_a_job_as_few_as_will_do():
    fleet = Fleet([RankKind(kind="a", count=8, per_node=4)])
    jobs = [job("one", 0, 1, a=100.0), job("four", 1, 4, a=10.0), job("two", 2, 2, a=10.0)]
    segments = {each.job: each.gpus for each in schedule_jobs(jobs, fleet, PolicyChoice()).history.segments}
    assert segments == {"one": (0,), "four": (4, 5, 6, 7), "two": (1, 2)}
