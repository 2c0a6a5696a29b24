"""Reads graphs: edge lists as CSV (two columns of node numbers) or `.npz` (arrays `u` and `v`), and numbers of nodes.

Edges have no direction here: each is stored from both of its ends, once. Loops are left out. Nodes up to the highest
number that occurs, or to `nodes`, exist whether or not an edge has them.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

import numpy as np
from numpy.typing import NDArray

from planner import files
from planner.errors import InputError
from planner.units import byte_size

Ints = NDArray[np.int64]
MOST_NODES, MOST_BYTES = 10**9, 2**30
UNCONNECTED = 10**6  # nodes without an edge that a graph may have, besides ten for each edge
HOW = "lines of two node numbers, such as 0,17; or an .npz with arrays u and v"


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """An undirected graph: node i has the neighbours `neighbours[indptr[i]:indptr[i + 1]]`, which rise."""

    indptr: Ints  # (nodes + 1,)
    neighbours: Ints  # (edges from both ends,)
    loops: int = 0  # that were left out

    @property
    def nodes(self) -> int:
        return len(self.indptr) - 1

    @property
    def degrees(self) -> Ints:
        """By node, the number of its neighbours."""
        return np.diff(self.indptr)


def graph_of(u: Ints, v: Ints, nodes: int = 0) -> Graph:
    """The graph of edges between u (edges,) and v (edges,)."""
    count = max(nodes, int(max(u.max(initial=-1), v.max(initial=-1))) + 1)
    loops = int((u == v).sum())
    u, v = u[u != v], v[u != v]
    keys = np.unique(np.concatenate([u * count + v, v * count + u]))
    indptr = np.zeros(count + 1, dtype=np.int64)
    np.cumsum(np.bincount(keys // max(count, 1), minlength=count), out=indptr[1:])
    return Graph(indptr, keys % max(count, 1), loops)


def read_graph(path: Path) -> Graph:
    """The graph of a file. Raises InputError where it is none, located by line."""
    if path.suffix == ".npz":
        arrays = read_arrays(path)
        u, v = (checked_nodes(arrays.get(name, np.zeros(0, np.int64)), path) for name in "uv")
        if len(u) != len(v) or not {"u", "v"} <= {*arrays}:
            raise InputError("the archive has no arrays u and v of one length", where=str(path), fix=HOW)
        count = checked_nodes(arrays.get("nodes", np.zeros(1, np.int64)).reshape(-1), path).max(initial=0)
    else:
        u, v = read_columns(path, 2).T
        count = np.int64(0)
    if not len(u):
        raise InputError("the graph has no edges", where=str(path), fix=HOW)
    nodes = max(int(count), int(u.max()) + 1, int(v.max()) + 1)
    if nodes > 10 * len(u) + UNCONNECTED:
        message = f"{nodes:,} nodes are numbered, and {len(u):,} edges are given"
        raise InputError(message, where=str(path), fix="number nodes from 0 on, without gaps")
    return graph_of(u, v, nodes)


def read_nodes(path: Path, nodes: int) -> Ints:
    """Distinct numbers of nodes from a file: one a line, or the array `nodes` of an .npz. Raises InputError."""
    if path.suffix == ".npz":
        found = checked_nodes(read_arrays(path).get("nodes", np.zeros(0, np.int64)), path)
    else:
        found = read_columns(path, 1)[:, 0]
    if not len(found):
        raise InputError("there are no training nodes", where=str(path), fix="one number a line")
    if found.max() >= nodes:
        message = f"node {found.max()} is not in the graph, which has {nodes}"
        raise InputError(message, where=str(path), fix="number nodes as the graph does")
    if len(np.unique(found)) < len(found):
        raise InputError("a training node is named twice", where=str(path), fix="name each once")
    return found


def read_labels(path: Path, nodes: int) -> Ints:
    """The label of each node, one a line. Raises InputError."""
    found = read_columns(path, 1)[:, 0]
    if len(found) != nodes:
        message = f"there are {len(found)} labels of {nodes} nodes"
        raise InputError(message, where=str(path), fix="a label for each node, by rising number")
    return np.unique(found, return_inverse=True)[1].astype(np.int64)


def read_arrays(path: Path) -> dict[str, Any]:
    """The arrays of an .npz. Raises InputError."""
    files.require_regular(path)
    try:
        with ZipFile(path) as archive:
            unpacked = sum(each.file_size for each in archive.infolist())
    except (OSError, BadZipFile, ValueError) as error:
        raise InputError(f"this is no archive of arrays: {error}", where=str(path), fix=HOW) from error
    if unpacked > MOST_BYTES:
        message = f"its arrays are {byte_size(unpacked)}, and may be {byte_size(MOST_BYTES)}"
        raise InputError(message, where=str(path), fix="a part of the graph, or numbers of 32 bits")
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except Exception as error:  # numpy reads the heads of files in many ways
        raise InputError(f"this is no archive of arrays: {error}", where=str(path), fix=HOW) from error


def checked_nodes(array: Any, path: Path) -> Ints:
    """An array as numbers of nodes. Raises InputError."""
    array = np.asarray(array)
    if (
        array.ndim != 1
        or array.dtype.kind not in "iu"
        or (len(array) and not 0 <= array.min() <= array.max() < MOST_NODES)
    ):
        raise InputError(f"node numbers are whole, from 0 to {MOST_NODES - 1:,}, in one row", where=str(path), fix=HOW)
    numbers: Ints = array.astype(np.int64)
    return numbers


def read_columns(path: Path, columns: int) -> Ints:
    """Rows (rows, columns) of whole numbers of a CSV; a first line of names is left out. Raises InputError."""
    rows = []
    for number, cells in files.read_csv(path):
        if not cells or (number == 1 and not is_number(cells[0])):
            continue
        if len(cells) != columns or not all(cell.strip().isdigit() and len(cell) < 12 for cell in cells):
            message = f"`{','.join(cells)[:80]}` is not {'a node number' if columns == 1 else 'two node numbers'}"
            raise InputError(message, where=f"{path}:{number}", fix=HOW if columns == 2 else "one number a line")
        rows.append([int(cell) for cell in cells])
    found = np.array(rows, dtype=np.int64).reshape(-1, columns)
    return checked_nodes(found.ravel(), path).reshape(-1, columns)


def is_number(cell: str) -> bool:
    """Whether a cell has any number, of a node or not, and no name of a column."""
    try:
        float(cell)
    except ValueError:
        return False
    return True
