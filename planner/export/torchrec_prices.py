"""Prices of embedding tables by TorchRec's own estimator, in a process of a Python that has it."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.costs.tables import ShardingGroup, rank_samples, shard_ranks, table_loads
from planner.errors import InputError
from planner.export.torchrec import compute_kernel, sharding_type
from planner.plan.plan_file import Plan
from planner.specs.hardware.cluster import device_of_rank
from planner.specs.tables import Cut, Table
from planner.units import GIB

PYTHON = "TORCHREC_PYTHON"
INSTALL = "pip install --no-deps torchrec==1.8.0 fbgemm-gpu-cpu==1.8.0 beside torch 2.13"
MS = 1e-3
LONGEST = 3600.0  # seconds that TorchRec may take: its planner needs minutes for hundreds of tables


class AskedTable(NamedTuple):
    """A table and how it is cut; TorchRec knows columns of a shard in place of parts, 0: all of them."""

    table: Table
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
    asked = {
        name: AskedTable(table, each.cut, table.dim // each.parts if each.parts > 1 else 0, each.cache)
        for name, table in plan.uses.tables.items()
        for each in [placed.tables[name]]
    }
    group, memory = loads.group, plan.uses.devices[device].memory_gib * GIB
    told = ask_torchrec(asked, group, memory, round(rank_samples(plan)))
    seconds = np.zeros(group.ranks)
    for number, name in enumerate(asked):
        ranks = shard_ranks(int(loads.shards.cut[number]), placed.tables[name].at, group)
        seconds[ranks] += [each * MS for each in told["prices"][name]]
    return RankSeconds(loads.lookup + loads.exchange, seconds)


def ask_torchrec(
    asked: Mapping[str, AskedTable], group: ShardingGroup, memory: float, batch: int, plan: bool = False
) -> Any:
    """What TorchRec says of tables that are cut so over a group whose devices have so many bytes, and of its own plan.
    Raises InputError where it says nothing.
    """
    python = os.environ.get(PYTHON) or (sys.executable if find_spec("torchrec") else "")
    if not python:
        raise InputError("TorchRec is not installed", where="--prices", fix=f"{INSTALL}; or {PYTHON}, a Python with it")
    tables = {
        name: {
            **{"rows": each.table.rows, "dim": each.table.dim, "pooling": each.table.pooling},
            "data_type": each.table.dtype.upper(),
            "sharding_type": sharding_type(each.cut),
            "compute_kernel": compute_kernel(each.cut, each.cache),
            **{"columns": each.columns, "cache": each.cache},
        }
        for name, each in asked.items()
    }
    topology = {
        **{"world_size": group.ranks, "local_world_size": group.per_node, "hbm_cap": int(memory)},
        "hbm_mem_bw": group.memory_rate * MS,
        "intra_host_bw": group.near * MS,
        "inter_host_bw": group.adapter * MS,
    }
    question = json.dumps({"tables": tables, "topology": topology, "batch": batch, "plan": plan})
    # Isolated: a module beside the script is called torchrec, too
    command = [python, "-I", str(Path(__file__).with_name("torchrec_estimator.py"))]
    try:
        answer = subprocess.run(command, input=question, capture_output=True, text=True, check=True, timeout=LONGEST)
        return json.loads(answer.stdout)
    except (OSError, subprocess.SubprocessError, json.JSONDecodeError) as error:
        last = (getattr(error, "stderr", "") or str(error)).strip().splitlines()[-1:]
        raise InputError(f"TorchRec's estimator ended: {' '.join(last)}", where=str(python), fix=INSTALL) from error
