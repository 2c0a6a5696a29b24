"""A job with all files that it names read: the input of strategies and pricing.

Its coefficients are those of the software's file after the runs that the file keeps. What can hardly be meant is a
warning of one line each, and no error.
"""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from planner import files
from planner.errors import InputError
from planner.specs import library
from planner.specs.base import with_fields
from planner.specs.framework.memory_coefficients import PLANNER_RUNTIME_MEMORY, MemoryCoefficients
from planner.specs.framework.own_runs import MeasuredRun, OwnRun, after_runs, shifted_timing
from planner.specs.framework.software import Framework
from planner.specs.framework.timing_coefficients import TimingCoefficients, plain_numbers
from planner.specs.hardware.cluster import Cluster
from planner.specs.hardware.device_rates import DeviceRates
from planner.specs.hardware.pool import Pool
from planner.specs.hardware.profile import Device, Profile
from planner.specs.job import USUAL_DTYPE, USUAL_OBJECTIVE, Job
from planner.specs.job_batches import (
    batches_of,
    in_job_file,
    length_files,
    replace_lengths,
    require_limited_modules,
    require_read_by_samples,
    sample_module,
    with_reference_items,
    without_references,
)
from planner.specs.layers import Module
from planner.specs.loader import LoaderFile
from planner.specs.model import Model
from planner.specs.named_files import (
    NO_TABLES,
    NameTables,
    choose_profile,
    read_cluster_or_pool,
    read_software,
    require_names,
)
from planner.specs.offers import NO_OFFERS, LeftOut, OfferedCluster, Offers, offers_of, stale_prices
from planner.specs.parallelism import Parallelism, broken_partition, decided_fields
from planner.specs.parameters import parameter_counts
from planner.specs.tables import JobTables, Table, read_tables
from planner.specs.trained_parameters import with_trained
from planner.specs.workload.expert_counts import CountsFile, with_expert_counts
from planner.specs.workload.items import part_lengths
from planner.specs.workload.length_sources import StreamFile
from planner.specs.workload.sample_batches import with_mix
from planner.specs.workload.samples import SampleBatch
from planner.specs.workload.stream_batches import SourcePaths
from planner.specs.workload.task_batches import with_tasks_of

LOG = logging.getLogger(__name__)
ANOTHERS_RATE = {"bf16": ("fp16",), "fp8": ("bf16", "fp16")}  # whose rate is taken where a device lacks the dtype


@dataclass(frozen=True, slots=True)
class Inputs:
    """A job and all that it names: model, cluster, devices, prices of modules, and batches of samples."""

    job: Job
    model: Model
    module: str  # the one whose items are the workload's samples
    cluster: Cluster
    devices: dict[str, Device]
    profile: Profile  # with several kinds of ranks, entries name their kind: specs/hardware/cluster.py
    batches: tuple[SampleBatch, ...]
    sources: dict[str, Path]  # role → the file that was read
    seed: int = 0
    effort: int = 2
    first_row: int = 0
    # Kind of rank → rates of its kernels, where they were timed
    rates: dict[str, DeviceRates] = field(default_factory=dict)
    tables: dict[str, Table] = field(default_factory=dict)  # embedding tables beside the model
    loader: LoaderFile | None = None  # stages of the data loader
    timing: TimingCoefficients = field(default_factory=TimingCoefficients)
    accounting: MemoryCoefficients = PLANNER_RUNTIME_MEMORY
    software: Framework = field(default_factory=Framework)  # what trains, and what it can launch
    software_spread: float = 0.3  # of a step's seconds: the 80 % interval is seconds·e^±spread
    own_runs: tuple[OwnRun, ...] = ()  # measured ones that timing and spread are after
    # Where the cluster is a pool: the job on each choice, of which the first is the cluster here
    offers: tuple["Offer", ...] = ()
    left_out: tuple[LeftOut, ...] = ()  # of the pool

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


class Offer(NamedTuple):
    """One choice of a pool, and the job on it."""

    offered: OfferedCluster
    inputs: Inputs


@dataclass(frozen=True, slots=True)
class JobOptions:
    """Options of the command line beside the job's file."""

    batches: int = 1
    first_row: int = 0
    seed: int = 0
    effort: int = 2
    lengths: str | None = None
    mix: str | None = None  # multimodal to text-only samples, as 9:1
    within: float | None = None  # instead of the job's own

    @property
    def span(self) -> tuple[int, int]:
        """How many batches to read, and the first sample."""
        return self.batches, self.first_row


def load_job(reference: str, options: JobOptions, tables: NameTables = NO_TABLES) -> Inputs:
    """Read the job with this name or path, and all files that it names. Raises InputError, also for what is not in
    `tables`.
    """
    job, path = library.read_named(reference, Job)
    return resolve_job(job, path, options, tables)


def resolve_job(job: Job, path: Path, options: JobOptions, tables: NameTables = NO_TABLES) -> Inputs:
    """Read all files that a job, itself read from `path`, names. Raises InputError."""
    require_names(job, path, tables)
    require_trained(job, path)
    base = path.parent
    model, model_path = library.read_named(job.model, Model, base, f"{path} (model)")
    try:
        model = with_tasks_of(model, job.workload)
    except InputError as error:
        raise in_job_file(error, path) from error
    model = with_trained(with_expert_counts(model, job.expert_counts, path), job.trained, path)
    named, cluster_path = read_cluster_or_pool(job.cluster, base, f"{path} (cluster)")
    require_run(job, isinstance(named, Pool), path)
    offers = offers_of(named, cluster_path, job) if isinstance(named, Pool) else NO_OFFERS
    cluster = offers.clusters[0].cluster if isinstance(named, Pool) else named
    sources = {"job": path, "model": model_path, "cluster": cluster_path}
    software, sources["software"] = read_software(job.software, base, f"{path} (software)")
    priced, ranks_files = priced_ranks(cluster, job, sources)
    sources |= ranks_files
    workload, within = job.workload, job.within if options.within is None else options.within
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
        where = SourcePaths(path, model_path, base)
        batches = batches_of(workload, fed, module, options.span, options.seed, where)
        batches = tuple(with_reference_items(batch, model, module) for batch in batches)
    except InputError as error:
        raise in_job_file(error, path) from error
    sources |= {
        f"stream {name}": base / each.path for name, each in workload.streams.items() if isinstance(each, StreamFile)
    }
    embedded: dict[str, Table] = {}
    if job.tables:
        sources["tables"] = base / job.tables.file
        embedded = read_tables(sources["tables"])
        require_possible_groups(job.tables, cluster, files.place(path, "tables", "groups"))
    loader = read_loader(job, path, sources)
    counts = {name: each.path for name, each in job.expert_counts.items() if isinstance(each, CountsFile)}
    sources |= {f"expert counts {name}": base / counted for name, counted in counts.items()}
    inputs = Inputs(
        job=with_fields(job.with_strategy(model.modules), workload=workload, within=within),
        model=model,
        module=module,
        cluster=cluster,
        batches=batches,
        sources=sources,
        seed=options.seed,
        effort=options.effort,
        first_row=options.first_row,
        tables=embedded,
        loader=loader,
        timing=software.kernel_timing,
        accounting=software.dated_accounting,
        software=software.framework,
        software_spread=software.job_spread,
        **priced,
    )
    require_possible_layouts(inputs)
    owned = stale_prices(cluster, inputs.devices, date.today()) if job.run and not offers.clusters else ()
    warn_of_implausible(inputs, (*offers.doubts, *owned))
    inputs = with_offers(inputs, offers, software.own_runs) if offers.clusters else inputs
    return with_own_runs(inputs, software.own_runs)


def priced_ranks(cluster: Cluster, job: Job, sources: Mapping[str, Path]) -> tuple[dict[str, Any], dict[str, Path]]:
    """Devices, rates and prices of a cluster's ranks as fields of inputs, and the files that they are read from. Raises
    InputError.
    """
    path, found = sources["job"], dict[str, Path]()
    devices, rates = dict[str, Device](), dict[str, DeviceRates]()
    for kind in cluster.ranks:
        where = f"{sources['cluster']} (ranks)"
        device, found[f"device {kind.kind}"] = library.read_named(kind.kind, Profile, path.parent, where)
        devices[kind.kind] = device.device
        if device.rates:
            rates[kind.kind] = device.rates
    profile, profile_files = choose_profile(job, cluster, devices, path)
    return {"devices": devices, "rates": rates, "profile": profile}, found | profile_files


def with_offers(asked: Inputs, offers: Offers, runs: tuple[OwnRun, ...]) -> Inputs:
    """The inputs with a step of the job on each choice of a pool; its kinds are read once. Raises InputError."""
    inputs = of_one_step(asked)
    priced, each = dict[tuple[str, ...], tuple[dict[str, Any], dict[str, Path]]](), list[Offer]()
    shared = {role: file for role, file in inputs.sources.items() if not role.startswith(("device ", "profile"))}
    for offered in offers.clusters:
        if offered.kinds not in priced:
            priced[offered.kinds] = priced_ranks(offered.cluster, inputs.job, inputs.sources)
        fields, ranks_files = priced[offered.kinds]
        one = replace(inputs, cluster=offered.cluster, sources={**shared, **ranks_files}, **fields)
        each.append(Offer(offered, with_own_runs(one, runs)))
    return replace(asked, offers=(*each,), left_out=offers.left_out)


def of_one_step(inputs: Inputs) -> Inputs:
    """The inputs of a step of a run, whatever the run may cost."""
    limits = with_fields(inputs.job.limits, usd=None, days=None, usd_per_hour=None, gpus=None)
    return replace(inputs, job=with_fields(inputs.job, objective=USUAL_OBJECTIVE, limits=limits, run=None))


def require_chosen(inputs: Inputs) -> None:
    """Raises InputError for a job on a pool, of which nothing is chosen."""
    if inputs.offers:
        where = files.place(inputs.sources["cluster"], "pool")
        fix = "planner solve, and go on with its plan; or another cluster"
        raise InputError("the cluster is a pool, of which nothing is chosen", where=where, fix=fix)


def require_run(job: Job, is_pool: bool, path: Path) -> None:
    """Raises InputError where a job asks about money or days, and not of how many tokens."""
    asked = next((name for name in ("usd", "days") if getattr(job.limits, name)), None)
    if job.run is None and (asked or is_pool):
        where = files.place(path, "limits", asked) if asked else files.place(path, "cluster")
        what = f"limits.{asked} is of a whole run" if asked else "what to choose of a pool depends on the whole run"
        raise InputError(f"{what}, and the job does not say how long it is", where=where, fix="run: {tokens: 1e12}")


def require_trained(job: Job, path: Path) -> None:
    """Raises InputError for a job whose model is served."""
    if job.workload.requests:
        where = files.place(path, "workload", "requests")
        raise InputError("the model is served, and nothing is trained", where=where, fix=f"planner serve {path}")


def read_loader(job: Job, path: Path, sources: dict[str, Path]) -> LoaderFile | None:
    """The stages of the loader that a job names, a source then; None where it names none. Raises InputError."""
    if not job.loader:
        return None
    if job.per_batch:
        message = "steps that are planned during the run are loaded when they are known"
        raise InputError(message, where=files.place(path, "loader"), fix="leave out loader, or planning: per_batch")
    sources["loader"] = path.parent / job.loader
    return files.read(sources["loader"], LoaderFile)


def require_possible_groups(asked: JobTables, cluster: Cluster, where: str) -> None:
    """Raises InputError where a number of groups of ranks is fixed that are not equal; `where`: who fixes it."""
    if asked.groups and cluster.size % asked.groups:
        able = [str(each) for each in range(1, cluster.size + 1) if cluster.size % each == 0]
        message = f"{cluster.size} ranks are not {asked.groups} equal groups"
        raise InputError(message, where=where, fix=f"one of {', '.join(able)}")


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
            raise InputError(message, where=where, fix="leave it out")
    for name, module in inputs.model.modules.items():
        stages = inputs.fixed_of(name).stages
        broken = broken_partition(stages, module.layers) if stages else None  # none: of a plan without a pipeline
        if broken:
            own = f"fix.layouts.{name}" if name in inputs.job.fix.layouts else "layout"
            raise InputError(broken[0], where=f"{inputs.file} ({own}.stages)", fix=broken[1])


def warn_of_implausible(inputs: Inputs, doubts: tuple[str, ...]) -> None:
    """Log a line for each thing that can hardly be meant, and for others that are known."""
    for doubt in (*cluster_doubts(inputs.cluster, inputs.sources["cluster"]), *job_doubts(inputs), *doubts):
        LOG.warning(doubt)


def cluster_doubts(cluster: Cluster, path: Path) -> Iterator[str]:
    """Yield what is unusual: links that are quicker farther away, nodes that are not full."""
    every = (cluster.levels, *(entry.levels for entry in cluster.ranks))
    for near, far in (pair for levels in every for pair in pairwise(levels)):
        if far.gb_per_s > near.gb_per_s:
            rates = f"{far.gb_per_s:g} GB/s beyond a {near.name} are more than within one, {near.gb_per_s:g} GB/s"
            yield f"{files.place(path, 'levels')}: {rates}; is that meant?"
    for kind in cluster.ranks:
        rest = kind.count % kind.per_node
        if kind.count > kind.per_node and rest:
            yield f"{files.place(path, 'ranks')}: {kind.count} ranks at {kind.per_node} a node leave a node of {rest}"


def job_doubts(inputs: Inputs) -> Iterator[str]:
    """Yield what is unusual: a dtype that a device lacks, degrees that divide neither heads nor ranks."""
    job, path = inputs.job, inputs.sources["job"]
    fixed = job.fix.layouts.get(inputs.module)
    dtype = (fixed and fixed.dtype) or job.layout.dtype or USUAL_DTYPE
    for name, device in inputs.devices.items():
        if dtype in ANOTHERS_RATE and dtype not in device.tflops:
            known = next((each for each in ANOTHERS_RATE[dtype] if each in device.tflops), "its fastest dtype")
            mixed = any(dtype in other.tflops for other in inputs.devices.values())
            alone = ", by strategies other than parallel_search, which leaves its ranks out" if mixed else ""
            where = files.place(path, "layout", "dtype")
            yield f"{where}: {name} has no {dtype}; the rate of {known} is taken{alone}"
    heads, ranks = inputs.spec.heads, inputs.cluster.size
    unusual = [str(degree) for degree in job.degrees if heads % degree or ranks % degree]
    if unusual:
        counts = f"the {heads} heads and the {ranks} ranks"
        yield f"{files.place(path, 'degrees')}: {' and '.join(unusual)} do not divide {counts}; is that meant?"


def with_own_runs(inputs: Inputs, runs: tuple[OwnRun, ...]) -> Inputs:
    """The inputs with the likeliest coefficients after these runs; as they are without any."""
    if not runs:
        return inputs
    told = after_runs(runs, job_run(inputs), inputs.device.tflops_in_16_bits)
    timing = plain_numbers(shifted_timing(inputs.timing, told.shifts))
    return replace(inputs, timing=timing, software_spread=inputs.software_spread * told.narrowed, own_runs=runs)


def job_run(inputs: Inputs) -> MeasuredRun:
    """What a job's plan will run, as far as a job says it: no degrees."""
    modules = inputs.model.modules
    name = max(modules, key=lambda each: parameter_counts(modules[each]).total)
    items = [batch.items if name == inputs.module else batch.streams.get(name, {}) for batch in inputs.batches]
    lengths = [length for sizes in items for size in sizes.values() for length in part_lengths(size)]
    return MeasuredRun(
        device=inputs.cluster.ranks[0].kind,
        software=inputs.software.name,
        dtype=inputs.fixed_of(name).dtype or USUAL_DTYPE,
        experts=modules[name].routed_experts is not None,
        zero=1,
        ranks=inputs.cluster.size,
        tp=1,
        pp=1,
        cp=1,
        ep=1,
        seq=max(1, round(fmean(lengths or [1]))),
        billions=parameter_counts(modules[name]).total / 1e9,
    )


def inputs_at_mix(inputs: Inputs, mix: str, options: JobOptions) -> Inputs:
    """The inputs of a job that draws its samples, with batches of this mix. Raises InputError."""
    path = inputs.sources["job"]
    workload = with_mix(inputs.job.workload, mix)
    where = SourcePaths(path, inputs.sources["model"], path.parent)
    try:
        batches = batches_of(workload, inputs.model, inputs.module, options.span, options.seed, where)
    except InputError as error:
        raise in_job_file(error, path) from error
    return replace(inputs, job=with_fields(inputs.job, workload=workload), batches=batches)
