"""Part of `make parsers`: installs both releases of torchtitan, runs every exported file and its mutations through the
parser of its release, and writes what they say to tests/targets/verdicts/torchtitan.json.
"""

import shlex
from typing import Any

from planner.errors import InputError
from planner.targets import TARGETS, WrittenLaunch, arguments_of, read_target
from planner.targets.torchtitan_models import CONFIGS
from tests.targets.launches import known_of
from tests.targets.parser_runs import answers_of, digest, environment, refusal, refusals, write_verdicts
from tests.targets.torchtitan_launches import LAUNCHES

RELEASES = {"0.2": "0.2.2", "0.3": "0.3.0"}
TARGET = TARGETS["torchtitan"]
TP, LOCAL = "parallelism.tensor_parallel_degree", "training.local_batch_size"
# By what is wrong: settings that are taken away, and those that are given, for the TOML and for flags.
MUTATIONS: dict[str, tuple[tuple[str, ...], dict[str, dict[str, str]]]] = {
    "unknown": ((), {"0.2": {f"{TP}s": "2"}, "0.3": {f"{TP}s": "2"}}),
    "contradictory": ((TP,), {"0.2": {TP: "7"}, "0.3": {TP: "7"}}),
    "out of range": ((LOCAL,), {"0.2": {LOCAL: "0"}, "0.3": {LOCAL: "0"}}),
    "missing": (("model.flavor", "config"), {"0.2": {"model.flavor": '"none"'}, "0.3": {}}),
    "another version": (
        (),
        {"0.2": {"training.disable_cuda_graphs": "true"}, "0.3": {"parallelism.expert_tensor_parallel_degree": "1"}},
    ),
}  # fmt: skip


def file_of(name: str, version: str) -> str:
    """The exported file of a launch."""
    launch = LAUNCHES[name][0]
    return TARGET.write(WrittenLaunch(launch, arguments_of(TARGET, launch, version), version, (name,)))


def words_of(script: str) -> list[str]:
    """The words that a script hands to torchtitan, holes filled: its arrays, in order."""
    lines = [line.strip() for line in script.splitlines() if line.startswith("  ") and "torchtitan.train" not in line]
    text = " ".join(lines).replace('"$HF_ASSETS_PATH"', "assets").replace('"$DATASET_PATH"', "data")
    return shlex.split(text)


def mutated(text: str, version: str, taken: tuple[str, ...], given: dict[str, str]) -> str:
    """A file without some settings, and with others, each on a line of its own."""
    lines = []
    for line in text.splitlines():
        key = line.strip().removeprefix("--").partition(" ")[0]
        if key not in {*taken, *(each.rpartition(".")[2] for each in taken if version == "0.2")}:
            lines.append(line)
    for setting, value in given.items():
        section, _, key = setting.rpartition(".")
        before, line = (
            (f"[{section}]", f"{key} = {value}") if version == "0.2" else ("SETTINGS=(", f"  --{setting} {value}")
        )
        lines.insert(lines.index(before) + 1, line)
    return "\n".join([*lines, ""])


def refused_here(text: str, name: str, version: str) -> str:
    """What `planner import` says of a file; empty: it reads it."""
    launch = LAUNCHES[name][0]
    file = "x.toml" if version == "0.2" else "x.sh"
    return refusal(lambda: read_target(TARGET, text, file, {}, lambda command: known_of(launch)), InputError)


def judge(version: str, cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the parser of a release says of each file."""
    name = f"torchtitan-{RELEASES[version]}"
    python = environment(name, (f"torchtitan=={RELEASES[version]}", "triton", "torchao"))
    return answers_of(python, "torchtitan_parser.py", cases)


def case_of(text: str, name: str, version: str) -> dict[str, Any]:
    """What the parser reads of a file."""
    own = {"toml": text} if version == "0.2" else {"argv": words_of(text)}
    launch = LAUNCHES[name][0]
    return {**own, "ranks": launch.ranks, "keys": [*arguments_of(TARGET, launch, version)]}


def lost(name: str, version: str, came_out: dict[str, Any]) -> list[str]:
    """Settings that came out otherwise than they were written."""
    wanted = arguments_of(TARGET, LAUNCHES[name][0], version)
    told = {key: shown(value) for key, value in came_out.items()}
    return [key for key, values in wanted.items() if key in told and told[key] != list(values)]


def shown(value: Any) -> list[str]:
    """A value as it was written."""
    if isinstance(value, list):
        return [",".join(each) if isinstance(each, list) else str(each) for each in value]
    return [str(value).lower() if isinstance(value, bool) else str(value)]


def verdicts() -> dict[str, dict[str, Any]]:
    """By launch and version: the digest of its file, what the parser derives, and who refuses each mutation."""
    found: dict[str, dict[str, Any]] = {}
    for version in RELEASES:
        names = [name for name, (_, versions) in LAUNCHES.items() if version in versions]
        texts = [[file_of(name, version)] for name in names]
        for of in texts:
            of += [mutated(of[0], version, taken, given[version]) for taken, given in MUTATIONS.values()]
        answers = judge(
            version, [case_of(text, name, version) for name, of in zip(names, texts, strict=True) for text in of]
        )
        each = 1 + len(MUTATIONS)
        for number, (name, of) in enumerate(zip(names, texts, strict=True)):
            accepted, *others = answers[number * each : (number + 1) * each]
            came_out = accepted.pop("came_out", {})
            here = (refused_here(text, name, version) for text in of[1:])
            own = {
                "sha256": digest(of[0]),
                **accepted,
                "survived": len(came_out),
                "lost": lost(name, version, came_out),
            }
            found[f"{name} {version}"] = {**own, "refused": refusals(MUTATIONS, others, here)}
    return found


def configurations() -> dict[str, dict[str, str]]:
    """By configuration of 0.3.0: what it says where no flag does, as the table of models has it, and otherwise."""
    cases, rest = [], ("model.name", "model.flavor", "model.converters", "activation_checkpoint.mode")
    for name, config in CONFIGS.items():
        argv = ["--module", config.name, "--config", name]
        cases.append({"argv": argv, "ranks": 64, "keys": [each for each in config.arguments() if each not in rest]})
    answers = judge("0.3", cases)
    return {
        name: {key: shown(value)[0] for key, value in answer.get("came_out", answer).items()}
        | {"activation_checkpoint.mode": answer.get("recompute")}
        for name, answer in zip(CONFIGS, answers, strict=True)
    }


if __name__ == "__main__":
    stored = {"configurations": configurations(), "parser": TARGET.checked, "launches": verdicts()}
    write_verdicts("torchtitan", stored)
