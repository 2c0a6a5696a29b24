"""What is shipped, by kind: names for jobs and options, what each is, and its source."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import import_module

from planner.hf import FAMILIES
from planner.specs import library
from planner.specs.framework.software import Software
from planner.specs.hardware.cluster import Cluster
from planner.specs.hardware.profile import Profile
from planner.specs.job import Job
from planner.specs.model import Model
from planner.specs.named_files import read_cluster
from planner.specs.parameters import active_parameters, parameter_counts
from planner.specs.workload.distributions import DISTRIBUTIONS
from planner.specs.workload.length_sources import Distribution, FixedLength, Workload
from planner.specs.workload.sample_mix import CLIPS, IMAGES
from planner.strategies import BEST, STRATEGIES, strategy_called


@dataclass(frozen=True, slots=True)
class ShippedEntry:
    """One line of a list. `more`: numbers for programs that read it."""

    name: str
    what: str
    source: str
    more: dict[str, int] = field(default_factory=dict)
    origin: str = ""  # of a model: read from a config.json, described by its matrices, or shipped as it is


def shipped_jobs() -> Iterator[ShippedEntry]:
    """Yield every shipped job."""
    for name in library.shipped_names(Job):
        job, _ = library.read_named(name, Job)
        decided = "served" if job.workload.requests else job.strategy
        what = f"{job.model} on {job.cluster}: {decided}, {workload_text(job.workload)}"
        yield ShippedEntry(name, what, f"profiles/jobs/{name}.yaml")


def workload_text(workload: Workload) -> str:
    """Return the samples of a batch and where their lengths are from."""
    if workload.tasks:
        return f"{workload.batch_rows} samples of {len(workload.tasks)} tasks"
    if workload.requests:
        return f"requests of {workload.requests}"
    lengths = workload.lengths
    if isinstance(lengths, int | FixedLength):
        tokens = lengths if isinstance(lengths, int) else lengths.tokens
        return f"{workload.batch_rows} samples of {tokens:,} tokens"
    origin = lengths.name if isinstance(lengths, Distribution) else str(lengths.__struct_config__.tag)
    return f"{workload.batch_rows} samples of lengths from {origin}"


def shipped_clusters() -> Iterator[ShippedEntry]:
    """Yield every shipped cluster."""
    for name in library.shipped_names(Cluster):
        cluster, _ = read_cluster(name)
        ranks = " and ".join(f"{kind.count} {kind.kind}, {kind.per_node} a node" for kind in cluster.ranks)
        levels = ", ".join(f"{level.name} {level.gb_per_s:g} GB/s" for level in cluster.levels)
        yield ShippedEntry(name, f"{ranks}: {levels}", cluster.source, {"ranks": cluster.size})


def shipped_devices() -> Iterator[ShippedEntry]:
    """Yield every shipped device."""
    for name in library.shipped_names(Profile):
        profile, _ = library.read_named(name, Profile)
        device = profile.device
        dtype, tflops = next(iter(device.tflops.items()))
        what = f"{device.memory_gib:g} GiB at {device.memory_gb_per_s:g} GB/s, {tflops:g} TFLOP/s in {dtype}"
        yield ShippedEntry(name, what, profile.provenance.source)


def shipped_models() -> Iterator[ShippedEntry]:
    """Yield every shipped model, with its exact numbers of parameters."""
    for name in library.shipped_names(Model):
        model, _ = library.read_named(name, Model)
        counts = {module: parameter_counts(spec).total for module, spec in model.modules.items()}
        total, active = sum(counts.values()), sum(active_parameters(spec) for spec in model.modules.values())
        parts = " + ".join(f"{module} {count:,}" for module, count in counts.items())
        kinds = "" if len(counts) > 1 else f"{next(iter(model.modules.values())).__struct_config__.tag}, "
        what = f"{kinds}{total:,} parameters" + (f" ({parts})" if len(counts) > 1 else "")
        used = f", {active:,} for a token" if active != total else ""
        more = {"parameters": total, "active": active, **counts}
        yield ShippedEntry(name, what + used, model.source, more, model_origin(model))


def model_origin(model: Model) -> str:
    """Whether a model was read from a config.json, or is described by its matrices; or else is shipped as it is."""
    if any(module.__struct_config__.tag == "described" for module in model.modules.values()):
        return "described"
    return "read" if model.source.startswith("config.json of") else "shipped"


def read_families() -> Iterator[ShippedEntry]:
    """Yield every kind of config.json that is read; any other that transformers builds is described (--build)."""
    for name in sorted(FAMILIES):
        yield ShippedEntry(name, "a config.json of this model_type is read: planner import hf, ask --hf", "planner/hf")


def shipped_lengths() -> Iterator[ShippedEntry]:
    """Yield every distribution of lengths."""
    for name, quantiles in DISTRIBUTIONS.items():
        at = dict(quantiles.points)
        what = f"median {at[0.5]:,} tokens, 99 % at most {at[0.99]:,}, longest {at[1.0]:,}"
        yield ShippedEntry(name, what, quantiles.source)


def shipped_images() -> Iterator[ShippedEntry]:
    """Yield every distribution of sizes of images."""
    for name, images in IMAGES.items():
        longest, widest = images.longer[-1][1], dict(images.aspect)[0.99]
        what = f"longer side at most {longest:,} pixels, 99 % at most {widest:.2g} as wide as high"
        yield ShippedEntry(name, what, images.source)


def shipped_audio() -> Iterator[ShippedEntry]:
    """Yield every distribution of durations of sound."""
    for name, clips in CLIPS.items():
        at = dict(clips.seconds)
        what = f"median {at[0.5]:,.3g} s, 99 % at most {at[0.99]:,.4g} s, longest {at[1.0]:,.4g} s"
        yield ShippedEntry(name, what, clips.source)


def shipped_strategies() -> Iterator[ShippedEntry]:
    """Yield every strategy, and `best`."""
    for name, entry in STRATEGIES.items():
        papers = re.findall(r"arXiv \d{4}\.\d{5}", import_module(entry.module).__doc__ or "")
        yield ShippedEntry(name, strategy_called(name).SUMMARY, ", ".join(dict.fromkeys(papers)))
    yield ShippedEntry(BEST, "every strategy that supports the job, compared on one price", "the others")


def shipped_software() -> Iterator[ShippedEntry]:
    """Yield every training framework."""
    for name in library.shipped_names(Software):
        software, _ = library.read_named(name, Software)
        what = software.provenance.note.partition(". ")[0]
        yield ShippedEntry(name, what, f"{software.provenance.source}, {software.provenance.date}")


LISTS: dict[str, Callable[[], Iterator[ShippedEntry]]] = {
    "jobs": shipped_jobs,
    "clusters": shipped_clusters,
    "devices": shipped_devices,
    "models": shipped_models,
    "families": read_families,
    "lengths": shipped_lengths,
    "images": shipped_images,
    "audio": shipped_audio,
    "strategies": shipped_strategies,
    "software": shipped_software,
}
