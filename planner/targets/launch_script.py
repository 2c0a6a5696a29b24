"""A shell script that starts a program on every node: holes for what is not known, variables, arguments, torchrun."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from planner.targets.rows import Arguments

# What a script on several nodes asks for.
NODE = {"NODE_RANK": "of this node, from 0", "MASTER_ADDR": "of the first node"}


class Script(NamedTuple):
    """The parts of a launch script. `holes`: variables that whoever runs it sets, with what each is."""

    about: Sequence[str]
    holes: Mapping[str, str]
    environment: Mapping[str, str]
    arguments: Mapping[str, Arguments]  # by the name of an array; values are quoted already
    program: str
    nodes: int
    per_node: int
    before: Sequence[str] = ()  # what stands before the program is started
    starter: str = ""  # in place of torchrun: accelerate, with its file


def script_text(script: Script) -> str:
    """The script, which stops where a hole is not filled."""
    node = NODE if script.nodes > 1 else {}
    lines = [*(f"# {line}" for line in script.about), "# shellcheck shell=bash", "set -euo pipefail", ""]
    lines += [f"{name}=${{{name}:?{what}}}" for name, what in (script.holes | node).items()]  # type: ignore[operator]
    lines += [f"export {name}={value}" for name, value in script.environment.items()]
    for name, arguments in script.arguments.items():
        lines += [
            "",
            f"{name}=(",
            *(f"  {' '.join((argument, *values))}" for argument, values in arguments.items()),
            ")",
        ]
    arrays = "".join(f' "${{{name}[@]}}"' for name in script.arguments)
    lines += ["", *script.before, f"{launcher(script)} \\", f"  {script.program}{arrays}"]
    return "\n".join([*lines, ""])


def launcher(script: Script) -> str:
    """The words that start a program on every rank of a node: those of torchrun, or the program's own."""
    port = '"${MASTER_PORT:-29500}"'
    if script.starter:
        several = f' --machine_rank "$NODE_RANK" --main_process_ip "$MASTER_ADDR" --main_process_port {port}'
        return script.starter + several * (script.nodes > 1)
    several = f'--nnodes {script.nodes} --node-rank "$NODE_RANK" --master-addr "$MASTER_ADDR" --master-port {port}'
    return f"torchrun --nproc-per-node {script.per_node} {several if script.nodes > 1 else '--standalone'}"
