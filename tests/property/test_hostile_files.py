"""Whatever a file has in it, and whatever a path leads to: an answer, or one located error of three lines.

Within the limits of `tests/hostile_files.py`; and commands write nothing but where they are told to.
"""

import random
import resource
import shlex
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from planner.errors import PlannerError
from planner.printable import UNSAFE
from tests.examples import soaked, thorough
from tests.hostile_files import BYTES, READERS, hostile, limited, odd_paths
from tests.property.test_mutants import SECONDS

ASK = "ask --gpus 8xh100 --batch 8 -o out/asked"
COMMANDS = {
    "job": ("solve {file} --effort 1 -o out/plan.yaml", "predict {file}", "fits {file}"),
    "model": (f"{ASK} --model {{file}} --seq 512",),
    "cluster": ("ask --model tiny-decoder --cluster {file} --seq 512 --batch 8 -o out/asked",),
    "plan of demo": (
        *("show {file}", "simulate {file} --trace out/t.json", "why {file}", "check {file} {file}", "run {file}"),
        *("report {file} -o out/page.html", "export {file} --to torch-csv -o out/order.csv", "why-not {file} zero=1"),
    ),
    "lengths": (f"{ASK} --model llama-3-8b --lengths {{file}}",),
    "samples": (f"{ASK} --model qwen2.5-vl-7b --lengths {{file}}",),
    "tokens": (f"{ASK} --model llama-3-8b --lengths {{folder}}",),
    "config": ("import hf {file} -o out/model.yaml", f"{ASK} --hf {{file}} --seq 512"),
    "trace": ("report {file} -o out/page.html", "simulate right.yaml --measured {file}"),
    "recording": ("replay {file}", "replay {folder} --trace out/t.json"),
    "ledger": ("report {file} -o out/page.html",),
    "records": ("ledger {folder} --rows", "report {folder} -o out/page.html", "calibrate {folder} -o out/fits"),
    "kernels": ("calibrate {folder} --device h100-80gb -o out/device.yaml",),
    "job table": ("schedule {file} --gpus 8xh100,16xa100 --html out/page.html",),
    "queue": ("schedule --state {file} --gpus 8xh100,16xa100",),
    "schedule": ("import torch-csv {file} --into right.yaml -o out/new.yaml",),
}
OFTEN = {name for name in READERS if not name.startswith("plan of ")} | {
    f"plan of {name}" for name in ("demo", "three-encoders", "three-tables", "two-stages")
}  # a plan is read as any other
MAY_BE_FOLDERS = {"records", "tokens", "config", "ledger", "digest"}  # or stand for one, or may not be there


@contextmanager
def answered(case: object):
    """An answer or an error for people, within the limits."""
    try:
        with limited():
            yield
    except PlannerError as error:
        for each in error.errors:
            text = str(each)
            assert each.where and each.fix and len(text.split("\n")) == 3, (case, text[:300])
            assert not UNSAFE.search(text) and len(text) < 6200, (case, text[:300])
    except Exception as error:
        raise AssertionError(f"{case}: {type(error).__name__}: {str(error)[:300]}") from error


@pytest.mark.every(3)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", soaked(READERS, OFTEN))
def test_hostile_files(tmp_path, name, seed):
    """10,000 in the soak."""
    reader, chance = READERS[name], random.Random(f"{name} {seed}")
    right = reader.make(tmp_path)
    raw = right.read_bytes()
    reader.read(right)
    for number in range(1 + 10_000 // len(READERS) // 3 if thorough() else 2):
        right.write_bytes(hostile(raw, chance))
        with answered((name, seed, number)):
            reader.read(right)


@pytest.mark.every(6)
@pytest.mark.parametrize("name", READERS)
def test_paths_that_are_no_files(tmp_path, name):
    reader = READERS[name]
    for kind, path in odd_paths(tmp_path, reader.make(tmp_path)).items():
        with answered((name, kind)):
            reader.read(path)
            assert name in MAY_BE_FOLDERS, (name, kind)


def tree(folder: Path) -> dict[Path, bytes | int]:
    """What is in a folder, but for `out`."""
    paths = [path for path in folder.rglob("*") if path.relative_to(folder).parts[0] != "out"]
    read = [path.is_file() and not path.is_symlink() and path.stat().st_size < 2**24 for path in paths]
    return {path: path.read_bytes() if file else path.lstat().st_mode for path, file in zip(paths, read, strict=True)}


def command_on(number: int, folder: Path) -> str:
    """A command, on files that are made in the folder."""
    chance, name = random.Random(number), [*COMMANDS][number % len(COMMANDS)]
    READERS["plan of demo"].make(folder).rename(folder / "right.yaml")
    file = READERS[name].make(folder)
    if chance.random() < 0.3:
        file = chance.choice([*odd_paths(folder, file).values()])
    else:
        file.write_bytes(hostile(file.read_bytes(), chance))
    words = chance.choice(COMMANDS[name]).format(file=shlex.quote(str(file)), folder=shlex.quote(str(folder)))
    return words.replace("\0", "?")


def few_bytes() -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (BYTES, BYTES))


@pytest.mark.slow
@pytest.mark.every(100)
@pytest.mark.parametrize("number", range(300))
def test_hostile_commands(tmp_path, number):
    command = command_on(number, tmp_path)
    before, here = tree(tmp_path), {"XDG_DATA_HOME": "out", "XDG_CACHE_HOME": "out", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "planner", *shlex.split(command)],
        cwd=tmp_path,
        env=here | {"PYTHONPATH": str(Path(__file__).parents[2])},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        preexec_fn=few_bytes,
        timeout=SECONDS,
    )
    out, errors = done.stdout.decode(), done.stderr.decode()
    said = f"{number}: {command[:300]}: {done.returncode}: {errors[-600:]}"
    assert done.returncode in (0, 1, 2, 3, 4) and "Traceback" not in errors and not UNSAFE.search(out + errors), said
    assert done.returncode != 2 or {len(each.splitlines()) for each in errors.split("error: ")[1:]} == {3}, said
    assert tree(tmp_path) == before, said
