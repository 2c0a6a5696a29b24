"""What TorchRec's planner and estimator say of tables: run by a Python that has torchrec 1.8, and not planner.

Reads a question as JSON from stdin: `tables` (name, rows, dim, pooling), `ranks`, `per_node`, `batch`, `memory`
bytes; then `price`, ways to cut each table, or `place`, a placement to be priced; or `plan`, whether TorchRec plans.
"""

import json
import logging
import sys
from time import perf_counter

import fbgemm_gpu  # noqa: F401  registers the operators that torchrec needs
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner import EmbeddingShardingPlanner, Topology
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.types import ParameterConstraints

logging.disable(logging.CRITICAL)
KINDS = {
    "whole": "table_wise", "columns": "column_wise", "rows": "row_wise", "node_rows": "table_row_wise",
    "grid": "grid_shard", "replicated": "data_parallel",
}  # fmt: skip


def answer(asked):
    tables, found = asked["tables"], {}
    bags = [
        EmbeddingBagConfig(name=n, num_embeddings=t["rows"], embedding_dim=t["dim"], feature_names=[f"f_{n}"])
        for n, t in tables.items()
    ]
    module = EmbeddingBagCollection(tables=bags, device="meta")
    topology = Topology(
        world_size=asked["ranks"], local_world_size=asked["per_node"], compute_device="cuda", hbm_cap=asked["memory"]
    )
    found["rates"] = [topology.hbm_mem_bw, topology.intra_host_bw, topology.inter_host_bw]  # bytes/ms
    sharders = [EmbeddingBagCollectionSharder()]
    if "price" in asked:
        found["prices"] = [priced(module, sharders, topology, asked, way) for way in asked["price"]]
    if "place" in asked:
        loads = [0.0] * asked["ranks"]
        for kind, width in {(p["cut"], p["width"]) for p in asked["place"].values()}:
            names = [n for n, p in asked["place"].items() if (p["cut"], p["width"]) == (kind, width)]
            prices = priced(module, sharders, topology, asked, {"cut": kind, "width": width, "only": names})
            for name in names:
                for rank, perf in zip(asked["place"][name]["ranks"], prices[name], strict=True):
                    loads[rank] += perf
        found["loads"] = loads
    if asked.get("plan"):
        wishes = {n: ParameterConstraints(pooling_factors=[t["pooling"]]) for n, t in tables.items()}
        planner = EmbeddingShardingPlanner(topology=topology, batch_size=asked["batch"], constraints=wishes)
        start = perf_counter()
        planner.plan(module, sharders)
        found["plan_seconds"] = perf_counter() - start
        loads = [0.0] * asked["ranks"]
        for option in planner._best_plan:
            for shard in option.shards:
                loads[shard.rank] += shard.perf.total
        found["planned"] = loads
        found["kinds"] = sorted(f"{o.sharding_type}/{o.compute_kernel}" for o in planner._best_plan)
    return found


def priced(module, sharders, topology, asked, way):
    """Milliseconds of each shard by table, where all are cut this way; of those that can be."""
    wishes = {
        n: ParameterConstraints(
            pooling_factors=[t["pooling"]], sharding_types=[KINDS[way["cut"]]], min_partition=way.get("width") or None,
            compute_kernels=["dense" if way["cut"] == "replicated" else "fused"],
        )
        for n, t in asked["tables"].items()
    }  # fmt: skip
    options = EmbeddingEnumerator(topology, asked["batch"], wishes).enumerate(module, sharders)
    return {o.name: [s.perf.total for s in o.shards] for o in options if o.name in way.get("only", asked["tables"])}


json.dump(answer(json.load(sys.stdin)), sys.stdout)
