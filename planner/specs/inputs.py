"""A job with all files that it names read: the input of strategies and pricing."""

import os
from dataclasses import dataclass, field
from pathlib import Path

from planner import files
from planner.errors import InputError
from planner.specs import library
from planner.specs.after_own_runs import with_own_runs
from planner.specs.base import with_fields
from planner.specs.cluster_choice import read_cluster
from planner.specs.framework.memory_coefficients import PLANNER_RUNTIME_MEMORY, MemoryCoefficients
from planner.specs.framework.own_runs import OwnRun
from planner.specs.framework.software import Framework
from planner.specs.framework.timing_coefficients import TimingCoefficients
from planner.specs.hardware.cluster import Cluster
from planner.specs.hardware.device_rates import DeviceRates
from planner.specs.hardware.profile import Device, Profile
from planner.specs.input_limits import require_limited_modules
from planner.specs.job import Job
from planner.specs.job_names import NO_TABLES, NameTables, require_names
from planner.specs.layers import Module
from planner.specs.model import Model
from planner.specs.parallelism import Parallelism, decided_fields
from planner.specs.plausibility import warn_of_implausible
from planner.specs.profile_choice import choose_profile
from planner.specs.software_choice import read_software
from planner.specs.stage_layers import broken_partition
from planner.specs.trained_modules import with_trained
from planner.specs.workload.expert_counts import CountsFile, with_expert_counts
from planner.specs.workload.length_sources import LengthsFile, SamplesFile, StreamFile, TokensFolder, Workload
from planner.specs.workload.reference_items import (
    require_read_by_samples,
    with_reference_items,
    without_references,
)
from planner.specs.workload.sample_batches import has_samples, read_sample_batches, with_mix
from planner.specs.workload.sample_folder import CLIPS, IMAGES, has_media, media_files
from planner.specs.workload.samples import SampleBatch, read_batches
from planner.specs.workload.stream_batches import SourcePaths, add_streams
from planner.specs.workload.token_folder import OFFSETS


@dataclass(frozen=True, slots=True)
class Inputs:
    """A resolved job."""

    job: Job
    model: Model
    module: str  # the one whose items are the workload's samples
    cluster: Cluster
    devices: dict[str, Device]
    profile: Profile  # with several kinds of ranks, entries name their kind: specs/hardware/rank_kinds.py
    batches: tuple[SampleBatch, ...]
    sources: dict[str, Path]  # role → the file that was read
    seed: int = 0
    effort: int = 2
    first_row: int = 0
    rates: dict[str, DeviceRates] = field(
        default_factory=dict
    )  # kind of rank → rates of its kernels, where they were timed
    timing: TimingCoefficients = field(default_factory=TimingCoefficients)
    accounting: MemoryCoefficients = PLANNER_RUNTIME_MEMORY
    software: Framework = field(default_factory=Framework)  # what trains, and what it can launch
    software_spread: float = 0.3  # of a step's seconds: the 80 % interval is seconds·e^±spread
    own_runs: tuple[OwnRun, ...] = ()  # measured ones that timing and spread are after

    @property
    def file(self) -> Path:
        """The job's file, as errors name it; the name of inputs that were read from a plan, which have none."""
        return self.sources.get("job", Path(self.job.name))

    @property
    def spec(self) -> Module:
        """The shape of the module that is planned."""
        return self.model.modules[self.module]

    @property
    def fixed_parallelism(self) -> Parallelism:
        """The fields of the planned module's layout that the job fixes. Raises InputError."""
        return self.fixed_of(self.module)

    def fixed_of(self, name: str) -> Parallelism:
        """The fields of a module's layout that the job fixes: its own in `fix.layouts`, else those of `layout`. Items
        of one that feeds another are computed for who reads them: it has the others' micro-batches, and no schedule
        unless it has one of its own. Raises InputError where these exclude each other.
        """
        own, common = self.job.fix.layouts.get(name, Parallelism()), self.job.layout
        if self.model.targets(name):
            common = with_fields(common, schedule=None, micro_batch=None)
        try:
            return with_fields(common, **decided_fields(own))
        except InputError as error:
            raise InputError(error.message, where=f"{self.file} (fix.layouts.{name})", fix=error.fix) from error

    @property
    def device(self) -> Device:
        """The device of the first kind of rank."""
        return self.devices[self.cluster.ranks[0].kind]


@dataclass(frozen=True, slots=True)
class JobOptions:
    """Options of the command line beside the job's file."""

    batches: int = 1
    first_row: int = 0
    seed: int = 0
    effort: int = 2
    lengths: str | None = None
    mix: str | None = None  # multimodal to text-only samples, as 9:1


def load_job(reference: str, options: JobOptions, tables: NameTables = NO_TABLES) -> Inputs:
    """Read the job with this name or path, and all files that it names. Raises InputError, also for what is not in
    `tables`.
    """
    job, path = library.read_named(reference, Job)
    return resolve_job(job, path, options, tables)


def resolve_job(job: Job, path: Path, options: JobOptions, tables: NameTables = NO_TABLES) -> Inputs:
    """Read all files that a job, itself read from `path`, names. Raises InputError."""
    require_names(job, path, tables)
    base = path.parent
    model, model_path = library.read_named(job.model, Model, base, f"{path} (model)")
    model = with_trained(with_expert_counts(model, job.expert_counts, path), job.trained, path)
    cluster, cluster_path = read_cluster(job.cluster, base, f"{path} (cluster)")
    sources = {"job": path, "model": model_path, "cluster": cluster_path}
    software, sources["software"] = read_software(job.software, base, f"{path} (software)")
    devices, rates = {}, {}
    for kind in cluster.ranks:
        device_profile, sources[f"device {kind.kind}"] = library.read_named(
            kind.kind, Profile, base, f"{cluster_path} (ranks)"
        )
        devices[kind.kind] = device_profile.device
        rates[kind.kind] = device_profile.rates
    profile, profile_files = choose_profile(job, cluster, devices, path)
    sources |= profile_files
    workload = job.workload
    if options.lengths:
        workload = replace_lengths(job, Path(options.lengths).absolute())
    if options.mix:
        workload = with_mix(workload, options.mix)
    sources |= length_files(workload, base)
    module = sample_module(job, model, path)
    require_limited_modules(job, model, module, path)
    require_read_by_samples(model, module, f"{model_path} (edges)")
    try:
        fed = without_references(model)
        batches = batches_of(workload, fed, module, options, SourcePaths(path, model_path, base))
        batches = tuple(with_reference_items(batch, model, module) for batch in batches)
    except InputError as error:
        raise in_job_file(error, path) from error
    sources |= {
        f"stream {name}": base / each.path for name, each in workload.streams.items() if isinstance(each, StreamFile)
    }
    counts = {name: each.path for name, each in job.expert_counts.items() if isinstance(each, CountsFile)}
    sources |= {f"expert counts {name}": base / counted for name, counted in counts.items()}
    inputs = Inputs(
        job=with_fields(job.with_strategy(model.modules), workload=workload),
        model=model,
        module=module,
        cluster=cluster,
        devices=devices,
        profile=profile,
        batches=batches,
        sources=sources,
        seed=options.seed,
        effort=options.effort,
        first_row=options.first_row,
        rates={kind: profile_files for kind, profile_files in rates.items() if profile_files},
        timing=software.kernel_timing,
        accounting=software.dated_accounting,
        software=software.framework,
        software_spread=software.job_spread,
    )
    require_possible_layouts(inputs)
    warn_of_implausible(inputs)
    return with_own_runs(inputs, software.own_runs)


def require_possible_layouts(inputs: Inputs) -> None:
    """Raises InputError where a job fixes a layout of a module that there is none of, fields that exclude each other,
    stages that are no partition of the layers, or micro-batches of a module whose items are computed for who reads
    them.
    """
    for name, fixed in inputs.job.fix.layouts.items():
        if name not in inputs.model.modules:
            where, fix = f"{inputs.file} (fix.layouts)", f"name one of {', '.join(inputs.model.modules)}"
            raise InputError(f"the model has no module `{name}`", where=where, fix=fix)
        if inputs.model.targets(name) and fixed.micro_batch not in (None, 1):
            message = f"items of `{name}` are computed for who reads them, and it has no micro-batches of its own"
            where = f"{inputs.file} (fix.layouts.{name}.micro_batch)"
            raise InputError(message, where=where, fix="serves: COUNT, of micro-batches that one pass computes for")
    for name, module in inputs.model.modules.items():
        stages = inputs.fixed_of(name).stages
        broken = broken_partition(stages, module.layers) if stages else None  # none: of a plan without a pipeline
        if broken:
            own = f"fix.layouts.{name}" if name in inputs.job.fix.layouts else "layout"
            raise InputError(broken[0], where=f"{inputs.file} ({own}.stages)", fix=broken[1])


def length_files(workload: Workload, base: Path) -> dict[str, Path]:
    """The files that say the sizes of samples, by role."""
    if not isinstance(workload.lengths, LengthsFile | SamplesFile | TokensFolder):
        return {}
    path = base / workload.lengths.path
    if isinstance(workload.lengths, LengthsFile) or not os.path.isdir(path):
        return {"lengths": path}
    media = {of.noun: path / of.index for of in (IMAGES, CLIPS) if of.index in media_files(path)}
    return {"lengths": path / OFFSETS, **{f"lengths of {noun}s": file for noun, file in media.items()}}


def batches_of(
    workload: Workload, model: Model, module: str, options: JobOptions, where: SourcePaths
) -> tuple[SampleBatch, ...]:
    """The batches of a workload, with items of all modules. Raises InputError."""
    if has_samples(workload):
        span = options.batches, options.first_row
        return tuple(read_sample_batches(workload, model, module, span, options.seed, where.base))
    if isinstance(workload.lengths, TokensFolder) and has_media(where.base / workload.lengths.path):
        fix = f"lengths: {{from: samples, path: {workload.lengths.path}}}"
        raise InputError("the folder has images or sound beside its tokens", where="workload.lengths", fix=fix)
    samples = read_batches(workload, options.batches, options.first_row, options.seed, where.base)
    return tuple(add_streams(samples, workload, model, module, options.seed, where))


def in_job_file(error: InputError, path: Path) -> InputError:
    """Return an error about a workload with the place in its job's file; any other as it is."""
    if error.where and not error.where.startswith("workload"):
        return error
    route = (error.where or "workload.lengths").split(".")
    return InputError(error.message, where=files.place(path, *route), fix=error.fix)


def replace_lengths(job: Job, path: Path) -> Workload:
    """Return the workload with lengths from a folder of tokens or samples, from a file of samples where the job has
    one, or from a file of lengths with the same column as the job's.
    """
    lengths = job.workload.lengths
    if os.path.isdir(path) or path.name == OFFSETS:
        return with_fields(job.workload, lengths=folder_lengths(path if os.path.isdir(path) else path.parent))
    if isinstance(lengths, SamplesFile):
        return with_fields(job.workload, lengths=SamplesFile(path=str(path)))
    column = lengths.column if isinstance(lengths, LengthsFile) else "tokens"
    return with_fields(job.workload, lengths=LengthsFile(path=str(path), column=column))


def folder_lengths(folder: Path) -> TokensFolder | SamplesFile:
    """Lengths from a folder, by what is in it."""
    return SamplesFile(path=str(folder)) if has_media(folder) else TokensFolder(path=str(folder))


def sample_module(job: Job, model: Model, path: Path) -> str:
    """Return the module whose items are the workload's samples. Raises InputError where the job does not say which."""
    if not job.workload.module and len(model.modules) == 1:
        return next(iter(model.modules))
    if job.workload.module not in model.modules:
        named = f"module `{job.workload.module}`" if job.workload.module else "no module"
        raise InputError(
            f"the workload names {named}, the model has {', '.join(model.modules)}",
            where=f"{path} (workload.module)",
            fix="name one of them",
        )
    return job.workload.module
