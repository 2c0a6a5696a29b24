"""A job with everything it names read in: what strategies and pricing start from."""

from dataclasses import dataclass, field
from pathlib import Path

from planner.errors import InputError
from planner.specs import library
from planner.specs.accounting import BUNDLED, Accounting
from planner.specs.base import changed
from planner.specs.cluster import Cluster
from planner.specs.job import Job
from planner.specs.layers import Module
from planner.specs.lengths import Batch, batches
from planner.specs.model import Model
from planner.specs.parallelism import Parallelism, said
from planner.specs.priced import find_profile
from planner.specs.profile import Device, Profile
from planner.specs.rates import Rates
from planner.specs.software import Software
from planner.specs.streams import Places, with_streams
from planner.specs.timing import Timing
from planner.specs.token_rows import OFFSETS
from planner.specs.workload import LengthsFile, StreamFile, TokensFolder, Workload


@dataclass(frozen=True, slots=True)
class Inputs:
    """One job, resolved."""

    job: Job
    model: Model
    module: str  # whose items the workload's rows are
    cluster: Cluster
    devices: dict[str, Device]
    profile: Profile  # with several kinds of ranks, its entries say of which: specs/kinds.py
    batches: tuple[Batch, ...]
    sources: dict[str, Path]  # what was read, by role
    seed: int = 0
    effort: int = 2
    first_row: int = 0
    rates: dict[str, Rates] = field(default_factory=dict)  # of the kinds of ranks that somebody timed
    timing: Timing = field(default_factory=Timing)
    accounting: Accounting = BUNDLED
    software_spread: float = 0.3  # of a step's seconds: their 80 % interval is seconds·e^±spread

    @property
    def spec(self) -> Module:
        return self.model.modules[self.module]

    @property
    def said(self) -> Parallelism:
        """All that the job says of how its module is spread: `fix.layouts` of the module, and what only `layout` says.

        Raises ValueError, as `what is wrong | what to do`, where the two cannot be together.
        """
        fixed = self.job.fix.layouts.get(self.module, Parallelism())
        return changed(self.job.layout, **said(fixed))

    @property
    def device(self) -> Device:
        """The device of the first kind of rank."""
        return self.devices[self.cluster.ranks[0].kind]


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line may say beyond the job's file."""

    batches: int = 1
    first_row: int = 0
    seed: int = 0
    effort: int = 2
    lengths: str | None = None


def load(reference: str, options: Options) -> Inputs:
    """The job that a name or a path means, with all it names. Raises InputError."""
    job, path = library.read(reference, Job)
    return resolve(job, path, options)


def resolve(job: Job, path: Path, options: Options) -> Inputs:
    """Everything that `job`, read from `path`, names."""
    base = path.parent
    model, model_path = library.read(job.model, Model, base, f"{path} (model)")
    cluster, cluster_path = library.read(job.cluster, Cluster, base, f"{path} (cluster)")
    sources = {"job": path, "model": model_path, "cluster": cluster_path}
    software, sources["software"] = library.read(job.software, Software, base, f"{path} (software)")
    devices, rates = {}, {}
    for kind in cluster.ranks:
        facts, sources[f"device {kind.kind}"] = library.read(kind.kind, Profile, base, f"{cluster_path} (ranks)")
        devices[kind.kind] = facts.device
        rates[kind.kind] = facts.rates
    profile, found = find_profile(job, cluster, devices, path)
    sources |= found
    workload = job.workload
    if options.lengths:
        workload = replace_lengths(job, Path(options.lengths).absolute())
    if isinstance(workload.lengths, LengthsFile):
        sources["lengths"] = base / workload.lengths.path
    if isinstance(workload.lengths, TokensFolder):
        sources["lengths"] = base / workload.lengths.path / OFFSETS
    module = choose_module(job, model, path)
    samples = batches(workload, options.batches, options.first_row, options.seed, base)
    where = Places(path, model_path, base)
    sources |= {
        f"stream {name}": base / each.path for name, each in workload.streams.items() if isinstance(each, StreamFile)
    }
    return Inputs(
        job=job,
        model=model,
        module=module,
        cluster=cluster,
        devices=devices,
        profile=profile,
        batches=tuple(with_streams(samples, workload, model, module, options.seed, where)),
        sources=sources,
        seed=options.seed,
        effort=options.effort,
        first_row=options.first_row,
        rates={kind: found for kind, found in rates.items() if found},
        timing=software.timing,
        accounting=software.accounting,
        software_spread=software.spread,
    )


def replace_lengths(job: Job, path: Path) -> Workload:
    """From a folder of tokens, or a file in which the column is called as in the job's own."""
    if path.is_dir() or path.name == OFFSETS:
        return changed(job.workload, lengths=TokensFolder(path=str(path if path.is_dir() else path.parent)))
    lengths = job.workload.lengths
    column = lengths.column if isinstance(lengths, LengthsFile) else "tokens"
    return changed(job.workload, lengths=LengthsFile(path=str(path), column=column))


def choose_module(job: Job, model: Model, path: Path) -> str:
    """The module that the workload's rows are items of."""
    if not job.workload.module and len(model.modules) == 1:
        return next(iter(model.modules))
    if job.workload.module not in model.modules:
        said = f"module `{job.workload.module}`" if job.workload.module else "no module"
        raise InputError(
            f"the workload names {said}, the model has {', '.join(model.modules)}",
            where=f"{path} (workload.module)",
            fix="name one of them",
        )
    return job.workload.module
