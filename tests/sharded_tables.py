"""Embedding tables made by rule and seed, a cluster for them, and a job with both."""

import random
from pathlib import Path

from planner.specs.hardware.cluster import Cluster, Level, RankKind
from planner.specs.hardware.profile import Device
from planner.specs.tables import Table

CLUSTER = Cluster(
    format=Cluster.FORMAT,
    name="two nodes",
    source="made up",
    ranks=(RankKind(kind="h100-80gb", count=16, per_node=8),),
    levels=(
        Level(name="node", ranks=8, gb_per_s=450, latency_us=10),
        Level(name="cluster", ranks=16, gb_per_s=50, latency_us=20),
    ),
)
DEVICE = Device(kind="cuda", memory_gib=80, tflops={"bf16": 989}, memory_gb_per_s=3350, host_gb_per_s=50)


def drawn_tables(count: int, seed: int) -> dict[str, Table]:
    """Tables of unlike sizes."""
    draw = random.Random(seed)
    return {
        f"t{at}": Table(
            rows=int(10 ** draw.uniform(4, 7)), dim=draw.choice((32, 64, 128, 256)), pooling=draw.randint(1, 40)
        )
        for at in range(count)
    }


def table_job(folder: Path, tables: str, more: str = "") -> Path:
    """A job with tables of this CSV beside a small dense part."""
    (folder / "tables.csv").write_text(tables)
    path = folder / "job.yaml"
    path.write_text(
        "format: planner.job/1\nname: small-tables\nmodel: ctr-transformer\ncluster: h100x16\n"
        "strategy: sparse_tables\nsync: step\nworkload: {lengths: 128, batch_rows: 64}\n"
        f"layout: {{zero: 0, dtype: bf16}}\ndegrees: [1]\ntables: {{from: tables.csv{more}}}\n"
    )
    return path
