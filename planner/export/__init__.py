"""Plans as files of other programs, and pipeline orders of other programs in plans."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from planner import files
from planner.errors import InputError
from planner.export.launches import Unsaid, around, told_arguments, write_launch, write_runtime
from planner.export.torch_csv import PipelineOrders, read_csv, to_csv
from planner.export.torchrec import to_torchrec
from planner.export.torchrec_prices import RankSeconds, torchrec_seconds
from planner.plan.join_plans import total_outcome, total_prediction
from planner.plan.legal.plan_laws import violations
from planner.plan.plan_file import Plan
from planner.plan.schedules import Slot
from planner.plan.schedules.explicit import slot_lines
from planner.scoring import outcome_of, prediction_of, require_memory, restate_in_objective, score
from planner.specs.base import with_fields
from planner.targets import LAUNCHERS, TARGETS


class Exporter(NamedTuple):
    """What another program is given of a plan. `write`: its file's text in a version, empty where there is one form,
    and the plan's micro-batch behind each that the text numbers, if any. Raises InputError where that program cannot
    have the plan.
    """

    what: str  # the file is called on screens
    write: Callable[[Plan, str], tuple[str, tuple[int, ...]]]


OrderReader = Callable[[str, Plan, str], PipelineOrders]  # a text, for a plan; errors call the file by the given name


def schedule(plan: Plan, version: str) -> tuple[str, tuple[int, ...]]:
    """The schedule of torch, which has one form. Raises InputError."""
    if version:
        raise InputError("torch-csv has no versions", where="--version", fix="leave it out")
    return to_csv(plan)


def started_here(plan: Plan, version: str) -> tuple[str, tuple[int, ...]]:
    """The script that runs a plan with planner's own runtime, which has one form. Raises InputError."""
    if version:
        raise InputError("planner runs plans of its own version", where="--version", fix="leave it out")
    return write_runtime(plan), ()


RUNTIME = "planner"
EXPORTERS: dict[str, Exporter] = {  # beside the programs of TARGETS
    "torch-csv": Exporter("schedule", schedule),
    "torchrec": Exporter("sharding plan", to_torchrec),
    RUNTIME: Exporter("launch script", started_here),
}

ORDER_READERS: dict[str, OrderReader] = {"torch-csv": read_csv}  # what `planner import` reads into a plan


def export_formats() -> tuple[str, ...]:
    """What `planner export` writes."""
    return (*TARGETS, *EXPORTERS)


class ExportedPlan(NamedTuple):
    """A file's text, and the plan's micro-batch behind each that the file numbers."""

    what: str
    text: str
    micro_batches: tuple[int, ...]
    note: str = ""


def export_plan(plan: Plan, to: str, version: str = "", launcher: str = "", note: str = "") -> ExportedPlan:
    """A plan as another program's file, or as a launcher's file that starts it. `note`: what is to be said of it.

    Raises InputError where that program cannot have it.
    """
    require_known(to, export_formats())
    if launcher and launcher not in LAUNCHERS:
        fix = f"one of {', '.join(LAUNCHERS)}"
        raise InputError(f"no launcher is called `{launcher[:40]}`", where="--launcher", fix=fix)
    if launcher and to not in (*TARGETS, RUNTIME):
        raise InputError(f"nothing starts a file of {to}", where="--launcher", fix="leave it out")
    target = TARGETS.get(to)
    if target:
        written = ExportedPlan(target.what, write_launch(target, plan, version, note), (), note)
    else:
        written = ExportedPlan(EXPORTERS[to].what, *EXPORTERS[to].write(plan, version), note)
    if not launcher:
        return written
    return written._replace(what=f"{launcher} file", text=around(launcher, plan, target, version, written.text))


def import_order_into(form: str, path: Path, plan: Plan) -> Plan:
    """A plan with the order of a file, scored. Raises InputError, and Infeasible."""
    require_known(form, ORDER_READERS)
    slots = ORDER_READERS[form](files.read_text(path, files.SCHEDULE), plan, str(path))
    return with_order(plan, slots, form, str(path))


def require_known(name: str, formats: Iterable[str]) -> None:
    """Raises InputError where no format has this name."""
    if name not in formats:
        raise InputError(f"no format is called `{name}`", where="--to", fix=f"one of {', '.join(formats)}")


def with_order(plan: Plan, slots: list[list[Slot]], strategy: str, name: str) -> Plan:
    """A plan of one module with every step in this order; `strategy` names where the order is from.

    Raises InputError, calling the order's file `name`, where the plan is not legal with it; Infeasible where it does
    not fit into memory.
    """
    (module,) = plan.layouts
    layout = plan.layouts[module]
    lines = slot_lines(slots, max(1, len(layout.stages) // layout.pp))
    steps = [with_fields(step, order={module: lines}, outcome=None, prediction=None) for step in plan.steps]
    made = with_fields(plan.made, strategy=strategy, decided={**plan.made.decided, "order": strategy})
    ordered = with_fields(plan, made=made, alternatives=(), steps=tuple(steps))
    problems = violations(ordered)
    if problems:
        raise InputError(f"the plan cannot run this order: {problems[0].message}", where=name, fix=problems[0].fix)
    return restate_in_objective(rescored_plan(ordered), plan.outcome.objective)


def rescored_plan(plan: Plan) -> Plan:
    """The plan with the outcomes and predictions that it has now, in seconds. Raises Infeasible."""
    scores = [score(plan, number) for number in range(len(plan.steps))]
    for each in scores:
        require_memory(plan, each)
    results = [(outcome_of(each, ""), prediction_of(each)) for each in scores]
    if len(results) == 1:
        return with_fields(plan, outcome=results[0][0], prediction=results[0][1])
    steps = [with_fields(step, outcome=o, prediction=p) for step, (o, p) in zip(plan.steps, results, strict=True)]
    total, predicted = total_outcome([o for o, _ in results]), total_prediction([p for _, p in results])
    return with_fields(plan, outcome=total, prediction=predicted, steps=tuple(steps))


__all__ = [
    "EXPORTERS",
    "ORDER_READERS",
    "ExportedPlan",
    "RankSeconds",
    "Unsaid",
    "export_formats",
    "export_plan",
    "import_order_into",
    "require_known",
    "told_arguments",
    "torchrec_seconds",
]
