"""An exported sharding plan in TorchRec itself: run as a program by a Python that has torchrec 1.8, with the exported
module, its tables as JSON (name: rows and columns), processes in all and in a node.

Processes on CPUs, with gloo, shard an EmbeddingBagCollection by the plan with DistributedModelParallel, load the
weights of a whole one, and look up rows of their own; printed is the largest difference of sums from the whole one's.
"""

import json
import logging
import os
import runpy
import socket
import sys

import fbgemm_gpu  # noqa: F401  registers the operators that torchrec needs
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, KeyedJaggedTensor
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.model_parallel import DistributedModelParallel

SAMPLES = 5


class Model(torch.nn.Module):
    def __init__(self, bags):
        super().__init__()
        self.bags = bags

    def forward(self, lookups):
        return self.bags(lookups)


def run(rank, port, asked, differences):
    module, tables, ranks, per_node = asked
    world = {"RANK": rank, "WORLD_SIZE": ranks, "LOCAL_RANK": rank % per_node, "LOCAL_WORLD_SIZE": per_node}
    os.environ.update({name: str(value) for name, value in world.items()}, MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    logging.disable(logging.CRITICAL)
    dist.init_process_group("gloo")
    whole, cpu = collection(tables), torch.device("cpu")
    plan = runpy.run_path(module)["sharding_plan"]("bags", "cpu")
    sharded = DistributedModelParallel(
        Model(collection(tables)), device=cpu, plan=plan, sharders=[EmbeddingBagCollectionSharder()]
    )
    load(sharded, whole)
    lookups = drawn(tables, rank)
    found, wanted = sharded(lookups), whole(lookups)
    differences[rank] = max(float((found[key] - wanted[key]).abs().max()) for key in lookups.keys())  # noqa: SIM118
    dist.barrier()
    dist.destroy_process_group()


def collection(tables):
    torch.manual_seed(0)
    configs = [
        EmbeddingBagConfig(name=name, num_embeddings=rows, embedding_dim=columns, feature_names=[f"of {name}"])
        for name, (rows, columns) in tables.items()
    ]
    return EmbeddingBagCollection(tables=configs, device=torch.device("cpu"))


def load(sharded, whole):
    """Copy a whole collection's weights into shards."""
    weights = whole.state_dict()
    for key, held in sharded.state_dict().items():
        full = weights[f"embedding_bags.{key.split('.')[-2]}.weight"]
        with torch.no_grad():
            for shard in held.local_shards() if hasattr(held, "local_shards") else ():
                (row, column), (rows, columns) = shard.metadata.shard_offsets, shard.metadata.shard_sizes
                shard.tensor.copy_(full[row : row + rows, column : column + columns])
            if not hasattr(held, "local_shards"):
                held.copy_(full)


def drawn(tables, seed):
    """What samples read, from no row to three of each table."""
    draw = torch.Generator().manual_seed(seed)
    counts = [torch.randint(0, 4, (SAMPLES,), generator=draw) for _ in tables]
    sizes = zip(tables.values(), counts, strict=True)
    rows = [torch.randint(0, rows, (int(count.sum()),), generator=draw) for (rows, _), count in sizes]
    return KeyedJaggedTensor([f"of {name}" for name in tables], torch.cat(rows), lengths=torch.cat(counts))


if __name__ == "__main__":
    asked = sys.argv[1], json.loads(sys.argv[2]), *map(int, sys.argv[3:])
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    differences = mp.get_context("spawn").Manager().dict()
    mp.spawn(run, (port, asked, differences), nprocs=asked[2])
    json.dump({"ranks": len(differences), "largest_difference": max(differences.values())}, sys.stdout)
