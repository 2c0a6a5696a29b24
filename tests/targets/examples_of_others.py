"""`python -m tests.targets.examples_of_others CHECKOUT`: how the launch files of a checkout of Megatron-LM end, and the
digest of each, in tests/targets/verdicts. The files themselves are not kept.
"""

import csv
import hashlib
import subprocess
import sys
import tempfile
from pathlib import Path

from planner import pipeline
from planner.errors import InputError
from planner.workflows.imported_launches import import_launch
from tests.targets.parser_runs import VERDICTS

LIST = VERDICTS / "megatron_examples.csv"
COLUMNS = ("file", "sha256", "set", "ended", "about")
FOLDERS = ("examples", "tests/functional_tests/test_cases/gpt", "tests/functional_tests/test_cases/moe")
DEVICE = "h100"
# For what scripts compute: nothing but logs, or the values that they have where nothing is given.
GIVEN: dict[str, dict[str, str]] = {
    "examples/mixtral/train_mixtral_8x7b_distributed.sh": {"LOGGING_ARGS": ""},
    "examples/llama/train_llama3_8b_h100_fp8.sh": {
        "DTYPE_ARGS": "--fp8-format hybrid --fp8-amax-history-len 1024 --fp8-amax-compute-algo max --fp8-param-gather",
        "DATA_ARGS_LIST": "--mock-data --tokenizer-type NullTokenizer --vocab-size 128256",
    },
}


def ended(path: Path, gpus: str, given: dict[str, str]) -> tuple[str, str]:
    """Whether a file became a job that has a price, or which of its arguments or lines was refused, and why."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            pipeline.predict(str(import_launch("megatron", path, gpus, Path(folder) / "job", given).job))
        except InputError as error:
            place = error.where.rpartition("/")[2]
            return "refused", f"{error.message} ({place})"
    return "priced", ""


def listed(checkout: Path) -> list[tuple[str, ...]]:
    """Every launch file, as it is and, where it asks for something, with that."""
    found = []
    for folder in FOLDERS:
        for path in sorted((checkout / folder).rglob("*")):
            if path.suffix == ".sh" or path.name == "model_config.yaml":
                name, digest = path.relative_to(checkout).as_posix(), hashlib.sha256(path.read_bytes()).hexdigest()[:16]
                for given in filter(None, ({"": ""}, GIVEN.get(name))):
                    own = {key: value for key, value in given.items() if key}
                    gpus = "64xh100" if "mixtral" in name else f"8x{DEVICE}"
                    found.append((name, digest, " ".join(own), *ended(path, gpus, own)))
    return [row for row in found if "launches nothing" not in row[4] and "no arguments" not in row[4]]


if __name__ == "__main__":
    at = Path(sys.argv[1])
    commit = subprocess.run(["git", "-C", str(at), "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    with LIST.open("w", newline="") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(listed(at))
    sys.stderr.write(f"of commit {commit.stdout.strip() or 'unknown'}\n")
