"""Launch files of other programs as jobs whose layout is fixed: does it fit, how long is a step, what is better."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from planner import files
from planner.errors import InputError
from planner.plan.descriptions import fixable_layout
from planner.plan.launchable.launch_refusals import launch_refusals, refusal_text
from planner.plan.launchable.launch_rules import trained_facts
from planner.plan.legal.layout_laws import expert_laws, recompute_laws, stage_laws, tensor_laws, unshardable_laws
from planner.plan.plan_file import Layout
from planner.printable import one_line
from planner.specs.base import with_fields
from planner.specs.framework.software import Software
from planner.specs.hardware.cluster import Cluster
from planner.specs.hardware.node_cluster import NodeCluster
from planner.specs.job import Fix, Job
from planner.specs.layers import Module
from planner.specs.model import Model, ModelEdge
from planner.specs.named_files import read_software
from planner.specs.parallelism import Parallelism
from planner.specs.workload.length_sources import SampleMix, Workload
from planner.specs.workload.sample_mix import draw_samples
from planner.specs.workload.sample_sizes import sample_readers, sized_sample
from planner.strategies import strategy_deciding
from planner.targets import (
    TARGETS,
    Launch,
    LaunchCommand,
    ReadLaunch,
    Target,
    blackwell,
    encoder_layout,
    layout_of,
    located,
    read_target,
)
from planner.workflows.question_samples import asked_samples
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
    read = read_target(
        TARGETS[name], files.read_text(file, files.LAUNCH), str(file), given, partial(known_fields, gpus, file)
    )
    layout = require_startable(read)
    written = job_files(read, layout, gpus, folder, file)
    require_own(folder)
    for each, content in written.items():
        fix = f"name another folder with -o, or go on with it: planner fits {folder / JOB_FILE}"
        files.require_unchanged(folder / each, files.dump(content), fix)
    for each, content in written.items():
        files.write(folder / each, content)
    return ImportedLaunch(folder / JOB_FILE, layout, read)


def require_own(folder: Path) -> None:
    """Raises InputError for a folder in a missing one, and for one that has files and is no job's."""
    files.require_parent(folder)
    others = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    if others and JOB_FILE not in others:
        message = f"the folder has other files, such as {one_line(others[0])}, and is no job's"
        raise InputError(message, where=f"-o {folder}", fix="name a new folder with -o")


def gpu_cluster(gpus: str) -> NodeCluster | Cluster:
    """The cluster that an option says. Raises InputError."""
    cluster = question_cluster(Question(1, gpus=gpus))
    assert isinstance(cluster, NodeCluster | Cluster), "GPUs are a cluster to be written"
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


def require_startable(read: ReadLaunch) -> Layout:
    """The layout of a launch. Raises InputError, at the argument, where no plan has it or the program refuses it."""
    target, launch, layout, wrong = read.target, read.launch, layout_of(read.launch), []
    encoders = launch.encoders.modules if launch.encoders else {}
    placed = [
        (MODULE, launch.module, layout),
        *((name, each, encoder_layout(launch)) for name, each in encoders.items()),
    ]
    for (name, module, own), laws in product(placed, LAWS):
        wrong += [(broken.message, broken.fix) for broken in laws(own, module, name)]
    if not wrong:
        facts = trained_facts(launch.module, len(layout.ranks), (launch.tokens,) * launch.sequences)
        refusals = launch_refusals(layout, facts, read_software(target.software)[0].knobs)
        wrong += [(refusal_text(target.name, refusal), refusal.fix) for refusal in refusals]
    if wrong:
        message, fix = wrong[0]
        raise located(target, read.stated, InputError(message, fix=fix))
    return layout


def job_files(read: ReadLaunch, layout: Layout, gpus: str, folder: Path, file: Path) -> dict[str, object]:
    """The files of a job by name: its model, its cluster, its software where that is told otherwise, and itself."""
    target, launch = read.target, read.launch
    software = told_software(target, launch)
    source = f"arguments of {target.name} in {file.name}"
    encoders = launch.encoders.modules if launch.encoders else {}
    model = Model(
        format=Model.FORMAT,
        name=folder.absolute().name,
        source=source,
        modules={**encoders, MODULE: launch.module},
        edges=tuple(ModelEdge(source=name, target=MODULE) for name in encoders),
    )
    fixed = {MODULE: fixed_layout(launch, launch.module, layout)}
    for name, module in encoders.items():
        fixed[name] = fixed_layout(launch, module, encoder_layout(launch))
    job = Job(
        format=Job.FORMAT,
        name=folder.absolute().name,
        model=f"./{MODEL_FILE}",
        cluster=f"./{CLUSTER_FILE}",
        workload=workload_of(read, model),
        software=f"./{SOFTWARE_FILE}" if software else target.software,
        strategy=strategy_deciding("layouts", len(model.modules)),
        fix=Fix(layouts=fixed),
    )
    return {
        MODEL_FILE: model,
        CLUSTER_FILE: gpu_cluster(gpus),
        **({SOFTWARE_FILE: software} if software else {}),
        JOB_FILE: job,
    }


def workload_of(read: ReadLaunch, model: Model) -> Workload:
    """The samples of a launch: of so many tokens, those included that images and sound become. Raises InputError where
    it has encoders and nobody says what they read, or that is more than a sequence has.
    """
    launch, stated = read.launch, read.stated
    if not launch.encoders:
        return Workload(lengths=launch.tokens, batch_rows=launch.sequences)
    seen, heard = (stated.one(name) if name in stated else "" for name in ("images", "audio"))
    if not seen and not heard:
        raise InputError("no argument says what encoders read", where=stated.file, fix="--set images=1280x960")
    mix, _ = asked_samples(model, 1, seen, heard)
    assert isinstance(mix, SampleMix), "there are images or sound"
    sample = draw_samples(mix, [1], 0)[0]
    others = sized_sample(sample_readers(model, MODULE, "--set"), sample, "--set").tokens - 1
    if others >= launch.tokens:
        message = f"what encoders read is {others} tokens, and sequences have {launch.tokens}"
        raise InputError(message, where="--set", fix="smaller images, or fewer")
    lengths = with_fields(mix, text=launch.tokens - others)
    return Workload(lengths=lengths, batch_rows=launch.sequences, module=MODULE)


def fixed_layout(launch: Launch, module: Module, layout: Layout) -> Parallelism:
    """A layout of which nothing is left to a search; dp is what is left of the ranks."""
    degrees = ("tp", "cp", "pp", "vpp", "replica", *(("ep", "etp", "dispatch") if module.routed_experts else ()))
    named = {name: getattr(layout, name) for name in (*degrees, "overlap")}
    if launch.encoders:
        named |= {"ranks": layout.ranks}
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
