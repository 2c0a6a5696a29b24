"""Names of shipped files, and paths: `a100x64` or `my/cluster.yaml`."""

import os
from pathlib import Path
from typing import TypeVar

from planner import files
from planner.errors import InputError
from planner.specs.cluster import Cluster
from planner.specs.job import Job
from planner.specs.model import Model
from planner.specs.profile import Profile
from planner.specs.software import Software

T = TypeVar("T")
FOLDERS: dict[type, str] = {
    Model: "models",
    Cluster: "clusters",
    Profile: "devices",
    Job: "jobs",
    Software: "software",
}


def shipped() -> Path:
    """The folder of shipped profiles: inside the package when installed, beside it in a checkout."""
    package = Path(__file__).parents[1]
    inside = package / "profiles"
    return inside if inside.is_dir() else package.parent / "profiles"


def cache() -> Path:
    """Where measured profiles are kept."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "planner" / "profiles"


def names(kind: type) -> list[str]:
    """The shipped names of a kind of file."""
    return sorted(path.stem for path in (shipped() / FOLDERS[kind]).glob("*.yaml"))


def is_file(path: Path) -> bool:
    """Whether there is such a file; what can be no path at all (too long, a null byte) is none."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def find(reference: str, kind: type, base: Path | None = None, where: str = "") -> Path:
    """The file that a name or a path means; a relative path is tried from `base` first.

    `where` says who asks. Raises InputError.
    """
    if "/" in reference or reference.endswith((".yaml", ".yml")):
        for folder in [base] if base else []:
            if is_file(folder / reference):
                return folder / reference
        return Path(reference)
    path = shipped() / FOLDERS[kind] / f"{reference}.yaml"
    if not is_file(path):
        what = FOLDERS[kind].removesuffix("s")
        fix = f"one of {', '.join(names(kind))}; or a path"
        raise InputError(f"no {what} is called `{reference}`", where=where or what.upper(), fix=fix)
    return path


def read(reference: str, kind: type[T], base: Path | None = None, where: str = "") -> tuple[T, Path]:
    """The file that a name or a path means, read, and where it is."""
    path = find(reference, kind, base, where)
    return files.read(path, kind), path
