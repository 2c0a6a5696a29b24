"""The software file that a job names; `any` is the generic framework with every knob, for what nothing need launch."""

from pathlib import Path

from planner.specs import library
from planner.specs.base import with_fields
from planner.specs.framework.knobs import Knobs
from planner.specs.framework.software import ANY, Software

GENERIC = "generic"


def read_software(reference: str, base: Path | None = None, where: str = "") -> tuple[Software, Path]:
    """Return the content of a software file, given by name or path, and its path. Raises InputError."""
    software, path = library.read_named(GENERIC if reference == ANY else reference, Software, base, where)
    return (with_fields(software, name=ANY, knobs=Knobs()) if reference == ANY else software), path
