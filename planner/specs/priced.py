"""Which profile prices a job's ranks: one for each kind of them, as one.

`auto` is, kind by kind, what was measured here for it, else what is shipped for it. A profile that the job names holds
for the ranks that it was made on: where there is one kind, for that one; where there are several, for those whose
device has the facts that it states, and the others are priced as by `auto`.
"""

from pathlib import Path

from planner import files
from planner.errors import InputError
from planner.specs import library
from planner.specs.base import changed
from planner.specs.cluster import Cluster
from planner.specs.job import Job
from planner.specs.kinds import kinds, on_kind
from planner.specs.profile import Device, Profile

Found = tuple[Profile, Path]


def find_profile(job: Job, cluster: Cluster, devices: dict[str, Device], path: Path) -> tuple[Profile, dict[str, Path]]:
    """What prices the job that was read from `path`, and where it was read, by role."""
    among = kinds(cluster)
    named = None if job.profile == "auto" else library.read(job.profile, Profile, path.parent, f"{path} (profile)")
    if len(among) == 1:
        profile, place = named or of_kind(among[0], path)
        return profile, {"profile": place}
    if named and not any(fits(named[0], devices[kind]) for kind in among):
        raise InputError(
            f"the profile `{named[0].name}` was made on none of {', '.join(among)}: its device is another",
            where=f"{path} (profile)",
            fix="profile: auto, or a profile of one of these",
        )
    found = {kind: named if named and fits(named[0], devices[kind]) else of_kind(kind, path) for kind in among}
    return merged({kind: profile for kind, (profile, _) in found.items()}), {
        f"profile {kind}": place for kind, (_, place) in found.items()
    }


def of_kind(kind: str, path: Path) -> Found:
    """What was measured here for a kind of rank, else what is shipped for it."""
    measured = library.cache() / f"{kind}.yaml"
    if measured.is_file():
        return files.read(measured, Profile), measured
    return library.read(kind, Profile, path.parent, f"{path} (profile)")


def fits(profile: Profile, device: Device) -> bool:
    """Whether a profile was made on such a device: what it costs by the hour is of no matter."""
    facts = ("kind", "memory_gib", "tflops", "memory_gb_per_s")
    return all(getattr(profile.device, fact) == getattr(device, fact) for fact in facts)


def merged(profiles: dict[str, Profile]) -> Profile:
    """The profiles of several kinds as one."""
    first = next(iter(profiles.values()))
    return changed(
        first,
        name=", ".join(dict.fromkeys(profile.name for profile in profiles.values())),
        modules={on_kind(n, kind, profiles): c for kind, each in profiles.items() for n, c in each.modules.items()},
        collectives={
            on_kind(n, kind, profiles): c for kind, each in profiles.items() for n, c in each.collectives.items()
        },
    )
