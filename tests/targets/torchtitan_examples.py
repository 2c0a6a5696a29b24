"""How each TOML that torchtitan's own repository has at v0.2.2 ended here: priced, or refused with the setting.

`python -m tests.targets.torchtitan_examples CHECKOUT` writes tests/targets/verdicts/torchtitan_examples.json: of each
file its path, its digest and how it ended. The files themselves are not kept.
"""

import hashlib
import sys
import tempfile
from pathlib import Path

from planner.errors import InputError
from planner.workflows.imported_launches import import_launch
from planner.workflows.launching import plan_at
from tests.targets.parser_runs import write_verdicts

GPUS = ("64xh100", "8xh100", "512xh100")  # the first on which it starts


def ending(file: Path) -> str:
    """Seconds of a step, or the setting that is refused, and why."""
    refused = ""
    for gpus in GPUS:
        with tempfile.TemporaryDirectory() as folder:
            try:
                job = import_launch("torchtitan", file, gpus, Path(folder) / "job", {}).job
                return f"priced on {gpus}: {plan_at(str(job))[0].prediction.step_seconds:.4g} s"
            except InputError as error:
                place = (error.where or "").rpartition("(")[2].rstrip(")")
                refused = f"refused: {place}: {error.message}"
    return refused


if __name__ == "__main__":
    checkout = Path(sys.argv[1])
    found = {
        str(file.relative_to(checkout)): [hashlib.sha256(file.read_bytes()).hexdigest()[:16], ending(file)]
        for file in sorted(checkout.rglob("*.toml"))
        if file.name not in ("pyproject.toml", "pyrefly.toml")
    }
    write_verdicts("torchtitan_examples", found)
