"""The files that a job names: whether all are there, its cluster, the profile that prices its ranks, its software.

A cluster's file says ranks and levels, or nodes, GPUs and adapters, which are expanded here. The profile `auto` takes,
for each kind of rank, the profile measured here, else the shipped one. A profile that the job names applies to the
ranks that it was made on: with one kind of rank to that one; with several to those whose device has the facts that the
profile states, and the others are priced as by `auto`. Profiles of several kinds of ranks are merged into one. The
software `any` is the generic framework with every knob, for what nothing need launch; a software that is like another
has what its own file leaves out from that one's.
"""

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from planner import files
from planner.errors import InputError, InputErrors
from planner.specs import library
from planner.specs.base import Spec, with_fields
from planner.specs.framework.knobs import Knobs
from planner.specs.framework.software import ANY, Software
from planner.specs.hardware.cluster import Cluster, entry_name, rank_kinds
from planner.specs.hardware.node_cluster import NodeCluster, expand_nodes
from planner.specs.hardware.pool import Pool
from planner.specs.hardware.profile import Device, Profile
from planner.specs.job import Job
from planner.specs.model import Model
from planner.specs.workload.distributions import DISTRIBUTIONS
from planner.specs.workload.length_sources import Distribution, StreamDistribution

S = TypeVar("S", bound=Spec)
EXPANDED = {"ranks", "levels"}  # keys of the form that needs no expansion


def read_cluster(reference: str, base: Path | None = None, where: str = "") -> tuple[Cluster, Path]:
    """Return the cluster of a file, given by name or path, in its expanded form, and the path. Raises InputError."""
    found, path = read_cluster_or_pool(reference, base, where)
    if isinstance(found, Pool):
        fix = "planner ask --pool, and go on with its plan; or another cluster"
        raise InputError("the cluster is a pool, of which nothing is chosen", where=files.place(path, "pool"), fix=fix)
    return found, path


def read_cluster_or_pool(reference: str, base: Path | None = None, where: str = "") -> tuple[Cluster | Pool, Path]:
    """The same, or the pool that a file has in place of a cluster. Raises InputError."""
    path = library.find_file(reference, Cluster, base, where)
    keys = {*files.top_keys(path)}
    if "pool" in keys:
        return files.read(path, Pool), path
    if keys & EXPANDED:
        return files.read(path, Cluster), path
    return expanded_cluster(files.read(path, NodeCluster), path), path


def expanded_cluster(nodes: NodeCluster, path: Path) -> Cluster:
    """Return the expanded form of a cluster that was read from `path`. Raises InputError."""
    where = files.place(path, "gpus")
    kind = device_kind(nodes.gpus.device, path.parent, where)
    device, _ = library.read_named(kind, Profile, path.parent, where)
    try:
        return expand_nodes(nodes, kind, device.device)
    except ValueError as error:
        message, _, fix = str(error).partition(" | ")
        raise InputError(message, where=files.place(path), fix=fix) from error


def device_kind(named: str, base: Path | None = None, where: str = "") -> str:
    """Return the device that is meant by a name or its beginning, `h100` for `h100-80gb`, or by a path.

    Raises InputError where there is none, or more than one.
    """
    if library.is_path(named):
        return named
    shipped = library.shipped_names(Profile)
    meant = [name for name in shipped if name == named] or [name for name in shipped if name.startswith(f"{named}-")]
    if len(meant) > 1:
        raise InputError(f"`{named}` may be several devices", where=where, fix=f"say {' or '.join(meant)}")
    if not meant:
        library.find_file(named, Profile, base, where)
    return meant[0]


ProfileFile = tuple[Profile, Path]


def choose_profile(
    job: Job, cluster: Cluster, devices: dict[str, Device], path: Path
) -> tuple[Profile, dict[str, Path]]:
    """Return the profile that prices a job, itself read from `path`, and the files that were read, by role.

    Raises InputError.
    """
    kinds_here = rank_kinds(cluster)
    named = (
        None if job.profile == "auto" else library.read_named(job.profile, Profile, path.parent, f"{path} (profile)")
    )
    if len(kinds_here) == 1:
        profile, file = named or default_profile(kinds_here[0], path)
        return profile, {"profile": file}
    if named and not any(made_on(named[0], devices[kind]) for kind in kinds_here):
        raise InputError(
            f"the profile `{named[0].name}` was made on none of {', '.join(kinds_here)}: its device is another",
            where=f"{path} (profile)",
            fix="profile: auto, or a profile of one of these",
        )
    by_kind = {
        kind: named if named and made_on(named[0], devices[kind]) else default_profile(kind, path)
        for kind in kinds_here
    }
    return merge_profiles({kind: profile for kind, (profile, _) in by_kind.items()}), {
        f"profile {kind}": file for kind, (_, file) in by_kind.items()
    }


def default_profile(kind: str, path: Path) -> ProfileFile:
    """Read the profile measured here for a kind of rank, else the shipped one."""
    measured = library.cache_folder() / f"{kind}.yaml"
    if measured.is_file():
        return files.read(measured, Profile), measured
    return library.read_named(kind, Profile, path.parent, f"{path} (profile)")


def made_on(profile: Profile, device: Device) -> bool:
    """Whether a profile was made on such a device; the price by the hour may differ."""
    facts = ("kind", "memory_gib", "tflops", "memory_gb_per_s")
    return all(getattr(profile.device, fact) == getattr(device, fact) for fact in facts)


def merge_profiles(profiles: dict[str, Profile]) -> Profile:
    """Merge the profiles of several kinds of ranks into one."""
    first = next(iter(profiles.values()))
    return with_fields(
        first,
        shares=None,  # timed on one kind of device
        name=", ".join(dict.fromkeys(profile.name for profile in profiles.values())),
        modules={entry_name(n, kind, profiles): c for kind, each in profiles.items() for n, c in each.modules.items()},
        collectives={
            entry_name(n, kind, profiles): c for kind, each in profiles.items() for n, c in each.collectives.items()
        },
    )


GENERIC = "generic"
MOST_LIKE = 4  # software files in a row of which each is like the next


def read_software(reference: str, base: Path | None = None, where: str = "") -> tuple[Software, Path]:
    """Return the content of a software file, given by name or path, and its path. Raises InputError."""
    path = library.find_file(GENERIC if reference == ANY else reference, Software, base, where)
    software = complete_software(path)
    return (with_fields(software, name=ANY, knobs=Knobs()) if reference == ANY else software), path


def complete_software(path: Path, before: int = 0) -> Software:
    """The content of a software file, what it leaves out as the one has it that it is like; `before`: files that are
    like this one. Raises InputError.
    """
    own = files.read(path, Software)
    if not own.like:
        return own
    where = files.place(path, "like")
    if before == MOST_LIKE:
        message = f"more than {MOST_LIKE} software files are each like the next one, or like themselves"
        raise InputError(message, where=where, fix="like: one that is like no other")
    other = complete_software(library.find_file(own.like, Software, path.parent, where), before + 1)
    given, _ = files.load_yaml(files.read_text(path), str(path))
    return with_fields(overlaid(other, own, given), like="")


def overlaid(whole: S, own: S, given: Mapping[str, Any]) -> S:
    """A spec with those values of another that its file says, key by key."""
    values = {key: getattr(own, key) for key in given}
    for key, value in values.items():
        before = getattr(whole, key)
        if isinstance(value, Spec):
            values[key] = overlaid(before, value, given[key])
        elif isinstance(value, dict):
            values[key] = {**before, **value}
    return with_fields(whole, **values)


FILES: dict[str, type] = {"model": Model, "cluster": Cluster, "software": Software, "profile": Profile}
NOT_FILES = {"software": ANY, "profile": "auto"}  # words that name no file
NameTables = Mapping[str, Collection[str]]  # key of a job → the names that it may have

NO_TABLES: NameTables = {}


def require_names(job: Job, path: Path, tables: NameTables) -> None:
    """Raises InputError naming every file, table entry and distribution that a job, read from `path`, misnames."""
    errors = [
        *missing_files(job, path),
        *(
            misnamed(key, getattr(job, key), [*known], files.place(path, key))
            for key, known in tables.items()
            if getattr(job, key) not in ("", *known)
        ),
        *missing_distributions(job, path),
    ]
    if errors:
        raise errors[0] if len(errors) == 1 else InputErrors(errors)


def missing_files(job: Job, path: Path) -> Iterator[InputError]:
    """Yield an error for each file that is named and not shipped."""
    for key, kind in FILES.items():
        name = getattr(job, key)
        if name != NOT_FILES.get(key) and not library.is_path(name):
            try:
                library.find_file(name, kind, path.parent)
            except InputError as error:
                yield InputError(error.message, where=files.place(path, key), fix=error.fix)


def missing_distributions(job: Job, path: Path) -> Iterator[InputError]:
    """Yield an error for each distribution that there is not, of samples and of streams."""
    drawn: list[tuple[tuple[str, ...], object]] = [(("lengths",), job.workload.lengths)]
    drawn += [(("streams", name), each) for name, each in job.workload.streams.items()]
    for route, source in drawn:
        if isinstance(source, Distribution | StreamDistribution) and source.name not in DISTRIBUTIONS:
            where = files.place(path, "workload", *route, "name")
            yield misnamed("distribution", source.name, [*DISTRIBUTIONS], where)


def misnamed(what: str, name: str, known: list[str], where: str) -> InputError:
    """The error for a name that is not in a table."""
    fix = files.nearest_word(name, known) or f"one of {', '.join(known)}"
    return InputError(f"no {what} is called `{name}`", where=where, fix=fix)
