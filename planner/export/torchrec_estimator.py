"""What TorchRec's planner and estimator say of tables: run as a program by a Python that has torchrec 1.8, and perhaps
not planner.

A question is JSON on stdin: `tables` (name: rows, dim, pooling, data_type; sharding_type, compute_kernel, columns of a
shard and cache, as it is cut), `batch` of a rank, `topology` (arguments of TorchRec's, bytes and bytes a millisecond);
and `plan`, whether TorchRec plans, too.
"""

import json
import logging
import sys
from time import perf_counter
from typing import Any


def answer(asked: dict[str, Any]) -> dict[str, Any]:
    """Milliseconds of each shard by table, of those that TorchRec cuts so; and of each rank in its own plan."""
    import fbgemm_gpu  # noqa: F401  registers the operators that torchrec needs
    from torchrec import DataType, EmbeddingBagCollection, EmbeddingBagConfig
    from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
    from torchrec.distributed.planner import EmbeddingShardingPlanner, Topology
    from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
    from torchrec.distributed.planner.types import ParameterConstraints
    from torchrec.distributed.types import CacheParams

    logging.disable(logging.CRITICAL)
    tables, topology = asked["tables"], Topology(compute_device="cuda", **asked["topology"])
    bags = [
        EmbeddingBagConfig(
            name=name,
            num_embeddings=table["rows"],
            embedding_dim=table["dim"],
            feature_names=[f"of {name}"],
            data_type=DataType[table["data_type"]],
        )
        for name, table in tables.items()
    ]
    module, sharders = EmbeddingBagCollection(tables=bags, device="meta"), [EmbeddingBagCollectionSharder()]
    cuts = {
        name: ParameterConstraints(
            pooling_factors=[table["pooling"]],
            sharding_types=[table["sharding_type"]],
            compute_kernels=[table["compute_kernel"]],
            min_partition=table["columns"] or None,
            cache_params=CacheParams(load_factor=table["cache"]) if table["cache"] else None,
        )
        for name, table in tables.items()
    }
    found = EmbeddingEnumerator(topology, asked["batch"], cuts).enumerate(module, sharders)
    told: dict[str, Any] = {"prices": {each.name: [shard.perf.total for shard in each.shards] for each in found}}
    if asked.get("plan"):
        wishes = {name: ParameterConstraints(pooling_factors=[table["pooling"]]) for name, table in tables.items()}
        planner = EmbeddingShardingPlanner(topology=topology, batch_size=asked["batch"], constraints=wishes)
        start = perf_counter()
        planner.plan(module, sharders)
        loads = [0.0] * asked["topology"]["world_size"]
        for option in planner._best_plan:
            for shard in option.shards:
                loads[shard.rank] += shard.perf.total
        told |= {"plan_seconds": perf_counter() - start, "loads": loads}
        told["kinds"] = sorted(f"{each.sharding_type}/{each.compute_kernel}" for each in planner._best_plan)
    return told


if __name__ == "__main__":
    json.dump(answer(json.load(sys.stdin)), sys.stdout)
