"""Part of `make parsers`: installs DeepSpeed, Accelerate and kubernetes-validate, runs exported files and mutations
through the first two and every kind of Job through the third, and writes what they say to tests/targets/verdicts.
"""

import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from planner.errors import InputError
from planner.targets import LAUNCHERS, TARGETS, Launch, Started, WrittenLaunch, arguments_of, read_target, starting
from planner.targets.torchtitan_models import flavor_module
from tests.targets.launches import GPT, MIXTRAL, known_of, launch
from tests.targets.parser_runs import answers_of, digest, environment, refusal, refusals, write_verdicts

WHEELS = ("deepspeed==0.19.8", "accelerate==1.15.0", "kubernetes-validate==1.37.0", "setuptools")
LLAMA_8B, LLAMA_70B = flavor_module("llama3", "8B"), flavor_module("llama3", "70B")
MODELS = {"llama-3-8b": LLAMA_8B, "llama-3-70b": LLAMA_70B}

LAUNCHES: dict[str, dict[str, Launch]] = {
    "deepspeed": {
        "zero-0": launch(LLAMA_8B, 8, 4096, 64, zero=0),
        "zero-1": launch(LLAMA_8B, 16, 4096, 64, zero=1, micro_batch=2),
        "zero-2": launch(LLAMA_8B, 32, 8192, 256, zero=2, recompute="full"),
        "zero-3": launch(LLAMA_70B, 64, 8192, 256, zero=3, recompute="full"),
        "alone": launch(LLAMA_8B, 1, 4096, 8, zero=0),
        "bf16-gradients": launch(LLAMA_8B, 8, 4096, 64, zero=2, gradients="bf16"),
        "float32": launch(GPT, 16, 2048, 64, zero=1, dtype="float32"),
        "autotp": launch(LLAMA_8B, 16, 4096, 64, tp=4, zero=2),
        "ulysses": launch(LLAMA_8B, 32, 65536, 32, cp=8, ulysses=8, zero=3, recompute="full"),
        "ulysses-zero-2": launch(LLAMA_70B, 64, 32768, 64, cp=4, ulysses=4, zero=2, recompute="full"),
        "pipeline": launch(LLAMA_70B, 64, 4096, 512, pp=8, zero=1),
        "pipeline-0": launch(GPT, 32, 2048, 256, pp=4, zero=0, micro_batch=4),
        "pipeline-full": launch(LLAMA_70B, 64, 4096, 256, pp=8, zero=1, recompute="full"),
        "moe-replicated": launch(MIXTRAL, 64, 4096, 256, zero=3),
        "accumulated": launch(LLAMA_8B, 8, 4096, 1024, zero=3, micro_batch=4),
        "large": launch(LLAMA_70B, 512, 8192, 1024, zero=3),
        "selective": launch(LLAMA_8B, 8, 8192, 64, zero=2, recompute="selective"),
        "one-node": launch(LLAMA_8B, 4, 4096, 32, zero=3),
        "two-nodes": launch(LLAMA_8B, 16, 8192, 64, zero=3, micro_batch=2),
        "ulysses-two": launch(LLAMA_8B, 8, 16384, 16, cp=2, ulysses=2, zero=1),
    },
    "accelerate": {
        "fsdp": launch(LLAMA_8B, 8, 8192, 64, zero=3),
        "fsdp-kept": launch(LLAMA_8B, 32, 8192, 256, zero=2, recompute="full"),
        "full": launch(LLAMA_70B, 64, 8192, 256, zero=3, recompute="full"),
        "hsdp": launch(LLAMA_8B, 64, 4096, 256, zero=3, replica=4),
        "hsdp-kept": launch(LLAMA_8B, 32, 4096, 256, zero=2, replica=2, micro_batch=2),
        "tp": launch(LLAMA_8B, 16, 4096, 64, tp=4, zero=3),
        "tp-node": launch(LLAMA_70B, 64, 8192, 64, tp=8, zero=3, recompute="full"),
        "tp-alone": launch(LLAMA_8B, 8, 4096, 16, tp=8, zero=0),
        "hsdp-tp": launch(LLAMA_8B, 64, 4096, 256, tp=2, replica=4, zero=3),
        "cp": launch(LLAMA_8B, 32, 131072, 16, cp=8, zero=3, recompute="full"),
        "cp-all": launch(LLAMA_8B, 8, 65536, 4, cp=8, zero=2, recompute="full"),
        "cp-tp": launch(LLAMA_70B, 64, 32768, 32, cp=4, tp=4, zero=3, recompute="full"),
        "hsdp-cp": launch(LLAMA_8B, 32, 32768, 32, cp=4, replica=2, zero=3),
        "alone": launch(LLAMA_8B, 1, 2048, 64, zero=0),
        "float32": launch(GPT, 16, 2048, 64, zero=3, dtype="float32"),
        "moe-replicated": launch(MIXTRAL, 64, 4096, 256, zero=3),
        "one-node": launch(LLAMA_8B, 4, 4096, 32, zero=3),
        "accumulated": launch(LLAMA_8B, 8, 4096, 1024, zero=3, micro_batch=4),
        "large": launch(LLAMA_70B, 512, 8192, 1024, zero=3),
        "two-nodes": launch(LLAMA_8B, 16, 8192, 64, zero=3, micro_batch=2),
    },
}  # fmt: skip
# By what is wrong: what stands in a file, and what in its place.
MUTATIONS: dict[str, dict[str, tuple[str, str]]] = {
    "deepspeed": {
        "unknown": ('"train_batch_size"', '"train_batchsize": 1, "train_batch_size"'),
        "contradictory": ('"gradient_accumulation_steps": ', '"gradient_accumulation_steps": 7'),
        "out of range": ('"stage": ', '"stage": 7'),
        "missing": ('"train_batch_size"', '"seed"'),
        "another version": ('"stage": ', '"cpu_offload": true, "stage": '),
    },
    "accelerate": {
        "unknown": ("num_processes", "num_procs: 8\nnum_processes"),
        "contradictory": ("num_processes: ", "num_processes: 7"),
        "out of range": ("tp_size: ", "tp_size: 3"),
        "missing": ("distributed_type: FSDP\n", ""),
        "another version": ("fsdp_version: 2", "fsdp_version: 1\n  fsdp_sharding_strategy: FULL_SHARD"),
    },
}


def file_of(to: str, name: str) -> str:
    """The exported file of a launch."""
    target, own = TARGETS[to], LAUNCHES[to][name]
    version = target.versions[0]
    return target.write(WrittenLaunch(own, arguments_of(target, own, version), version, (name,)))


def mutated(text: str, kind: str, to: str) -> str:
    """A file with what is wrong in it."""
    before, after = MUTATIONS[to][kind]
    assert before in text
    return text.replace(before, after, 1) if kind != "missing" or to == "accelerate" else without_batch(text)


def without_batch(text: str) -> str:
    """DeepSpeed's settings without any batch."""
    return json.dumps({key: value for key, value in json.loads(text).items() if "batch" not in key})


def script_values(own: Launch) -> dict[str, str]:
    """What an import is told that the file leaves to its script."""
    layout = own.layout
    model = next((name for name, module in MODELS.items() if module.layers == own.module.layers), "llama-3-8b")
    named = {"model": model, "seq_length": str(own.tokens), "recompute": str(layout.recompute)}
    named |= {"pipeline_stages": str(layout.pp or 1), "batch_size": str(own.sequences)}
    return named | {"micro_batch_size": str(layout.micro_batch)}


def read(to: str, text: str, own: Launch):
    """A file as `planner import` reads it."""
    keys = {argument for row in TARGETS[to].rows for argument in row.arguments}
    given = {key: value for key, value in script_values(own).items() if key in keys}
    return read_target(
        TARGETS[to], text, "x.json" if to == "deepspeed" else "x.yaml", given, lambda command: known_of(own)
    )


def refused_here(to: str, text: str, own: Launch) -> str:
    """What `planner import` says of a file; empty: it reads it."""
    return refusal(lambda: read(to, text, own), InputError)


def install() -> Path:
    """The interpreter of an environment with the programs."""
    return environment("trainers", WHEELS[1:], ("--no-build-isolation", WHEELS[0]))


def case_of(to: str, text: str, own: Launch) -> dict[str, Any]:
    """What a parser reads of a file."""
    layout = own.layout
    return {to: text, "ranks": own.ranks, "tp": layout.tp or 1, "sp": layout.cp or 1, "pp": layout.pp or 1}


def lost(to: str, own: Launch, made: dict[str, Any]) -> list[str]:
    """Settings that came out otherwise than they were written, or nowhere."""
    wanted = arguments_of(TARGETS[to], own, TARGETS[to].versions[0])
    told = {
        key: str(value).lower().replace("float32", "fp32").replace("bfloat16", "bf16") for key, value in made.items()
    }
    return [key for key, values in wanted.items() if told.get(key) != values[0].lower()]


def verdicts(to: str) -> dict[str, dict[str, Any]]:
    """By launch: the digest of its file, what the program makes of it, and who refuses each mutation."""
    cases, each = [], 1 + len(MUTATIONS[to])
    for name, own in LAUNCHES[to].items():
        texts = [file_of(to, name), *(mutated(file_of(to, name), kind, to) for kind in MUTATIONS[to])]
        cases += [case_of(to, text, own) for text in texts]
    answers = answers_of(install(), "trainers_parser.py", cases)
    found: dict[str, dict[str, Any]] = {}
    for number, (name, own) in enumerate(LAUNCHES[to].items()):
        accepted, *others = answers[number * each : (number + 1) * each]
        texts = [case[to] for case in cases[number * each : (number + 1) * each]]
        here = (refused_here(to, text, own) for text in texts[1:])
        refused = refusals(MUTATIONS[to], others, here)
        own_verdict = {"error": accepted["error"]} if "error" in accepted else {"dp": accepted["dp"]}
        found[name] = {"sha256": digest(texts[0]), **own_verdict, "lost": lost(to, own, accepted), "refused": refused}
    return found


def jobs() -> dict[str, str]:
    """Jobs of Kubernetes around files of every kind, by the program whose file it is and the launch."""
    found = {}
    for to in ("torchtitan", "deepspeed", "accelerate"):
        for name, own in list(LAUNCHES[to if to in LAUNCHES else "deepspeed"].items())[:3]:
            target = TARGETS[to]
            version = target.versions[-1]
            text = (
                target.write(WrittenLaunch(own, arguments_of(target, own, version), version, (name,)))
                if (to in LAUNCHES)
                else torchtitan_file()
            )
            nodes = own.ranks // own.per_node
            script = starting(target.started[version], text, nodes, own.per_node)
            found[f"{to} {name}"] = LAUNCHERS["kubernetes"](Started(name, script, nodes, own.per_node, "h100-80gb"))
    return found


def torchtitan_file() -> str:
    """A TOML of torchtitan."""
    from tests.targets.torchtitan_parsers import file_of as file_of_torchtitan

    return file_of_torchtitan("vpp", "0.2")


def validated() -> dict[str, list[str]]:
    """By Job: the digest of its file, and what kubernetes-validate says, strictly."""
    found = {}
    for name, text in jobs().items():
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write(text)
            file.flush()
            command = [str(install().with_name("kubernetes-validate")), "--strict", "--version", "1.37", file.name]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        found[name] = [digest(text), "accepted" if done.returncode == 0 else (done.stdout + done.stderr)[-300:]]
    return found


if __name__ == "__main__":
    for to in LAUNCHES:
        write_verdicts(to, {"parser": TARGETS[to].checked, "launches": verdicts(to)})
    write_verdicts("kubernetes", validated())
