"""Launchers around a file that starts a plan: torchrun on a node, a batch script of Slurm, a Job of Kubernetes."""

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from planner.targets.launch_script import NODE, Script, script_text

HOLE = re.compile(r"^(\w+)=\$\{\1:\?(.*)\}$", re.MULTILINE)
SPECIAL = re.compile(r"[$`\\]")  # what a shell reads in text
OTHER_VENDOR = re.compile("mi[0-9]")  # devices of AMD by name


class Started(NamedTuple):
    """What runs on every node: a script that asks for the number of its node, and for the address of the first."""

    name: str  # of the plan
    script: str
    nodes: int
    per_node: int
    device: str


class ConfigFile(NamedTuple):
    """A file that is no script: what it is called, the words that start it, and what they leave open."""

    suffix: str
    words: str  # with "$CONFIG", the path of the file
    holes: Mapping[str, str]
    starter: str = ""  # in place of torchrun


def starting(config: ConfigFile, text: str, nodes: int, per_node: int) -> str:
    """The script that writes a file, holes filled, and starts it."""
    first = text.partition("\n")[0]
    about = [first.removeprefix("# ")] if first.startswith("#") else []
    holes = {name: what for name, what in config.holes.items() if f"${name}" in text + config.words}
    plain = SPECIAL.sub(r"\\\g<0>", text)
    for name in holes:
        plain = plain.replace(f"\\${name}", f"${name}")
    write = (f"CONFIG=$(mktemp --suffix={config.suffix})", 'cat > "$CONFIG" <<CONFIG_FILE', *plain.splitlines())
    own = (config.words, nodes, per_node, (*write, "CONFIG_FILE"), config.starter)
    return script_text(Script((*about, "Run it on each node."), holes, {}, {}, *own))


def runtime_script(nodes: int, per_node: int) -> str:
    """The script that runs a plan with planner's own runtime."""
    holes = {"PLAN": "path of the plan file, on every node"}
    return script_text(
        Script(("planner.runtime. Run it on each node.",), holes, {}, {}, '-m planner.runtime "$PLAN"', nodes, per_node)
    )


def torchrun(started: Started) -> str:
    """The script of a node is the launcher."""
    return started.script


def slurm(started: Started) -> str:
    """A batch script whose step is that script on every node, read from where this one has it."""
    head = ["#!/bin/bash", *started.script.partition("\n")[0:1], f"#SBATCH --job-name={label(started.name)}"]
    head += [f"#SBATCH --nodes={started.nodes}", "#SBATCH --ntasks-per-node=1"]
    head += [f"#SBATCH --gpus-per-node={started.per_node}", "#SBATCH --exclusive", "set -euo pipefail"]
    first = 'MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)'
    step = ["srun --kill-on-bad-exit=1 bash -s <<'ON_EACH_NODE'", "export NODE_RANK=$SLURM_NODEID"]
    return "\n".join([*head, "", first, "export MASTER_ADDR", *step, started.script.rstrip("\n"), "ON_EACH_NODE", ""])


def kubernetes(started: Started) -> str:
    """A template: a Job with a pod for each node, in which IMAGE and the values that are empty are to be filled in."""
    name, first = label(started.name), started.script.partition("\n")[0]
    holes = [(hole, what) for hole, what in HOLE.findall(started.script) if hole not in NODE]
    resource = f"{'amd' if OTHER_VENDOR.match(started.device) else 'nvidia'}.com/gpu"
    lines = [first, "# A template: fill in IMAGE, and the values that are empty.", "apiVersion: v1", "kind: Service"]
    lines += [f"metadata: {{name: {name}}}", f"spec: {{clusterIP: None, selector: {{job-name: {name}}}}}", "---"]
    lines += ["apiVersion: batch/v1", "kind: Job", f"metadata: {{name: {name}}}", "spec:"]
    lines += [f"  completions: {started.nodes}", f"  parallelism: {started.nodes}", "  completionMode: Indexed"]
    lines += ["  backoffLimit: 0", "  template:", "    spec:", f"      subdomain: {name}", "      restartPolicy: Never"]
    lines += ["      containers:", "        - name: trainer", "          image: IMAGE", "          resources:"]
    lines += [f"            limits: {{{resource}: {started.per_node}}}", "          env:"]
    lines += [f"            - {{name: MASTER_ADDR, value: {name}-0.{name}}}"]
    lines += [f'            - {{name: {hole}, value: ""}}  # {what}' for hole, what in holes]
    lines += ["          volumeMounts:", "            - {name: shm, mountPath: /dev/shm}"]
    lines += ['          command: ["bash", "-c"]', "          args:", "            - |"]
    script = ["export NODE_RANK=$JOB_COMPLETION_INDEX", *started.script.rstrip("\n").splitlines()]
    lines += [f"              {line}".rstrip() for line in script]
    return "\n".join([*lines, "      volumes:", "        - {name: shm, emptyDir: {medium: Memory}}", ""])


def label(name: str) -> str:
    """A name as jobs may have it: up to 50 of small letters, digits and dashes, a letter first."""
    plain = re.sub("[^a-z0-9]+", "-", name.lower()).strip("-")[:50].rstrip("-")
    return plain if plain[:1].isalpha() else f"plan-{plain}".rstrip("-")


LAUNCHERS: dict[str, Callable[[Started], str]] = {"torchrun": torchrun, "slurm": slurm, "kubernetes": kubernetes}
