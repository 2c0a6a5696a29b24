"""`make parsers`: installs each program's own parser into a folder of its own, runs every exported file and its
mutations through it, and writes what it says to tests/targets/verdicts, which the suite compares files with.
"""

import os
import stat
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

from planner.errors import InputError
from planner.targets import TARGETS, Launch, WrittenLaunch, arguments_of, read_target
from tests.targets.launches import LAUNCHES, known_of, target_of
from tests.targets.parser_runs import PARSERS, answers_of, digest, refusal, refusals, write_verdicts

WHEELS = {"megatron": (("megatron-core==0.19.2", "3.12"), ("triton==3.9.0", ""))}  # and the Python that a wheel is for
REPOSITORY, EXAMPLES = "https://github.com/NVIDIA/Megatron-LM", "core_v0.19.0"
HOLES = {"DATA_PATH": "tokens", "TOKENIZER_MODEL": "tokenizer", "NODE_RANK": "0", "MASTER_ADDR": "node-0"}
HOLES |= {"MODEL_PROVIDER": "nemotron-moe-vlm", "DATASET_PROVIDER": "mock"}  # those of the example itself
VARIABLES = ("CUDA_DEVICE_MAX_CONNECTIONS", "NVTE_CPU_OFFLOAD_V1")
STUB = f'#!/bin/sh\nprintf "%s\\n" "${{{VARIABLES[0]}}}" "${{{VARIABLES[1]}}}" "$@" > "$SEEN"\n'
TP = "--tensor-model-parallel-size"
MUTATIONS = {  # by what is wrong: arguments that are taken away, and those that are given
    "unknown": ((), ("--tensor-model-parallel-sise", "2")),
    "contradictory": ((TP,), (TP, "7")),
    "out of range": (("--micro-batch-size",), ("--micro-batch-size", "0")),
    "missing": (("--num-layers",), ()),
    "another version": ((), ("--checkpoint-activations",)),
}


def script_of(name: str) -> str:
    """The exported file of a launch."""
    launch = LAUNCHES[name]
    target = target_of(launch)
    arguments = arguments_of(target, launch, target.versions[0])
    return target.write(WrittenLaunch(launch, arguments, target.versions[0], (name,)))


def run_script(text: str, folder: Path) -> tuple[list[str], dict[str, str], int]:
    """Run a script by bash, with a torchrun that notes what it is told: arguments, environment, ranks."""
    seen, stub, script = folder / "seen", folder / "torchrun", folder / "launch.sh"
    stub.write_text(STUB)
    stub.chmod(stub.stat().st_mode | stat.S_IXUSR)
    script.write_text(text)
    environment = {"PATH": f"{folder}:{os.environ['PATH']}", "SEEN": str(seen), **HOLES}
    subprocess.run(["bash", str(script)], env=environment, check=True)
    words = seen.read_text().splitlines()
    exported = {name: value for name, value in zip(VARIABLES, words, strict=False) if value}
    words = words[len(VARIABLES) :]
    at = next(at for at, word in enumerate(words) if word.endswith(".py") or words[at - 1] == "-m")
    launcher = dict(pairwise(words[:at]))
    ranks = int(launcher["--nproc-per-node"]) * int(launcher.get("--nnodes", 1))
    return words[at + 1 :], exported, ranks


def mutated(argv: list[str], taken: tuple[str, ...], given: tuple[str, ...]) -> list[str]:
    """A command without some arguments, and with others, by the names that the program has for them."""
    if "--llm-tp" in argv:
        taken, given = (tuple(word.replace(TP, "--llm-tp") for word in words) for words in (taken, given))
    kept, skips = [], False
    for word in argv:
        skips = word in taken if word.startswith("--") else skips
        kept += [] if skips else [word]
    return [*kept, *given]


def program_of(launch: Launch) -> str:
    """What torchrun is told to start."""
    (program,) = target_of(launch).programs
    return program if program.endswith(".py") else f"-m {program}"


def refused_here(argv: list[str], name: str) -> str:
    """What `planner import` says of a command; empty: it reads it."""
    launch = LAUNCHES[name]
    text = f"torchrun {program_of(launch)} {' '.join(argv)}\n"

    def read() -> object:
        return read_target(TARGETS["megatron"], text, "launch.sh", {}, lambda command: known_of(launch))

    return refusal(read, InputError)


def install(name: str) -> Path:
    """The folder of a program's packages, installed where it is not there."""
    folder = PARSERS / name
    for wheel, python in WHEELS[name]:
        package = wheel.partition("=")[0].replace("-", "_")
        if not list(folder.glob(f"{package}-*")):
            of = ("--ignore-requires-python", "--python-version", python, "--implementation", "cp") if python else ()
            abi = ("--abi", f"cp{python.replace('.', '')}", "--only-binary", ":all:") if python else ()
            pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder))
            subprocess.run([*pip, *of, *abi, wheel], check=True)
    return folder


def checkout() -> Path:
    """Megatron-LM's examples of several modules, which no wheel has; MEGATRON_LM names another repository to clone."""
    folder = PARSERS / "megatron-lm"
    if not folder.exists():
        clone = ("git", "clone", "--quiet", "--depth", "1", "--filter=blob:none", "--sparse", "--branch", EXAMPLES)
        subprocess.run([*clone, os.environ.get("MEGATRON_LM", REPOSITORY), str(folder)], check=True)
        subprocess.run(["git", "-C", str(folder), "sparse-checkout", "set", "examples/mimo"], check=True)
    return folder


def verdicts() -> dict[str, dict[str, Any]]:
    """By launch: the digest of its file, what the parser derives, and who refuses each mutation."""
    cases, names = [], []
    with tempfile.TemporaryDirectory() as folder:
        for name, launch in LAUNCHES.items():
            argv, environment, ranks = run_script(script_of(name), Path(folder))
            own = {"environment": environment, "ranks": ranks, "major": 10 if launch.blackwell else 9}
            own["program"] = target_of(launch).programs[0]
            cases += [{"argv": argv, **own}, *({"argv": mutated(argv, *how), **own} for how in MUTATIONS.values())]
            names.append(name)
    paths = f"{install('megatron')}:{checkout()}"
    variables = {"PYTHONPATH": paths, "RANK": "0", "WORLD_SIZE": "1"}
    answers, each = answers_of(sys.executable, "megatron_parser.py", cases, variables), 1 + len(MUTATIONS)
    found: dict[str, dict[str, Any]] = {}
    for number, name in enumerate(names):
        accepted, *others = answers[number * each : (number + 1) * each]
        here = (refused_here(case["argv"], name) for case in cases[number * each + 1 : (number + 1) * each])
        found[name] = {"sha256": digest(script_of(name)), **accepted, "refused": refusals(MUTATIONS, others, here)}
    return found


if __name__ == "__main__":
    write_verdicts("megatron", {"parser": TARGETS["megatron"].checked, "launches": verdicts()})
