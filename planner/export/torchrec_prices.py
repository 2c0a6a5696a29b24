"""Prices of embedding tables by TorchRec's own estimator, in a process of a Python that has it."""

import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.costs.tables import ShardingGroup, plan_group, rank_samples, shard_ranks, table_loads
from planner.errors import InputError
from planner.export.torchrec import compute_kernel, sharding_type
from planner.plan.plan_file import Plan
from planner.specs.hardware.cluster import device_of_rank
from planner.specs.tables import Cut, Table
from planner.units import GIB

PYTHON = "TORCHREC_PYTHON"
INSTALL = "pip install --no-deps torchrec==1.8.0 fbgemm-gpu-cpu==1.8.0 beside torch 2.13"
MS = 1e-3


class AskedCut(NamedTuple):
    """How a table is cut: TorchRec knows columns of a shard in place of parts; 0: all of them."""

    cut: Cut
    columns: int = 0
    cache: float = 0.0


class RankSeconds(NamedTuple):
    """Seconds of each rank of a group for its tables, without averages of copies: planner's, and TorchRec's."""

    own: NDArray[np.float64]
    torchrec: NDArray[np.float64]


def torchrec_seconds(plan: Plan) -> RankSeconds:
    """What the tables of a plan take of the ranks of a group. Raises InputError where TorchRec is not there."""
    placed, loads, device = plan.embeddings, table_loads(plan), device_of_rank(plan.uses.cluster, 0)
    if not placed or not loads:
        raise InputError("the plan has no embedding tables", where="--prices", fix="a plan of a job with tables")
    group, tables = plan_group(plan, placed), plan.uses.tables
    cuts = {
        name: AskedCut(each.cut, tables[name].dim // each.parts if each.parts > 1 else 0, each.cache)
        for name, each in placed.tables.items()
    }
    topology = topology_of(group, plan.uses.devices[device].memory_gib * GIB)
    told = ask_torchrec(tables, topology, round(rank_samples(plan)), by_cut(cuts))
    seconds = np.zeros(group.ranks)
    for number, name in enumerate(tables):
        ranks = shard_ranks(int(loads.shards.cut[number]), placed.tables[name].at, group)
        seconds[ranks] += [each * MS for each in prices_of(told, name)]
    return RankSeconds(loads.lookup + loads.exchange, seconds)


def topology_of(group: ShardingGroup, memory: float) -> dict[str, float]:
    """The arguments of TorchRec's `Topology` for a group whose devices have so many bytes."""
    return {
        "world_size": group.ranks,
        "local_world_size": group.per_node,
        "hbm_cap": int(memory),
        "hbm_mem_bw": group.memory_rate * MS,
        "intra_host_bw": group.near * MS,
        "inter_host_bw": group.adapter * MS,
    }


def by_cut(cuts: Mapping[str, AskedCut]) -> dict[AskedCut, list[str]]:
    """The tables that are cut in each way."""
    names: dict[AskedCut, list[str]] = defaultdict(list)
    for name, cut in cuts.items():
        names[cut].append(name)
    return names


def ask_torchrec(
    tables: Mapping[str, Table],
    topology: Mapping[str, float],
    batch: int,
    cuts: Mapping[AskedCut, Sequence[str]],
    plan: bool = False,
) -> Any:
    """What TorchRec says of tables that are cut so, and of its own plan. Raises InputError where it says nothing."""
    python = os.environ.get(PYTHON) or (sys.executable if find_spec("torchrec") else "")
    if not python:
        raise InputError("TorchRec is not installed", where="--prices", fix=f"{INSTALL}; or {PYTHON}, a Python with it")
    shapes = {
        name: {"rows": t.rows, "dim": t.dim, "pooling": t.pooling, "data_type": t.dtype.upper()}
        for name, t in tables.items()
    }
    asked = [
        {
            "sharding_type": sharding_type(each.cut),
            "compute_kernel": compute_kernel(each.cut, each.cache),
            "columns": each.columns,
            "cache": each.cache,
            "names": [*names],
        }
        for each, names in cuts.items()
    ]
    question = {"tables": shapes, "topology": topology, "batch": batch, "cuts": asked, "plan": plan}
    script = Path(__file__).with_name("torchrec_estimator.py")
    try:
        done = subprocess.run(
            [python, "-I", script], input=json.dumps(question), capture_output=True, text=True, check=True
        )
        return json.loads(done.stdout)
    except (OSError, subprocess.CalledProcessError, json.JSONDecodeError) as error:
        last = (getattr(error, "stderr", "") or str(error)).strip().splitlines()[-1:]
        raise InputError(f"TorchRec's estimator ended: {' '.join(last)}", where=str(python), fix=INSTALL) from error


def prices_of(told: Any, name: str) -> list[float]:
    """Milliseconds of each shard of a table."""
    return next(found[name] for found in told["prices"] if name in found)
