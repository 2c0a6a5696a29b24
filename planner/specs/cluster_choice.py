"""The cluster that a job names: its file says ranks and levels, or nodes, GPUs and adapters, expanded here."""

from pathlib import Path

from planner import files
from planner.errors import InputError
from planner.specs import library
from planner.specs.hardware.cluster import Cluster
from planner.specs.hardware.node_cluster import NodeCluster, expand_nodes
from planner.specs.hardware.profile import Profile

EXPANDED = {"ranks", "levels"}  # keys of the form that needs no expansion


def read_cluster(reference: str, base: Path | None = None, where: str = "") -> tuple[Cluster, Path]:
    """Return the cluster of a file, given by name or path, in its expanded form, and the path. Raises InputError."""
    path = library.find_file(reference, Cluster, base, where)
    if EXPANDED & set(files.top_keys(path)):
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
