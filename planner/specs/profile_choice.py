"""The choice of the profile that prices a job's ranks; profiles of several kinds of ranks are merged into one.

`auto` takes, for each kind, the profile measured here, else the shipped one. A profile that the job names applies to
the ranks that it was made on: with one kind of rank to that one; with several to those whose device has the facts that
the profile states, and the others are priced as by `auto`.
"""

from pathlib import Path

from planner import files
from planner.errors import InputError
from planner.specs import library
from planner.specs.base import with_fields
from planner.specs.hardware.cluster import Cluster
from planner.specs.hardware.profile import Device, Profile
from planner.specs.hardware.rank_kinds import entry_name, rank_kinds
from planner.specs.job import Job

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
        name=", ".join(dict.fromkeys(profile.name for profile in profiles.values())),
        modules={entry_name(n, kind, profiles): c for kind, each in profiles.items() for n, c in each.modules.items()},
        collectives={
            entry_name(n, kind, profiles): c for kind, each in profiles.items() for n, c in each.collectives.items()
        },
    )
