"""A shell script that starts a program on every node: holes for what is not known, variables, arguments, torchrun."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from planner.targets.rows import Arguments


class Script(NamedTuple):
    """The parts of a launch script. `holes`: variables that whoever runs it sets, with what each is."""

    about: Sequence[str]
    holes: Mapping[str, str]
    environment: Mapping[str, str]
    arguments: Mapping[str, Arguments]  # by the name of an array; values are quoted already
    program: str
    nodes: int
    per_node: int


def script_text(script: Script) -> str:
    """The script, which stops where a hole is not filled."""
    node = {"NODE_RANK": "of this node, from 0", "MASTER_ADDR": "of the first node"} if script.nodes > 1 else {}
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
    several = f'--nnodes {script.nodes} --node-rank "$NODE_RANK" --master-addr "$MASTER_ADDR" --master-port'
    where = f'{several} "${{MASTER_PORT:-29500}}"' if script.nodes > 1 else "--standalone"
    arrays = " ".join(f'"${{{name}[@]}}"' for name in script.arguments)
    lines += ["", f"torchrun --nproc-per-node {script.per_node} {where} \\", f"  {script.program} {arrays}"]
    return "\n".join([*lines, ""])
