"""Plans as files of other programs, and pipeline orders of other programs in plans."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from planner import files
from planner.errors import InputError
from planner.export.import_order import with_order
from planner.export.torch_csv import PipelineOrders, read_csv, to_csv
from planner.plan.plan_file import Plan


class Exporter(NamedTuple):
    """What another program is given of a plan. `write`: its file's text, and the plan's micro-batch behind each that
    the text numbers, if any. Raises InputError where that program cannot have the plan.
    """

    what: str  # the file is called on screens
    write: Callable[[Plan], tuple[str, tuple[int, ...]]]


OrderReader = Callable[[str, Plan, str], PipelineOrders]  # a text, for a plan; errors call the file by the given name

EXPORTERS: dict[str, Exporter] = {"torch-csv": Exporter("schedule", to_csv)}  # what `planner export` writes
ORDER_READERS: dict[str, OrderReader] = {"torch-csv": read_csv}  # what `planner import` reads into a plan


class ExportedPlan(NamedTuple):
    """A file's text, and the plan's micro-batch behind each that the file numbers."""

    what: str
    text: str
    micro_batches: tuple[int, ...]


def export_plan(plan: Plan, to: str) -> ExportedPlan:
    """A plan as another program's file. Raises InputError where that program cannot have it."""
    require_known(to, EXPORTERS)
    return ExportedPlan(EXPORTERS[to].what, *EXPORTERS[to].write(plan))


def import_order_into(form: str, path: Path, plan: Plan) -> Plan:
    """A plan with the order of a file, scored. Raises InputError, and Infeasible."""
    require_known(form, ORDER_READERS)
    slots = ORDER_READERS[form](files.read_text(path, files.SCHEDULE), plan, str(path))
    return with_order(plan, slots, form, str(path))


def require_known(name: str, formats: Iterable[str]) -> None:
    """Raises InputError where no format has this name."""
    if name not in formats:
        raise InputError(f"no format is called `{name}`", where="format", fix=f"one of {', '.join(formats)}")


__all__ = [
    "EXPORTERS",
    "ORDER_READERS",
    "ExportedPlan",
    "export_plan",
    "import_order_into",
]
