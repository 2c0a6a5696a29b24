"""Pipeline orders of plans in the formats of other programs, and back where that is possible."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from planner import files
from planner.errors import InputError
from planner.export.import_order import with_order
from planner.export.torch_csv import PipelineOrders, read_csv, to_csv
from planner.plan.plan_file import Plan

TORCH_CSV = "torch-csv"


class ExportFormat(NamedTuple):
    """Another program's format. `write`: a plan as text, and the plan's micro-batch behind each of the text's. `read`:
    the order in a text, for a plan; errors call the file by the given name. Both raise InputError.
    """

    write: Callable[[Plan], tuple[str, tuple[int, ...]]]
    read: Callable[[str, Plan, str], PipelineOrders]


EXPORT_FORMATS: dict[str, ExportFormat] = {
    TORCH_CSV: ExportFormat(to_csv, read_csv)
}  # what `export` writes, and `import` reads


class ExportedOrder(NamedTuple):
    """A file's text, and the plan's micro-batch behind each of the file's."""

    text: str
    micro_batches: tuple[int, ...]


def export_plan(plan: Plan, to: str) -> ExportedOrder:
    """A plan in another program's format. Raises InputError where that format cannot express the plan."""
    return ExportedOrder(*find_format(to).write(plan))


def import_order_into(form: str, path: Path, plan: Plan) -> Plan:
    """A plan with the order of a file, scored. Raises InputError, and Infeasible."""
    slots = find_format(form).read(files.read_text(path, files.SCHEDULE), plan, str(path))
    return with_order(plan, slots, form, str(path))


def find_format(name: str) -> ExportFormat:
    """The format of this name. Raises InputError where there is none."""
    if name not in EXPORT_FORMATS:
        raise InputError(f"no format is called `{name}`", where="format", fix=f"one of {', '.join(EXPORT_FORMATS)}")
    return EXPORT_FORMATS[name]


__all__ = [
    "EXPORT_FORMATS",
    "ExportedOrder",
    "export_plan",
    "import_order_into",
]
