"""Keeps which cases were found unchanged, so that they are not solved again: by a digest of all that verdicts rest on.

That is the stored plan, everything its job reads, what is tolerated, and the code: planner's own files, and the
versions of the packages that solve.
"""

import hashlib
import sys
from collections.abc import Iterable
from dataclasses import asdict, fields
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path

import planner
from planner import files
from planner.check.finding import Tolerances
from planner.plan.plan_file import Plan
from planner.specs.inputs import Inputs

SOLVERS = ("numpy", "ortools", "pulp")
CODE = (".py", ".so", ".yaml")


class VerdictStore:
    """A folder with an empty file for each case that was found unchanged; None: nothing is kept."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder

    def key(self, stored: Plan, inputs: Inputs, tolerances: Tolerances) -> str:
        """The digest of all that the verdict on a case rests on; empty where none is kept."""
        if self.folder is None:
            return ""
        read = {each.name: getattr(inputs, each.name) for each in fields(inputs) if each.name != "sources"}
        read["batches"] = [asdict(batch) for batch in inputs.batches]
        digests = {role: files.digest(path) for role, path in inputs.sources.items()}
        facts = {"plan": stored, "inputs": read, "digests": digests, "tolerances": asdict(tolerances)}
        return digest_of([files.json_text(facts), code_digest()])

    def unchanged(self, key: str) -> bool:
        return self.folder is not None and (self.folder / key).is_file()

    def keep(self, key: str) -> None:
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
            (self.folder / key).touch()


@lru_cache(maxsize=1)
def code_digest() -> str:
    """The digest of planner's own files, and of the versions of what solves."""
    root = Path(planner.__file__).parent
    own = sorted(path for path in root.rglob("*") if path.suffix in CODE)
    versions = f"{sys.version} {' '.join(map(version, SOLVERS))}"
    return digest_of([versions, *map(files.digest, own)])


def digest_of(texts: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()
