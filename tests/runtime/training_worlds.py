"""Plans made up for tests of the runtime, trained in worlds that stay warm from one plan to the next."""

from dataclasses import replace

from planner.launch.processes import launch
from planner.launch.worker import joined_world
from planner.plan.legal.plan_laws import require_legal
from planner.plan.mesh.rank_mesh import groups_over
from planner.plan.plan_file import Group, Layout, Plan, Step, group_name
from planner.runtime.execute import training_loop
from planner.runtime.execute.training_loop import train
from planner.runtime.execute.warmup import warm_up
from planner.runtime.preflight.preflight_checks import require_runnable
from planner.runtime.run_options import RunOptions, TrainingOptions
from planner.specs.base import Ranks
from planner.specs.layers import Decoder
from tests.examples import thorough
from tests.plans import plan_of, stages_of, uses

DECODER = Decoder(layers=4, hidden=32, heads=8, kv_heads=4, ffn=48, vocab=64)


def spread(size: int, spec=DECODER, *, rows=None, order=None, splits=None, **layout) -> Plan:
    """A module over all ranks by `layout`: its degrees, and what else a Layout says.

    `rows`: of each micro-batch, its groups as tuples of ranks; None: three micro-batches, each of all
    ranks together, or where the layout has cp, of all that share sequences.
    `splits`: group → its split; else as a layout with cp has it, or Ulysses over its ranks on one stage, tp aside.
    """
    pp, tp, chunks = layout.get("pp", 1), layout.get("tp", 1), layout.get("pp", 1) * layout.get("vpp", 1)
    stages = stages_of(spec.layers, chunks) if pp > 1 else ()
    whole = Layout(ranks=Ranks(range(size)), **{"stages": stages, "dtype": "float64", **layout})
    together = groups_over(whole, ("tp", "cp", "pp")).values() if whole.cp > 1 else [whole.ranks]
    rows = rows or [[*dict.fromkeys(map(tuple, together))]] * 3
    groups, items, placed = {}, {}, []
    for row in rows:
        placed.append({})
        for ranks in map(Ranks, row):
            name = group_name(ranks)
            degree = len(ranks) // (pp * tp)
            usual = {"ulysses": degree} if degree > 1 and whole.cp == 1 else {}
            split = (splits or {}).get(tuple(ranks), usual)
            groups[name] = Group(ranks=ranks, split=split)
            new = range(len(items), len(items) + 2)
            items |= {item: 4 * (2 + item * 5 % 11) for item in new}
            placed[-1][name] = (*new,)
    sync = "micro_batch" if whole.zero == 3 else "step"
    step = Step(sync=sync, micro_batches=tuple(placed), order={"llm": order} if order else {})
    return plan_of(size, uses(size, {"llm": spec}, {"llm": items}), {"llm": whole}, groups, step)


def asked_for(request, *names):
    """The values of these parameters in the tests of a file that were chosen to run: no others need be launched."""
    chosen = (item for item in request.session.items if item.path == request.path and hasattr(item, "callspec"))
    every = (item.callspec.params for item in chosen)
    values = [tuple(params[name] for name in names) for params in every if {*names} <= {*params}]
    return [*dict.fromkeys(each if len(names) > 1 else each[0] for each in values)]


ONCE = RunOptions(steps=1, verify=True, seed=5, training=TrainingOptions(learning_rate=3e-3))


def connect(executor, plan, tasks):
    """All of a warm-up that a first step cannot do without."""
    executor.local.channels.connect()


def choose_warm_up(warm: bool) -> None:
    """Of the runs of this process; usual where it is not `warm`, as a warm-up takes as long as a step of several
    modules, and files that have all kinds of plans leave it in.
    """
    training_loop.warm_up = warm_up if warm else connect


def trained(worker, runs: dict[str, tuple[Plan, RunOptions]], warm):
    """Every plan, in one world."""
    choose_warm_up(warm)
    with joined_world(worker, timeout_s=60):
        return {name: train(worker, plan, options) for name, (plan, options) in runs.items()}


def run_all(size: int, plans: dict[str, Plan], options: RunOptions = ONCE, twice=(), *, warm=None):
    """Plan → what its run measured, on the first rank.

    One step, as of a plan with one step only the first is verified; `twice`: plans whose second step shows something.
    `warm`: whether a warm-up comes before; None: in the soak.
    """
    runs = {name: (plan, replace(options, steps=2) if name in twice else options) for name, plan in plans.items()}
    for name, (plan, of_plan) in runs.items():
        require_legal(plan, name)
        require_runnable(plan, of_plan)
    return train_all(size, runs, warm)


def train_all(size: int, runs: dict[str, tuple[Plan, RunOptions]], warm: bool | None = None):
    """Run → what it measured, on the first rank, one after the other in one world; without any, no world is started."""
    return launch(trained, size, runs, thorough() if warm is None else warm)[0] if runs else {}
