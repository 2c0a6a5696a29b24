"""A plan as what a program that trains is told, and whether it can be: of one module, one layout, one length."""

from planner.errors import InputError
from planner.export.encoders import of, readers_and_encoders, told_by, told_encoders
from planner.plan.descriptions import fixable_layout
from planner.plan.launchable.launch_refusals import launch_refusals, plan_refusals, refusal_text
from planner.plan.launchable.launch_rules import trained_facts
from planner.plan.plan_file import Plan
from planner.printable import one_line
from planner.specs.base import Ranks, with_fields
from planner.specs.named_files import read_software
from planner.targets import (
    LAUNCHERS,
    Launch,
    Started,
    Target,
    WrittenLaunch,
    arguments_of,
    blackwell,
    chosen_version,
    runtime_script,
    starting,
)
from planner.units import plural


class Unsaid(InputError):
    """A program cannot be told a plan; it may be told another of the same problem."""


def write_launch(target: Target, plan: Plan, version: str = "", note: str = "") -> str:
    """The file that starts a plan. Raises Unsaid where the program cannot be told it, and InputError for a version that
    there is not.
    """
    told, arguments = told_by(target, plan), told_arguments(target, plan, version)
    launch = launch_of_plan(told, plan)
    kinds = " and ".join(f"{kind.count} {kind.kind}" for kind in plan.ranks)
    step = f"{plan.prediction.step_seconds:.4g} s a step, simulated"
    about = f"{one_line(plan.name)}: {plural(plan.size, 'rank')} on {kinds}, {step}"
    return told.write(WrittenLaunch(launch, arguments, chosen_version(told, version), (about, *filter(None, (note,)))))


def around(launcher: str, plan: Plan, target: Target | None, version: str, text: str) -> str:
    """A file that starts a plan as a launcher's file. Raises InputError where nodes are not alike."""
    per_node = ranks_per_node(plan)
    nodes = plan.size // per_node
    config = target.started.get(chosen_version(target, version)) if target else None
    script = starting(config, text, nodes, per_node) if config else text
    return LAUNCHERS[launcher](Started(plan.name, script, nodes, per_node, plan.ranks[0].kind))


def write_runtime(plan: Plan) -> str:
    """The script that runs a plan here, on every node. Raises InputError where nodes are not alike."""
    per_node = ranks_per_node(plan)
    return runtime_script(plan.size // per_node, per_node)


def ranks_per_node(plan: Plan) -> int:
    """Raises InputError where nodes are not alike."""
    per_node = {kind.per_node for kind in plan.ranks}
    if len(per_node) > 1 or plan.size % min(plan.size, *per_node):
        raise InputError(
            "torchrun starts as many ranks on every node", where="ranks", fix="nodes alike, all of them used"
        )
    return min(plan.size, *per_node)


def told_arguments(target: Target, plan: Plan, version: str) -> dict[str, tuple[str, ...]]:
    """The arguments that a program is given to start a plan. Raises Unsaid where none say it."""
    target = told_by(target, plan)
    wanted, launch = chosen_version(target, version), launch_of_plan(target, plan)
    require_launchable_by(target, plan)
    try:
        return arguments_of(target, launch, wanted)
    except InputError as error:
        raise Unsaid(error.message, where=in_plan(plan, error.where), fix=error.fix) from error


def in_plan(plan: Plan, path: str) -> str:
    """Where a field of a launch stands in a plan, if it does."""
    llm, encoders = readers_and_encoders(plan)
    name = encoders[0] if path.startswith("encoders.") else llm
    top, _, rest = path.removeprefix("encoders.").partition(".")
    of = {"layout": f"layouts.{name}", "module": f"uses.models.{name}", "modules": "layouts"}
    return ".".join(filter(None, (of[top], rest))) if top in of else path


def require_launchable_by(target: Target, plan: Plan) -> None:
    """Raises Unsaid for the first rule of the program that a plan breaks, whatever software it was made for."""
    framework = read_software(target.software)[0].framework
    judged = with_fields(plan, uses=with_fields(plan.uses, software=framework))
    for name, refusal in plan_refusals(judged):
        raise Unsaid(refusal_text(target.name, refusal, "plan"), where=f"layouts.{name}", fix=refusal.fix)
    launch = launch_of_plan(target, plan)
    if launch.encoders:  # of whose steps no other rule counts samples
        facts = trained_facts(launch.module, launch.ranks - launch.offset, (launch.tokens,) * launch.sequences)
        for refusal in launch_refusals(launch.layout, facts, judged.uses.software.knobs):
            where = in_plan(plan, "layout")
            raise Unsaid(refusal_text(target.name, refusal, "plan"), where=where, fix=refusal.fix)


def launch_of_plan(target: Target, plan: Plan) -> Launch:
    """What a plan starts. Raises InputError where that is no module with its encoders, or where steps are not alike."""
    name, encoders = readers_and_encoders(plan)
    layout, module, per_node = plan.layouts[name], plan.uses.models[name], ranks_per_node(plan)
    if type(module) not in target.modules:
        kinds = " or ".join(kind.__name__.lower() for kind in target.modules)
        message = f"{target.name} is told of one {kinds}, the plan has {name}"
        raise InputError(message, where="layouts", fix="a plan of one")
    for each in plan.layouts:
        require_plain(target, plan, each)
    sizes = {plan.uses.tokens(name, item) for item in plan.uses.items[name]}
    steps = {sum(len(a.items) for m in step.micro_batches for a in of(plan, m, name)) for step in plan.steps}
    if len(sizes) != 1 or len(steps) != 1:
        message = f"{target.name} is told one length of sequences, and the plan has {min(sizes)} to {max(sizes)} tokens"
        fix = "text of one length, and images of one size" if encoders else "workload: {lengths: 8192, batch_rows: 512}"
        raise InputError(message, where=f"uses.items.{name}", fix=fix)
    timing = plan.uses.prices.timing
    launch = Launch(
        module=module,
        layout=with_fields(fixable_layout(layout), dp=layout.dp),
        tokens=sizes.pop(),
        sequences=steps.pop(),
        ranks=plan.size,
        per_node=per_node,
        reduces_early=timing.overlaps_replicas,
        gathers_early=timing.gathers_ahead,
        blackwell=any(blackwell(kind.kind) for kind in plan.ranks),
        encoders=told_encoders(target, plan),
    )
    all_or_first = range(launch.offset or plan.size)
    for each, ranks in {name: range(launch.offset, plan.size), **dict.fromkeys(encoders, all_or_first)}.items():
        if [*plan.layouts[each].ranks] != [*ranks]:
            message = f"{target.name} uses all ranks, {each} {Ranks(ranks)} of them"
            raise InputError(message, where=f"layouts.{each}.ranks", fix=f"ranks: {Ranks(ranks)}")
    return launch


def require_plain(target: Target, plan: Plan, name: str) -> None:
    """Raises InputError where experts of a module are placed layer by layer, or a part of it is not trained."""
    if plan.layouts[name].experts:
        message = f"{target.name} places experts of all layers alike"
        raise InputError(message, where=f"layouts.{name}.experts", fix="leave `experts` out")
    if plan.uses.models[name].trained != "all":
        where = f"uses.models.{name}.trained"
        raise InputError(f"{target.name} trains all of a model", where=where, fix="trained: all")
