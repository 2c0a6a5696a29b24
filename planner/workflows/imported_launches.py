"""Launch files of other programs as jobs whose layout is fixed: does it fit, how long is a step, what is better."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from planner import files
from planner.errors import InputError
from planner.plan.descriptions import fixable_layout
from planner.plan.launchable.launch_refusals import launch_refusals, refusal_text
from planner.plan.launchable.launch_rules import trained_facts
from planner.plan.legal.layout_laws import expert_laws, recompute_laws, stage_laws, tensor_laws, unshardable_laws
from planner.plan.plan_file import Layout
from planner.specs.base import with_fields
from planner.specs.framework.software import Software
from planner.specs.hardware.cluster import Cluster
from planner.specs.hardware.node_cluster import NodeCluster
from planner.specs.job import Fix, Job
from planner.specs.model import Model
from planner.specs.named_files import read_software
from planner.specs.parallelism import Parallelism
from planner.specs.workload.length_sources import Workload
from planner.strategies import strategy_deciding
from planner.targets import (
    TARGETS,
    Launch,
    LaunchCommand,
    ReadLaunch,
    Target,
    blackwell,
    layout_of,
    located,
    read_target,
)
from planner.workflows.questions import CLUSTER_FILE, JOB_FILE, MODEL_FILE, Question, question_cluster

SOFTWARE_FILE = "software.yaml"
MODULE = "llm"
LAWS = (stage_laws, tensor_laws, unshardable_laws, expert_laws, recompute_laws)


@dataclass(frozen=True, slots=True)
class ImportedLaunch:
    """The job of a launch file, and what was taken for what the file does not say or no plan prices."""

    job: Path
    layout: Layout
    read: ReadLaunch

    @property
    def defaults(self) -> dict[str, str]:
        """Arguments that the file does not say, with what was taken."""
        return self.read.stated.defaults

    @property
    def holes(self) -> dict[str, str]:
        """Arguments whose values whoever runs the file gives, with what they are made of."""
        return {argument: name for argument, (name, _) in self.read.stated.unknown.items()}

    @property
    def overruled(self) -> dict[str, str]:
        """Ranks that the file starts, in all and on each node, with those that are asked about, where they differ."""
        command, launch = self.read.command, self.read.launch
        other = (launch.ranks, launch.per_node) != (command.ranks, command.per_node)
        told = {
            f"{command.ranks} ranks, {command.per_node} a node,": f"and not {launch.ranks}, {launch.per_node} a node"
        }
        return told if command.ranks and other else {}


def import_launch(name: str, file: Path, gpus: str, folder: Path, given: Mapping[str, str]) -> ImportedLaunch:
    """Write the job of a launch file into a folder, with its model and cluster. `given`: values for what a script
    computes. Raises InputError, before anything is written.
    """
    target, text = TARGETS[name], files.read_text(file, files.LAUNCH)
    read = read_target(target, text, str(file), given, partial(known_fields, gpus, file))
    layout = require_startable(target, read)
    written = job_files(target, read.launch, layout, gpus, folder, file)
    for each, content in written.items():
        fix = f"name another folder with -o, or go on with it: planner fits {folder / JOB_FILE}"
        files.require_unchanged(folder / each, files.dump(content), fix)
    for each, content in written.items():
        files.write(folder / each, content)
    return ImportedLaunch(folder / JOB_FILE, layout, read)


def gpu_cluster(gpus: str) -> NodeCluster | Cluster:
    """The cluster that an option says. Raises InputError."""
    cluster = question_cluster(Question(1, gpus=gpus))
    assert cluster, "GPUs are a cluster to be written"
    return cluster


def known_fields(gpus: str, file: Path, command: LaunchCommand) -> dict[str, Any]:
    """What a launch file leaves to the cluster. Raises InputError where no GPUs are named."""
    if not gpus:
        told = f", and it starts {command.ranks} ranks" if command.ranks else ""
        fix = f"--gpus {command.ranks or 64}xh100"
        raise InputError(f"no launch file names its GPUs{told}", where=f"--gpus, beside {file}", fix=fix)
    cluster = gpu_cluster(gpus)
    device = cluster.gpus.device if isinstance(cluster, NodeCluster) else cluster.ranks[0].kind
    nodes = cluster.nodes if isinstance(cluster, NodeCluster) else 1
    return {"ranks": cluster.size, "per_node": max(1, cluster.size // nodes), "blackwell": blackwell(device)}


def require_startable(target: Target, read: ReadLaunch) -> Layout:
    """The layout of a launch. Raises InputError, at the argument, where no plan has it or the program refuses it."""
    launch, layout, wrong = read.launch, layout_of(read.launch), []
    for laws in LAWS:
        wrong += [(broken.message, broken.fix) for broken in laws(layout, launch.module, MODULE)]
    if not wrong:
        facts = trained_facts(launch.module, launch.ranks, (launch.tokens,) * launch.sequences)
        refusals = launch_refusals(layout, facts, read_software(target.software)[0].knobs)
        wrong += [(refusal_text(target.name, refusal), refusal.fix) for refusal in refusals]
    if wrong:
        message, fix = wrong[0]
        raise located(target, read.stated, InputError(message, fix=fix))
    return layout


def job_files(target: Target, launch: Launch, layout: Layout, gpus: str, folder: Path, file: Path) -> dict[str, object]:
    """The files of a job by name: its model, its cluster, its software where that is told otherwise, and itself."""
    software = told_software(target, launch)
    source = f"arguments of {target.name} in {file.name}"
    model = Model(format=Model.FORMAT, name=folder.absolute().name, source=source, modules={MODULE: launch.module})
    job = Job(
        format=Job.FORMAT,
        name=folder.absolute().name,
        model=f"./{MODEL_FILE}",
        cluster=f"./{CLUSTER_FILE}",
        workload=Workload(lengths=launch.tokens, batch_rows=launch.sequences),
        software=f"./{SOFTWARE_FILE}" if software else target.software,
        strategy=strategy_deciding("layouts", 1),
        fix=Fix(layouts={MODULE: fixed_layout(launch, layout)}),
    )
    return {
        MODEL_FILE: model,
        CLUSTER_FILE: gpu_cluster(gpus),
        **({SOFTWARE_FILE: software} if software else {}),
        JOB_FILE: job,
    }


def fixed_layout(launch: Launch, layout: Layout) -> Parallelism:
    """A layout of which nothing is left to a search; dp is what is left of the ranks."""
    degrees = ("tp", "cp", "pp", "vpp", "replica", *(("ep", "etp", "dispatch") if launch.module.routed_experts else ()))
    named = {name: getattr(layout, name) for name in (*degrees, "overlap")}
    return with_fields(fixable_layout(layout), **named, dp=None)


def told_software(target: Target, launch: Launch) -> Software | None:
    """The program's software where it is told to exchange less beside compute than is usual; None: it is not."""
    usual = read_software(target.software)[0]
    timing = with_fields(
        usual.timing,
        overlaps_replicas=usual.timing.overlaps_replicas and launch.reduces_early,
        gathers_ahead=usual.timing.gathers_ahead and launch.gathers_early,
    )
    return None if timing == usual.timing else with_fields(usual, timing=timing)


def import_notes(imported: ImportedLaunch) -> Iterator[tuple[str, dict[str, str]]]:
    """What who imports a file is told: of what kind, and the arguments with what stands for each."""
    yield "the file starts", imported.overruled
    yield "not said, so as by default", imported.defaults
    yield "read, and not priced", {argument: "" for argument in imported.read.unpriced}
    yield "left to who runs it", imported.holes
