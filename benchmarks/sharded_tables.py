"""Embedding tables: own prices, placements and bounds; beside TorchRec's planner where there is one.

Sets are made by rule and seed: rows 10^U(4, 7.6), widths of 32 to 256, pooling 1 to 50. DLRM-v2's 26 tables are those
of MLPerf, by their published sizes. TORCHREC_PYTHON names a Python with torchrec 1.8.0, fbgemm-gpu-cpu 1.8.0 and torch
2.13 (`--no-deps`, on a CPU); without it TorchRec's side is left out. Its topology's rates price both sides.
"""

import json
import os
import random
import re
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.registry import Figures
from planner import pipeline
from planner.costs.tables import CUTS, ShardingGroup, shard_options, table_bound
from planner.costs.tables.shard_options import hit_shares
from planner.export import export_plan
from planner.export.torchrec_prices import AskedTable, ask_torchrec
from planner.plan.embeddings import Embeddings, TablePlacement
from planner.plan.legal.plan_laws import require_legal
from planner.specs.base import Indices, with_fields
from planner.specs.hardware.cluster import Cluster, Level, RankKind
from planner.specs.hardware.profile import Device
from planner.specs.tables import CACHES, JobTables, Table
from planner.specs.tables.read_tables import cache_hits
from planner.specs.tables.table import ReusedRows
from planner.strategies.sharded_tables import TableProblem, choose_groups, place_tables
from planner.strategies.sharded_tables.placement import Placement
from planner.units import GIB

WIDTHS = (32, 64, 96, 128, 160, 192, 256)
PER_NODE, BATCH, MEMORY, KEPT = 8, 512, 80 * GIB, 0.85  # TorchRec keeps 15 % of a device for the dense part
# TorchRec's usual rates, bytes a second (torchrec.distributed.planner.constants)
MEMORY_RATE, NEAR, FAR = 897 * GIB, 600 * GIB, 12.5 * GIB
DLRM_ROWS = (
    40_000_000, 39_060, 17_295, 7_424, 20_265, 3, 7_122, 1_543, 63, 40_000_000, 3_067_956, 405_282, 10, 2_209, 11_938,
    155, 4, 976, 14, 40_000_000, 40_000_000, 40_000_000, 590_152, 12_973, 108, 36,
)  # fmt: skip
CLUSTER = """format: planner.cluster/1
name: two-nodes
source: made up
ranks: [{kind: h100-80gb, count: 4, per_node: 2}]
levels: [{name: node, ranks: 2, gb_per_s: 450, latency_us: 10}, {name: cluster, ranks: 4, gb_per_s: 50, latency_us: 20}]
"""
JOB = """format: planner.job/1
name: every-cut
model: ctr-transformer
cluster: cluster.yaml
strategy: sparse_tables
sync: step
workload: {lengths: 128, batch_rows: 8}
layout: {zero: 0, dtype: bf16}
degrees: [1]
tables: {from: tables.csv}
"""
REUSE = "dlrm/meta_dlrm_datasets_2021_locality_stats.txt"  # of dlrm_datasets (Meta, 2021)
DLRM_POOLING = (3, 2, 1, 2, 6, 1, 1, 1, 1, 7, 3, 8, 1, 6, 9, 5, 1, 1, 1, 12, 100, 27, 10, 3, 1, 1)


def run(data: Path | None) -> Iterator[Figures]:
    torchrec = os.environ.get("TORCHREC_PYTHON", "")
    if torchrec:
        yield own_prices()
        yield exported(torchrec)
    for seed in range(5):
        yield against("50 tables, 16 GPUs", drawn_tables(50, seed), 16, torchrec) | {"seed": seed}
    for seed in range(2):
        yield against("500 tables, 128 GPUs", drawn_tables(500, seed), 128, "") | {"seed": seed}
    for ranks in (8, 64):
        yield against(f"DLRM-v2, {ranks} GPUs", dlrm_tables(), ranks, torchrec)
    if data and (data / REUSE).is_file():
        yield reused(data / REUSE)
    yield from grid()


def reused(path: Path) -> Figures:
    """Hits of caches of Meta's 856 tables by the reuse that a batch of 65,536 has in all of them together, beside those
    of Zipf's law for a table of their mean size.
    """
    first = path.read_text().split("\n\n")[0]
    shares = [[float(share) for share in re.findall(r"^\(.*: ([0-9.]+)$", part, re.M)] for part in first.split("Ratio")]
    reuse = [ReusedRows(max(1e-6, rows), lookups) for rows, lookups in zip(*shares, strict=True)]
    rows = int(re.findall(r"unique cols: (\d+)", first)[0]) / 856
    caches, unknown = np.array(CACHES), np.full((2, 2), np.nan)
    by_skew = {s: hit_shares(np.full(2, rows), np.full(2, s), caches, unknown) for s in (0.8, 1.0, 1.2)}
    return {
        "set": "Meta's 856 tables", "cached": CACHES, "hits": cache_hits(reuse),
        "by_skew": {str(skew): [float(hit) for hit in hits] for skew, hits in by_skew.items()},
    }  # fmt: skip


def drawn_tables(count: int, seed: int) -> dict[str, Table]:
    """So many tables by the rule."""
    draw = random.Random(seed)
    return {
        f"t{number}": Table(
            rows=int(10 ** draw.uniform(4, 7.6)), dim=draw.choice(WIDTHS), pooling=float(draw.randint(1, 50))
        )
        for number in range(count)
    }


def dlrm_tables() -> dict[str, Table]:
    sizes = zip(DLRM_ROWS, DLRM_POOLING, strict=True)
    return {f"t{at}": Table(rows=rows, dim=128, pooling=float(pooling)) for at, (rows, pooling) in enumerate(sizes)}


def one_group(ranks: int) -> ShardingGroup:
    """All ranks, at TorchRec's rates."""
    near_only = NEAR if ranks <= PER_NODE else FAR
    return ShardingGroup(1, ranks, min(PER_NODE, ranks), "node", 1, MEMORY_RATE, 0.0, NEAR, near_only, FAR, FAR)


def against(what: str, tables: Mapping[str, Table], ranks: int, torchrec: str) -> Figures:
    """A placement beside its bound, and beside TorchRec's plan, both by its estimator."""
    group, start = one_group(ranks), perf_counter()
    options = shard_options(tables, group, BATCH)
    enumerated = perf_counter()
    placed = place_tables(options, group, MEMORY * KEPT, 0.0, 2)
    seconds = perf_counter() - enumerated
    assert placed, "the sets fit"
    bound = table_bound(options, group, MEMORY * KEPT)
    found: Figures = {
        "set": what, "ms": placed.slowest * 1e3, "bound_ms": bound * 1e3, "over_bound": placed.slowest / bound - 1,
        "enumerated_s": enumerated - start, "search_s": seconds,
    }  # fmt: skip
    if torchrec:
        told = ask_torchrec(placed_tables(tables, placed), group, MEMORY, BATCH, plan=True)
        ours, theirs = loads_by_torchrec(placed, told).max(), max(told["loads"])
        found |= {"ours_by_torchrec_ms": float(ours), "torchrec_ms": theirs, "over_torchrec": float(ours / theirs)}
        found |= {"torchrec_s": told["plan_seconds"], "torchrec_cuts": Counter(told["kinds"])}
    return found


def own_prices() -> Figures:
    """The largest difference of own prices from TorchRec's, by cut, on ten tables."""
    tables, group = drawn_tables(10, 7), one_group(16)
    asked = {
        f"{name}-{cut}-{n}": AskedTable(table, cut, n)
        for name, table in tables.items()
        for cut in CUTS
        for n in ((32, 64) if cut in ("columns", "grid") else (0,))
    }
    told = ask_torchrec(asked, group, MEMORY, BATCH)
    options, worst = shard_options(tables, group, BATCH), dict[str, float]()
    for number, (name, table) in enumerate(tables.items()):
        for option in options.of(number):
            cut, parts = CUTS[options.cut[option]], int(options.parts[option])
            prices = told["prices"].get(f"{name}-{cut}-{table.dim // parts if parts > 1 else 0}")
            if prices:
                apart = abs(options.seconds[option] * 1e3 / prices[0] - 1)
                worst[cut] = max(worst.get(cut, 0.0), float(apart))
    return {"set": "own prices over TorchRec's", "largest_difference": worst}


def exported(torchrec: str) -> Figures:
    """A plan with every cut, exported, in TorchRec's own runtime."""
    tables = {f"t{at}": Table(rows=37 + 9 * at, dim=64) for at in range(len(CUTS))}
    places = {"whole": (1,), "columns": (0, 3), "node_rows": (1,), "grid": (0, 1)}
    placed = {
        name: TablePlacement(cut=cut, at=Indices(places.get(cut, ()))) for name, cut in zip(tables, CUTS, strict=True)
    }
    with TemporaryDirectory() as folder:
        rows = [f"{name},{table.rows},{table.dim}" for name, table in tables.items()]
        job = {"cluster.yaml": CLUSTER, "tables.csv": "\n".join(("name,rows,dim", *rows)), "job.yaml": JOB}
        for name, text in job.items():
            (Path(folder) / name).write_text(text)
        plan = pipeline.solve(f"{folder}/job.yaml").plan
        plan = with_fields(plan, embeddings=Embeddings(groups=1, tables=placed))
        require_legal(plan, "by hand")
        (Path(folder) / "exported.py").write_text(export_plan(plan, "torchrec").text)
        sizes = json.dumps({name: (table.rows, table.dim) for name, table in tables.items()})
        script = Path(__file__).with_name("torchrec_runs.py")
        command = [torchrec, "-I", script, f"{folder}/exported.py", sizes, "4", "2"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    return {"set": "an exported plan in TorchRec, sums beside those of whole tables", **json.loads(done.stdout)}


def placed_tables(tables: Mapping[str, Table], placed: Placement) -> dict[str, AskedTable]:
    """The tables of a placement as TorchRec is asked of them."""
    cuts = zip(placed.options.cut[placed.chosen], placed.options.parts[placed.chosen], strict=True)
    return {
        name: AskedTable(table, CUTS[cut], table.dim // int(parts) if parts > 1 else 0)
        for (name, table), (cut, parts) in zip(tables.items(), cuts, strict=True)
    }


def loads_by_torchrec(placed: Placement, told: Any) -> NDArray[np.float64]:
    """Milliseconds of each rank of a placement, by TorchRec's prices."""
    loads = np.zeros(placed.group.ranks)
    for name, option, where in zip(placed.options.names, placed.chosen, placed.where, strict=True):
        loads[placed.ranks(int(option), where)] += told["prices"][name]
    return loads


# ------------------------------------------------------------------------------------------------- when M > 1 pays


def grid() -> Iterator[Figures]:
    """Where more than one group begins to pay, by bytes of all tables, ranks, and steps between averages."""
    for gigabytes in (20, 200, 1000, 3000):
        for ranks in (64, 256, 1024):
            for every in (1, 10, 100):
                yield grid_point(gigabytes, ranks, every)


def grid_point(gigabytes: float, ranks: int, every: int) -> Figures:
    """The choice of groups at one point, beside the search of every number, and of one group alone."""
    tables = scaled_tables(gigabytes * 1e9)
    kind = RankKind(kind="h100-80gb", count=ranks, per_node=PER_NODE)
    levels = (
        Level(name="node", ranks=PER_NODE, gb_per_s=450, latency_us=10),
        Level(name="cluster", ranks=ranks, gb_per_s=50, latency_us=20),
    )
    cluster = Cluster(format=Cluster.FORMAT, name="grid", source="", ranks=(kind,), levels=levels)
    device = Device(kind="cuda", memory_gib=80, tflops={"bf16": 989}, memory_gb_per_s=3350)
    problem = TableProblem(
        tables, cluster, device, JobTables(file="", average_every=every), float(BATCH), 60.0 * GIB, 0.0
    )
    start = perf_counter()
    found = choose_groups(problem, 1)
    taken = perf_counter() - start
    every_number = choose_groups(problem, 1, skip=False)
    assert found and every_number, "the sets fit"
    alone = min((seconds for groups, _, seconds in every_number.tried if groups == 1), default=float("inf"))
    best = min(seconds for *_, seconds in every_number.tried)
    return {
        "set": f"{gigabytes} GB, {ranks} GPUs, every {every}", "groups": found.embeddings.groups,
        "replicas": found.embeddings.replicas, "ms": found.seconds * 1e3, "of_all_numbers_ms": best * 1e3,
        "one_group_ms": alone * 1e3, "pays": alone / found.seconds, "over_bound": found.seconds / found.bound - 1,
        "search_s": taken,
    }  # fmt: skip


def scaled_tables(size: float) -> dict[str, Table]:
    """100 tables of the rule, with rows scaled to so many bytes in all."""
    drawn = drawn_tables(100, 0)
    factor = size / sum(table.bytes for table in drawn.values())
    return {
        name: Table(rows=max(1, int(table.rows * factor)), dim=table.dim, pooling=table.pooling)
        for name, table in drawn.items()
    }
