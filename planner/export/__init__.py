"""Plans, or what they decide, in the forms that other programs read; and back where that is possible."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from planner import files
from planner.errors import InputError
from planner.export.ordered import with_slots
from planner.export.torch_csv import Orders, read_csv, to_csv
from planner.plan.model import Plan

TORCH_CSV = "torch-csv"


class Form(NamedTuple):
    """Another program's form. `write`: a plan as its text, and which micro-batch of the plan each of its micro-batches
    is. `read`: the order that a text says, for a plan, in the words of the file's name. Both raise InputError.
    """

    write: Callable[[Plan], tuple[str, tuple[int, ...]]]
    read: Callable[[str, Plan, str], Orders]


FORMS: dict[str, Form] = {TORCH_CSV: Form(to_csv, read_csv)}  # what `export` writes, and `import` reads


class Exported(NamedTuple):
    """A file's text, and which micro-batch of the plan each of its micro-batches is."""

    text: str
    micro_batches: tuple[int, ...]


def written_for(plan: Plan, to: str) -> Exported:
    """A plan in another form. Raises InputError when that form cannot say what the plan does."""
    return Exported(*form_called(to).write(plan))


def import_order_into(form: str, path: Path, plan: Plan) -> Plan:
    """A plan with the order that a file says, worth what it is then. Raises InputError, and Infeasible."""
    slots = form_called(form).read(files.read_text(path), plan, str(path))
    return with_slots(plan, slots, form, str(path))


def form_called(name: str) -> Form:
    """Raises InputError where there is none."""
    if name not in FORMS:
        raise InputError(f"no form is called `{name}`", where="form", fix=f"one of {', '.join(FORMS)}")
    return FORMS[name]
