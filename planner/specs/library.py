"""Looks up shipped files by name, `a100x64`, and other files by path, `my/cluster.yaml`."""

import os
from pathlib import Path
from typing import TypeVar

from planner import files
from planner.errors import InputError
from planner.specs.framework.software import Software
from planner.specs.hardware.cluster import Cluster
from planner.specs.hardware.profile import Profile
from planner.specs.job import Job
from planner.specs.model import Model

T = TypeVar("T")
FOLDERS: dict[type, str] = {Model: "models", Cluster: "clusters", Profile: "devices", Job: "jobs", Software: "software"}


def shipped_folder() -> Path:
    """Return the folder of shipped profiles: inside the package when installed, beside it in a checkout."""
    package = Path(__file__).parents[1]
    inside = package / "profiles"
    return inside if inside.is_dir() else package.parent / "profiles"


def cache_folder() -> Path:
    """Return the folder of profiles that were measured here."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "planner" / "profiles"


def shipped_names(kind: type) -> list[str]:
    """Return the names of all shipped files of a kind."""
    return sorted(path.stem for path in (shipped_folder() / FOLDERS[kind]).glob("*.yaml"))


def is_path(reference: str) -> bool:
    """Whether a reference is the path of a file, and no name of a shipped one."""
    return "/" in reference or reference.endswith((".yaml", ".yml"))


def is_file(path: Path) -> bool:
    """Whether there is such a file; False also for invalid paths (too long, a null byte)."""
    return os.path.isfile(path)


def find_file(reference: str, kind: type, base: Path | None = None, where: str = "") -> Path:
    """Return the path of a file given by name or path; a relative path is tried from `base` first.

    `where`: the place of the reference, for errors. Raises InputError for an unknown name.
    """
    if kind is Model and reference.endswith(".json"):
        fix = f"planner import hf {reference} -o model.yaml, and name that file; or planner ask --hf {reference}"
        raise InputError(f"`{reference}` is no model file", where=where or "MODEL", fix=fix)
    if is_path(reference):
        return base / reference if base and is_file(base / reference) else Path(reference)
    path = shipped_folder() / FOLDERS[kind] / f"{reference}.yaml"
    if not is_file(path):
        what = FOLDERS[kind].removesuffix("s")
        known = shipped_names(kind)
        fix = files.nearest_word(reference, known) or f"one of {', '.join(known)}; or a path"
        raise InputError(f"no {what} is called `{reference}`", where=where or what.upper(), fix=fix)
    return path


def read_named(reference: str, kind: type[T], base: Path | None = None, where: str = "") -> tuple[T, Path]:
    """Read a file given by name or path; return its content and its path. Raises InputError."""
    path = find_file(reference, kind, base, where)
    return files.read(path, kind), path
