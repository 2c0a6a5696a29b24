"""Written traces: slices on a thread never overlap, arrows join sends and receives, and the bytes repeat."""

import itertools
import json
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.costs.cost_lines import Cost
from planner.plan.mesh.identical_groups import NO_IDENTICAL_GROUPS, identical_groups
from planner.plan.tasks.expand import expand
from planner.simulate import TaskEvent, Timeline, TracedStep, build_trace, simulate
from planner.simulate.trace_records import CHROME_COLOURS, GroupColours, letters
from planner.simulate.trace_writer import trace_json
from planner.specs.base import Ranks, with_fields
from tests.examples import examples
from tests.plan.schedules.made import ordered_plan
from tests.plans import encoder_plan, sharded_plan, staged_plan
from tests.replica_plans import any_fed_replicas, replicas
from tests.task_programs import memory_of, programs, task


def one_step_trace(timeline, tasks, label, memory=None):
    return build_trace([[TracedStep(timeline, tasks, label, memory)]], "")


def traced(plan, label="simulated"):
    tasks = expand(plan)
    seconds = {"F": 1e-3, "B": 2e-3, "send": 1e-5}
    timeline = simulate(tasks, lambda t: Cost(seconds.get(t.phase, 0.0), "measured", 0.0), plan.size)
    memory = memory_of(timeline, tasks, lambda t: 2.0**29, lambda rank: 2.0**30)
    return one_step_trace(timeline, tasks, label, memory)


def records(trace, kind):
    return [record for record in trace["traceEvents"] if record["ph"] == kind]


def test_a_process_per_rank_and_a_thread_per_stream():
    trace = traced(staged_plan(3, 2))
    found = {(r["name"], r["pid"], r["args"].get("name")) for r in records(trace, "M")}
    assert {("process_name", rank, f"rank {rank}") for rank in range(3)} <= found
    assert ("thread_name", 1, "compute") in found and ("thread_name", 1, "recv") in found
    assert trace["otherData"]["planner"] == "simulated"


def test_slices_are_the_tasks():
    plan = staged_plan(3, 2)
    trace = traced(plan)
    assert sorted(r["name"] for r in records(trace, "X")) == sorted(t.id for t in expand(plan) for _ in t.ranks)
    forward = next(r for r in records(trace, "X") if r["cat"] == "F" and r["pid"] == 1)
    assert (forward["ts"], forward["dur"]) == (1010.0, 1000.0)
    assert forward["args"] == {
        "task": "llm[2-3]/F/0/all",
        "module": "llm",
        "group": "all",
        "items": 1,
        "tokens": 8,
        "source": "measured",
        "cause": "llm[2-3]/recvF/0/all",
    }


@pytest.mark.parametrize("plan", [staged_plan(3, 2), encoder_plan()], ids=["stages", "encoder"])
def test_an_arrow_for_every_rank_that_receives(plan):
    trace = traced(plan)
    tails, heads = records(trace, "s"), records(trace, "f")
    receiving = [(t, rank) for t in expand(plan) if t.phase == "recv" for rank in t.ranks]
    assert len(heads) == len(receiving) and [r["id"] for r in tails] == [r["id"] for r in heads]
    slices = {(r["pid"], r["tid"], r["ts"]): r["name"] for r in records(trace, "X")}
    for tail, head in zip(tails, heads, strict=True):
        sent = slices[tail["pid"], tail["tid"], tail["ts"]]
        assert slices[head["pid"], head["tid"], head["ts"]].startswith(sent.partition("[")[0])
        assert tail["ts"] <= head["ts"]


def test_memory_is_a_counter():
    counters = records(traced(staged_plan(2, 3)), "C")
    assert max(r["args"]["GiB"] for r in counters if r["pid"] == 0) == 2.0
    assert max(r["args"]["GiB"] for r in counters if r["pid"] == 1) == 1.5


@given(programs())
def test_slices_of_a_thread_do_not_overlap(program):
    tasks, price = program
    trace = json.loads(json.dumps(one_step_trace(simulate(tasks, price), tasks, "simulated")))
    threads: dict = {}
    for record in records(trace, "X"):
        threads.setdefault((record["pid"], record["tid"]), []).append((record["ts"], record["ts"] + record["dur"]))
    assert set(threads) == {(r["pid"], r["tid"]) for r in records(trace, "M") if r["name"] == "thread_name"}
    for spans in threads.values():
        spans.sort()
        assert all(a[1] <= b[0] + 1e-6 for a, b in itertools.pairwise(spans))


def test_measured_timelines_have_the_same_form():
    both = task(0, (0, 1))
    events = tuple(TaskEvent(both.id, "F", "m", Ranks((rank,)), 0.25 * rank, 1.0) for rank in (0, 1))
    trace = one_step_trace(Timeline(events, 1.0, 2), [both], "measured")
    assert [(r["pid"], r["ts"], r["dur"]) for r in records(trace, "X")] == [(0, 0.0, 1e6), (1, 250000.0, 750000.0)]
    assert trace["otherData"]["planner"] == "measured"


def test_the_same_plan_gives_the_same_bytes():
    assert json.dumps(traced(encoder_plan())) == json.dumps(traced(encoder_plan()))


# --------------------------------------------------------------------------------------- colours, sides, steps, ranks


def timed(plan, factor=1.0, label="simulated", **more):
    tasks = expand(plan)
    timeline = simulate(tasks, lambda t: Cost(factor * 1e-3, "measured", 0.0), plan.size)
    return TracedStep(timeline, tasks, label, **more)


def seen_by_perfetto(name: str) -> str:
    """What ui.perfetto.dev chooses a slice's colour by: its name without digits (ui/src/components/colorizer.ts)."""
    return re.sub(r"( )?\d+", "", name)


@given(st.sets(st.from_regex(r"[a-c0-9.+-]{1,5}", fullmatch=True), min_size=1, max_size=40))
def test_groups_differ_in_colour_and_are_one_colour_everywhere(groups):
    colours = GroupColours(groups)
    names = {
        group: {seen_by_perfetto(colours.slice_name(f"m[{n}-7]/F/{n}/{group}", group)) for n in (0, 12)}
        for group in groups
    }
    assert all(len(of_group) == 1 for of_group in names.values())
    assert len({name for of_group in names.values() for name in of_group}) == len(groups)
    assert {colours.colour(group) for group in groups} <= set(CHROME_COLOURS)


def test_where_names_of_groups_tell_them_apart_slices_are_called_as_tasks():
    assert GroupColours(["vit", "llm"]).slice_name("x/F/0/vit", "vit") == "x/F/0/vit"
    assert [letters(number) for number in (0, 25, 26, 701, 702)] == ["a", "z", "aa", "zz", "aaa"]


@pytest.mark.parametrize("plan", [staged_plan(3, 2), encoder_plan(), sharded_plan(4, [[(0, 2), (2, 2)]])])
def test_two_sides_lie_beside_each_other_and_share_nothing(plan):
    trace = build_trace([[timed(plan), timed(plan, 1.5, "measured")]], "toy")
    assert trace["otherData"]["planner"] == "both"
    processes = {r["pid"]: r["args"]["name"] for r in records(trace, "M") if r["name"] == "process_name"}
    places = {r["pid"]: r["args"]["sort_index"] for r in records(trace, "M") if r["name"] == "process_sort_index"}
    assert [processes[pid] for pid in sorted(places, key=places.get)] == [
        f"rank {rank} {label}" for rank in range(plan.size) for label in ("simulated", "measured")
    ]
    sides = [
        sorted(
            (r["args"]["task"], r["pid"] - at * plan.size, r["cname"])
            for r in records(trace, "X")
            if processes[r["pid"]].endswith(label)
        )
        for at, label in enumerate(("simulated", "measured"))
    ]
    assert sides[0] == sides[1]
    arrows = [(r["id"], r["pid"] // plan.size) for r in (*records(trace, "s"), *records(trace, "f"))]
    assert all(len({side for n, side in arrows if n == number}) == 1 for number, _ in arrows)
    assert len(arrows) == 2 * len({number for number, _ in arrows})


def test_steps_follow_each_other_without_touching():
    factors = (1.0, 3.0, 2.0)
    steps = [[timed(staged_plan(3, 2), f, "measured", step=0, run_step=n)] for n, f in enumerate(factors)]
    trace = build_trace(steps, "toy")
    marks = [(r["name"], r["ts"], r["ts"] + r["dur"]) for r in records(trace, "X") if r["cat"] == "step"]
    assert [name for name, *_ in marks] == ["step 0 measured", "step 1 measured", "step 2 measured"]
    assert all(a[2] <= b[1] for a, b in itertools.pairwise(marks))
    for number, (_, first, last) in enumerate(marks):
        own = [r for r in records(trace, "X") if r["cat"] != "step" and r["args"].get("step", 0) == number]
        assert len(own) == sum(len(t.ranks) for t in steps[number][0].tasks)
        assert all(first <= r["ts"] and r["ts"] + r["dur"] <= last + 1e-3 for r in own)


def of_kinds(plan):
    """As in a large job: the timeline has events of one group per kind (`timeline.representative_rank`)."""
    others = identical_groups(plan, 0)
    tasks = expand(plan, 0, others.ranks)
    return TracedStep(simulate(tasks, lambda t: Cost(1e-3, "measured", 0.0), plan.size, others), tasks, "simulated")


def test_many_ranks_take_as_much_room_as_their_kinds():
    few, many = (
        len(trace_json(build_trace([[of_kinds(ordered_plan(4, 4, "1f1b", dp=dp))]], "toy"))) for dp in (2, 128)
    )
    assert many < 1.1 * few
    asked = build_trace([[timed(ordered_plan(4, 4, "1f1b", dp=17))]], "toy", Ranks((0, 20, 40)))
    assert {r["pid"] for r in records(asked, "X")} == {0, 20, 40}


@pytest.mark.parametrize(("only", "drawn"), [(None, {0, 4}), (Ranks((1, 6)), {1, 6})])
def test_represented_ranks_are_drawn_like_simulated_ones(only, drawn):
    plan = ordered_plan(2, 3, "1f1b", dp=4)
    whole, part = timed(plan), of_kinds(plan)
    assert part.timeline.representative_rank and part.timeline.step_seconds == whole.timeline.step_seconds
    found = [
        {
            (pid, r["ts"], r["dur"], r["cat"], r["tid"])
            for r in records(build_trace([[each]], "toy", only), "X")
            for pid in drawn & {r["pid"]}
        }
        for each in (whole, part)
    ]
    assert found[0] == found[1] and {pid for pid, *_ in found[1]} == drawn
    arrows = [len(records(build_trace([[each]], "toy"), "f")) for each in (whole, part)]
    assert arrows == [2 * 3 * 4, 2 * 3]


def test_names_of_any_kind_are_escaped(tmp_path):
    weird = 'a"b\\c\n</script>\u2028é'
    one = task(0, group=weird)
    timeline = simulate([one], lambda t: Cost(1.0, "measured", 0.0))
    text = trace_json(build_trace([[TracedStep(timeline, [one], "simulated")]], weird))
    assert text.isascii()
    (record,) = records(json.loads(text), "X")
    assert record["args"]["group"] == weird and weird in record["name"]


# ------------------------------------------------------------------------------ ranks that another one represents


def drawn(trace, plan):
    """Slices, arrows and names of a trace, in any order; where several let a collective begin, or a pass for which all
    ranks wait, whichever was named.
    """
    slices = [r | {"args": {**r["args"]}} for r in records(trace, "X")]
    for slice in slices:
        if slice["args"]["group"] not in plan.groups or ">" in slice["args"].get("cause", ""):
            slice["args"].pop("cause", "")
    ends = {r["id"]: [] for r in records(trace, "s")}
    for record in (*records(trace, "s"), *records(trace, "f")):
        ends[record["id"]].append((record["pid"], record["tid"], record["ts"]))
    spelled = [json.dumps(r, sort_keys=True) for r in (*slices, *records(trace, "M"), *records(trace, "C"))]
    return sorted(spelled), sorted(ends.values())


@given(
    st.lists(st.lists(st.integers(0, 1), min_size=4, max_size=4), min_size=1, max_size=3),
    st.integers(1, 3),
    st.sampled_from((0, 3)),
    st.sets(st.integers(0, 23), min_size=1),
    st.randoms(use_true_random=False),
)
def test_asked_for_ranks_are_drawn_as_if_all_had_been_simulated(choices, pp, zero, ranks, chance):
    plan = replicas(choices, pp)
    plan = with_fields(plan, layouts={"llm": with_fields(plan.layouts["llm"], zero=zero)})
    require_drawn_as_if_all_had_been_simulated(plan, ranks, chance)


@examples(40)
@given(any_fed_replicas(), st.sets(st.integers(0, 11), min_size=1), st.randoms(use_true_random=False))
def test_replicas_with_their_encoders_are_drawn_as_if_all_had_been_simulated(plan, ranks, chance):
    require_drawn_as_if_all_had_been_simulated(plan, ranks, chance)


def require_drawn_as_if_all_had_been_simulated(plan, ranks, chance):
    costs: dict[tuple, Cost] = {}

    def price(task):
        key = task.module, task.phase, task.of, task.layers, task.sizes, task.micro_batch is None
        return costs.setdefault(key, Cost(chance.randint(1, 8) / 1024, "measured", 0.0))

    def trace(others):
        tasks = expand(plan, 0, others.ranks)
        timeline = simulate(tasks, price, plan.size, others)
        memory = memory_of(timeline, tasks, lambda t: 2.0**20, lambda rank: 2.0**30)
        return build_trace([[TracedStep(timeline, tasks, "simulated", memory)]], "toy", Ranks(sorted(ranks)))

    assert drawn(trace(identical_groups(plan, 0)), plan) == drawn(trace(NO_IDENTICAL_GROUPS), plan)


def test_a_transfer_stays_within_its_replica():
    """Twenty replicas of two stages: ranks 2r and 2r + 1 send to ranks 40 + 2r and 41 + 2r."""
    part = of_kinds(replicas([[0] * 20] * 2, 2))
    assert len(part.timeline.representative_group) == 19
    for only in ((0, 1, 2, 3, 40, 41, 42, 43), (2, 3, 42, 43), (2, 41)):
        trace = build_trace([[part]], "toy", Ranks(only))
        tails = {r["id"]: r["pid"] for r in records(trace, "s")}
        found = {(tails[r["id"]], r["pid"]) for r in records(trace, "f")}
        assert found == {(a, b) for a in only for b in only if abs(a - b) == 40}
        named = {(r["pid"], r["args"]["group"]) for r in records(trace, "X") if r["cat"] == "F"}
        assert named == {(rank, f"r{rank % 40 // 2}") for rank in only}


def test_measured_ranks_are_joined_by_their_places():
    """A measured task has an event for each rank, in whatever order they began."""
    whole = timed(replicas([[0, 1]], 2))
    events = [e._replace(ranks=Ranks((rank,))) for e in whole.timeline.events for rank in sorted(e.ranks)[::-1]]
    apart = replace(whole, timeline=replace(whole.timeline, events=tuple(events)), label="measured")
    arrows = [drawn(build_trace([[each]], "toy"), replicas([[0, 1]], 2))[1] for each in (whole, apart)]
    assert arrows[0] == arrows[1] and arrows[0]
