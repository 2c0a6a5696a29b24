"""Whatever the plan, loss and gradients are those of one process, and every task is measured once on its ranks."""

import pytest

from planner.launch.processes import launch
from planner.launch.worker import joined_world
from planner.plan.plan_file import Group, Layout, Step, group_name
from planner.plan.tasks.expand import expand
from planner.runtime.execute.training_loop import train
from planner.runtime.run_options import RunOptions, TrainingOptions
from planner.simulate import Timeline
from planner.simulate.timeline import TaskEvent
from planner.specs.base import Ranks, with_fields
from planner.specs.layers import Decoder, Vit
from planner.specs.parameters import parameter_counts
from tests.examples import soaked, thorough
from tests.plans import plan_of, uses
from tests.runtime.training_worlds import asked_for, choose_warm_up

pytestmark = pytest.mark.slow

DECODER = Decoder(layers=2, hidden=32, heads=8, kv_heads=4, ffn=48, vocab=64)
GPT = Decoder(layers=2, hidden=32, heads=8, ffn=48, vocab=64, gated=False, norm="layer", bias="all",
              positions="learned", max_positions=64, tied=True)  # fmt: skip
VIT = Vit(layers=2, hidden=32, heads=8, ffn=48, patch=2, merge=2, out=8)
# Rows of groups as (first rank, degree): ⟨2,1,1⟩, ⟨4⟩, ⟨1,1,2⟩, then half of the ranks idle.
MIXED = [[(0, 2), (2, 1), (3, 1)], [(0, 4)], [(0, 1), (1, 1), (2, 2)], [(1, 2)]]
APART = [[(0, 2), (2, 1)], [(0, 2)], [(3, 1)]]  # ranks with two, one and no micro-batches
PAIRS = [[(0, 2)], [(0, 1), (1, 1)], [(1, 1)]]
CASES = {  # world size → name → the module, its layout, one step's rows each, dtype
    4: {
        "decoder": (DECODER, {"zero": 3}, [MIXED], "float64"),
        "two steps": (DECODER, {"zero": 3}, [MIXED[:2], MIXED[2:]], "float64"),
        "float32": (DECODER, {"zero": 3}, [MIXED], "float32"),
        "bf16": (DECODER, {"zero": 3}, [MIXED], "bf16"),
        "gpipe": (DECODER, {"zero": 3}, [MIXED], "float64"),
        "recompute": (DECODER, {"zero": 3, "recompute": "full"}, [MIXED], "float64"),
        "gpt": (GPT, {"zero": 3}, [MIXED], "float64"),
        "vit": (VIT, {"zero": 3}, [MIXED], "float64"),
        "vit float32": (VIT, {"zero": 3}, [MIXED], "float32"),
        "zero 2": (DECODER, {"zero": 2}, [APART, MIXED], "float64"),
        "zero 1": (VIT, {"zero": 1}, [APART], "float64"),
        "zero 0": (DECODER, {"zero": 0}, [APART, MIXED], "float64"),
    },
    2: {
        "decoder": (DECODER, {"zero": 3}, [PAIRS], "float64"),
        "decoder float32": (DECODER, {"zero": 3}, [PAIRS], "float32"),
        "vit": (VIT, {"zero": 3}, [PAIRS], "float64"),
        "zero 1": (DECODER, {"zero": 1}, [PAIRS], "float64"),
    },
}
TOLERANCE = {"float64": (1e-12, 1e-12), "float32": (1e-6, 1e-5), "bf16": (1e-2, 5e-2)}


def plan_for(size, name):
    """Two items for every rank of a group, of different lengths."""
    spec, layout, steps, dtype = CASES[size][name]
    groups, items, made = {}, {}, []
    for rows in steps:
        placed = []
        for row in rows:
            placed.append({})
            for first, degree in row:
                ranks = Ranks(range(first, first + degree))
                groups[group_name(ranks)] = Group(ranks=ranks, split={"ulysses": degree})
                new = range(len(items), len(items) + 2 * degree)
                items |= {item: 4 * (2 + item * 5 % 11) for item in new}
                placed[-1][group_name(ranks)] = (*new,)
        order = {"llm": "gpipe"} if name == "gpipe" else {}
        sync = "micro_batch" if layout["zero"] == 3 else "step"
        made.append(Step(sync=sync, micro_batches=tuple(placed), order=order))
    whole = Layout(ranks=Ranks(range(size)), dp=size, dtype=dtype, **layout)
    plan = plan_of(size, uses(size, {"llm": spec}, {"llm": items}), {"llm": whole}, groups, made[0])
    return with_fields(plan, steps=tuple(made))


def steps_of(size, name):
    """All of the plan, and its first again."""
    return len(CASES[size][name][2]) + 1


def worlds(worker, names, warm):
    """These cases of this many ranks, in one world."""
    choose_warm_up(warm)
    with joined_world(worker, timeout_s=60):
        results = {}
        for name in names:
            steps = steps_of(worker.world_size, name)
            options = RunOptions(steps=steps, verify=True, seed=5, training=TrainingOptions(learning_rate=3e-3))
            results[name] = train(worker, plan_for(worker.world_size, name), options)
        return results


OFTEN = (4, "decoder"), (4, "two steps"), (4, "bf16"), (4, "vit float32")  # the others in the soak


@pytest.fixture(scope="module")
def results(request):
    asked = {*asked_for(request, "size", "name"), (4, "decoder")}
    names = {size: [name for each, name in asked if each == size] for size in CASES}
    return {size: launch(worlds, size, names[size], thorough())[0] for size in CASES if names[size]}


every = pytest.mark.parametrize(
    ("size", "name"), soaked([(size, name) for size, cases in CASES.items() for name in cases], OFTEN)
)


@every
def test_loss_and_gradients_are_those_of_one_process(results, size, name):
    plan, verified = plan_for(size, name), results[size][name].verify
    assert verified.steps == len(plan.steps)
    assert verified.items == len(plan.uses.items["llm"])
    loss, gradient = TOLERANCE[CASES[size][name][3]]
    assert (verified.loss_rel_err <= loss, verified.grad_rel_err <= gradient) == (True, True), verified


@every
def test_every_task_is_measured_on_its_ranks(results, size, name):
    plan = plan_for(size, name)
    for at, step in enumerate(results[size][name].steps):
        tasks = {task.id: task for task in expand(plan, at % len(plan.steps))}
        assert {(m.id, m.rank) for m in step.measured} == {(t.id, rank) for t in tasks.values() for rank in t.ranks}
        passes = {phase: [m for m in step.measured if tasks[m.id].phase == phase] for phase in ("F", "B", "update")}
        for phase, count in (("F", 1), ("B", 1), ("update", 1)):
            assert len({(m.id, m.rank) for m in passes[phase]}) == count * len(passes[phase])
        assert all(-1e-9 <= m.start <= m.end <= step.seconds and 0 <= m.comm <= m.end - m.start for m in step.measured)
        assert all((m.comm > 0) == (len(tasks[m.id].ranks) > 1) for m in passes["F"] + passes["B"])


@every
def test_time_adds_up(results, size, name):
    """No rank does two things at once: compute, exposed communication and idle time make up the step."""
    plan = plan_for(size, name)
    for at, step in enumerate(results[size][name].steps):
        tasks = {task.id: task for task in expand(plan, at % len(plan.steps))}
        events = tuple(
            TaskEvent(m.id, tasks[m.id].phase, "llm", Ranks((m.rank,)), m.start, m.end, m.comm) for m in step.measured
        )
        timeline = Timeline(events, step.seconds, size)
        for rank, parts in enumerate(timeline.rank_breakdowns()):
            total = sum(m.end - m.start for m in step.measured if m.rank == rank)
            assert parts.compute + parts.exposed_comm == pytest.approx(total, rel=1e-6)
            assert total <= step.seconds


def test_bytes_of_the_collectives_are_those_of_the_parameters(results):
    """Three quarters of all: gathered twice for layers, once for the rest, which stays; reduced once."""
    counts, bytes_each, others = parameter_counts(DECODER), 8, 3
    (step, *_) = results[4]["decoder"].steps
    for row in range(len(MIXED)):
        for rank in range(4):
            found = {
                phase: sum(
                    m.sent_bytes for m in step.measured if m.id == f"llm[0-1]/{phase}/{row}/all" and m.rank == rank
                )
                for phase in ("gather", "sync")
            }
            assert found["sync"] == counts.total * bytes_each * others / 4
            assert found["gather"] == (counts.total + counts.largest_layer * DECODER.layers) * bytes_each * others / 4
