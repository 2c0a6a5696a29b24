"""Meshes as tests write them down, as the degrees of a layout."""

from typing import Any

from planner.specs.parallelism import MESH_DIMS


def meshed(mesh: dict[str, int]) -> dict[str, Any]:
    """Degrees of a mesh whose slowest dim comes first, and the order of its dims where that is not the usual."""
    dims = [dim for dim in reversed(mesh) if mesh[dim] > 1]
    usual = dims == sorted(dims, key=MESH_DIMS.index)
    return {**mesh} if usual else {**mesh, "rank_order": "-".join(dims)}
