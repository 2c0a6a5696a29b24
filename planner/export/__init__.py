"""Plans, or what they decide, in the forms that other programs read; and back where that is possible."""

from pathlib import Path
from typing import NamedTuple

from planner import files
from planner.errors import InputError
from planner.export.ordered import with_slots
from planner.export.torch_csv import read_csv, to_csv
from planner.plan.model import Plan

TORCH_CSV = "torch-csv"
FORMATS = (TORCH_CSV,)  # what `export` writes, and `import` reads


class Exported(NamedTuple):
    """A file's text, and which micro-batch of the plan each of its micro-batches is."""

    text: str
    micro_batches: tuple[int, ...]


def written_for(plan: Plan, to: str) -> Exported:
    """A plan in another form. Raises InputError when that form cannot say what the plan does."""
    require_known(to)
    return Exported(*to_csv(plan))


def import_order_into(form: str, path: Path, plan: Plan) -> Plan:
    """A plan with the order that a file says, worth what it is then. Raises InputError, and Infeasible."""
    require_known(form)
    return with_slots(plan, read_csv(files.read_text(path), plan, str(path)), form, str(path))


def require_known(form: str) -> None:
    if form not in FORMATS:
        raise InputError(f"no form is called `{form}`", where="form", fix=f"one of {', '.join(FORMATS)}")
