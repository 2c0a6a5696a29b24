"""The embedding tables of a plan for TorchRec: a Python module that makes its `EmbeddingShardingPlan` of a group, and
the `sharding_group_size` of `DMPCollection`, which repeats it.

Ranks in the plan are those of the first group as TorchRec numbers them within one. TorchRec has copies on neighbouring
ranks alone, and divides columns into equal parts in the order of ranks.
"""

import json
from typing import Any

from planner.costs.tables import plan_group, table_loads
from planner.errors import InputError
from planner.plan.embeddings import table_shards
from planner.plan.plan_file import Plan
from planner.specs.tables import Cut

KINDS: dict[Cut, str] = {
    "whole": "table_wise", "columns": "column_wise", "rows": "row_wise", "node_rows": "table_row_wise",
    "grid": "grid_shard", "replicated": "data_parallel",
}  # fmt: skip

SCRIPT = '''"""Embedding tables of the plan {name}, for DMPCollection (torchrec 1.8)."""

import json

from torch.distributed._shard.sharding_spec import EnumerableShardingSpec, ShardMetadata
from torchrec.distributed.types import EmbeddingModuleShardingPlan, ParameterSharding, ShardingPlan

SHARDING_GROUP_SIZE = {size}  # ranks of a group that has every table
WORLD_SIZE = {world}
AVERAGE_EVERY = {every}  # steps; call DMPCollection.sync() behind as many
TABLES = json.loads("""
{tables}
""")


def sharding_plan(module: str, device: str = "cuda") -> ShardingPlan:
    """The plan of the EmbeddingBagCollection at this path of the model."""
    tables = EmbeddingModuleShardingPlan()
    for name, table in TABLES.items():
        shards = [
            ShardMetadata(
                shard_offsets=offsets, shard_sizes=sizes,
                placement=f"rank:{{rank}}/{{device}}" + (f":{{rank % 8}}" if device != "cpu" else ""),
            )
            for offsets, sizes, rank in table["shards"]
        ]
        spec = EnumerableShardingSpec(shards) if shards else None
        tables[name] = ParameterSharding(
            sharding_type=table["sharding_type"], compute_kernel=table["compute_kernel"], ranks=table["ranks"],
            sharding_spec=spec,
        )
    return ShardingPlan(plan={{module: tables}})
'''


def to_torchrec(plan: Plan, version: str) -> tuple[str, tuple[int, ...]]:
    """The module's text; no micro-batch is numbered. Raises InputError where TorchRec has no such plan."""
    placed, loads = plan.embeddings, table_loads(plan)
    if not placed or not loads:
        raise InputError("the plan has no embedding tables", where="--to", fix="a plan of a job with tables")
    if version not in ("", "1.8"):
        raise InputError(f"torchrec {version} is not known", where="--version", fix="1.8")
    if placed.replicas == "across" and placed.groups > 1:
        fix = "tables: {from: FILE, replicas: node}, and solve the job again"
        raise InputError("TorchRec has copies on neighbouring ranks", where="embeddings.replicas", fix=fix)
    tables = {name: table_entry(plan, name) for name in placed.tables}
    text = SCRIPT.format(
        name=plan.name,
        size=loads.group.ranks,
        world=plan.size,
        every=placed.average_every,
        tables="{\n" + ",\n".join(f'  "{name}": {json.dumps(each)}' for name, each in tables.items()) + "\n}",
    )
    return text, ()


def table_entry(plan: Plan, name: str) -> dict[str, Any]:
    """A table's kind of sharding, its ranks in a group, and offset, size and rank of each shard."""
    placed = plan.embeddings
    assert placed, "only plans with tables are exported"
    each, group = placed.tables[name], plan_group(plan, placed)
    found = table_shards(plan.uses.tables[name], each, group.ranks, group.per_node)
    return {
        "sharding_type": sharding_type(each.cut),
        "compute_kernel": compute_kernel(each.cut, each.cache),
        "ranks": [shard.rank for shard in found],
        "shards": [
            ([s.first_row, s.first_column], [s.rows, s.columns], s.rank) for s in found if each.cut != "replicated"
        ],
    }


def sharding_type(cut: Cut) -> str:
    """TorchRec's word for a cut."""
    return KINDS[cut]


def compute_kernel(cut: Cut, cache: float) -> str:
    """TorchRec's kernel for shards of a cut: gradients of replicated tables are dense."""
    return "fused_uvm_caching" if cache else "dense" if cut == "replicated" else "fused"
