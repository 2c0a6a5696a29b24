"""Four gloo ranks in one process group: for all groups and shards, loss and gradients equal those of one process."""

from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import init_device_mesh

from planner.launch.communication.collectives import COLLECTIVES, prepare, time_collective
from planner.launch.communication.communication_meter import CommunicationMeter
from planner.launch.communication.process_groups import ProcessGroups
from planner.launch.communication.ulysses import UlyssesAttention
from planner.launch.communication.unified_sequence_parallel import SharedMicroBatch, sequence_parallel_over
from planner.launch.processes import launch
from planner.launch.worker import joined_world
from planner.models.build import build, init_weights
from planner.models.inputs.training_items import synthetic_batch
from planner.models.sequence_parallel import NO_SEQUENCE_PARALLEL
from planner.models.sharding import ModuleShard
from planner.specs.layers import Decoder, Vit
from planner.specs.layers.components import LatentAttentionShape
from planner.specs.sequence_sharding import SequenceSplit, even_sizes

GQA = {"layers": 2, "hidden": 32, "heads": 8, "ffn": 48, "vocab": 60}
SHAPES = {
    "gqa 8/4": Decoder(**GQA, kv_heads=4),
    "gqa 8/2": Decoder(**GQA, kv_heads=2, bias="qkv"),
    "gpt": Decoder(**GQA, gated=False, norm="layer", bias="all", positions="learned", max_positions=40, tied=True),
    "vit": Vit(layers=2, hidden=32, heads=8, ffn=48, patch=2, merge=2, out=6),
    "sinks": Decoder(**GQA, kv_heads=2, qk_norm=True, sinks=True, window=5, full_every=2),
    "latent": Decoder(**GQA, latent=LatentAttentionShape(q_rank=12, kv_rank=8, rope_dim=2, nope_dim=4, value_dim=3)),
}
PAIR, THREE, ALL = (0, 1), (1, 2, 3), (0, 1, 2, 3)
TIMEOUT_S = 60
CATALOGUE = [PAIR, THREE, (0, 2), (1, 3), ALL, (0,), (2,), (3,), PAIR]
# All ranks run a micro-batch at the same time: {ranks: lengths of the documents}. A group without documents is idle.
ROWS = [
    {PAIR: [12, 4, 8], (2,): [8], (3,): [4, 4]},
    {ALL: [36, 12, 4]},
    {PAIR: [20], (2,): [], (3,): [16]},
    {(0, 2): [8], (1, 3): [28, 8]},
]
SEED = 3
TASKS = 4  # all-to-alls of a layer: two forward, two backward


def numbered(rows):
    """The micro-batches with items for lengths: [(item, length), ...]."""
    count = iter(range(1000))
    return [{ranks: [(next(count), length) for length in lengths] for ranks, lengths in row.items()} for row in rows]


def uneven_sizes(tokens, ranks, unit):
    """The most uneven shards: the first is empty, the last has its tokens as well."""
    sizes = list(even_sizes(tokens, ranks, unit))
    sizes[-1] += sizes[0]
    sizes[0] = 0
    return tuple(sizes)


def relative_errors(loss, gradients, want):
    """Errors of the loss and of the worst gradient; a gradient that is zero up to noise is compared with
    the largest.
    """
    want_loss, want_gradients = want
    floor = 1e-3 * max(gradient.norm() for gradient in want_gradients.values())
    worst = max(
        float((gradients[name].double() - wanted).norm() / max(wanted.norm(), floor))
        for name, wanted in want_gradients.items()
    )
    return abs(float(loss) / float(want_loss) - 1), worst


def reference(spec, documents):
    """One process, one document at a time, float64."""
    model = build(spec, dtype=torch.float64)
    init_weights(model, SEED)
    total = sum(length for _, length in documents)
    losses = [model(synthetic_batch(spec, [document], SEED)) / total for document in documents]
    sum(losses).backward()
    return sum(losses).item(), {name: parameter.grad for name, parameter in model.named_parameters()}


def check_group(groups, spec, ranks, split):
    """One batch over one group, with a replicated model: errors on its members."""
    documents = [(0, 12), (1, 4), (2, 28), (3, 8)]
    if dist.get_rank() not in ranks:
        return None
    model = build(spec, dtype=torch.float64)
    init_weights(model, SEED)
    meter = CommunicationMeter()
    exchange = UlyssesAttention(groups[ranks], split(52, len(ranks), spec.tokens_per_output), meter)
    loss = model(synthetic_batch(spec, documents, SEED, sequence_parallel=exchange)) / 52
    loss.backward()
    summed = [loss.detach(), *(parameter.grad for parameter in model.parameters())]
    for tensor in summed:
        dist.all_reduce(tensor, group=groups[ranks])
    assert meter.calls == TASKS * spec.layers
    assert meter.bytes > 0 and meter.seconds > 0
    names = [name for name, _ in model.named_parameters()]
    return relative_errors(summed[0], dict(zip(names, summed[1:], strict=True)), reference(spec, documents))


def sharded(spec, dtype, **options):
    """A model sharded over all ranks: one FSDP2 unit per layer and one for the rest, gradients summed."""
    model = build(
        spec, dtype=dtype, device=torch.device("meta"), shard=ModuleShard(recompute=options.pop("recompute", {}))
    )
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for unit in [*model.layers.values(), model]:
        fully_shard(unit, mesh=mesh, **options)
        unit.set_force_sum_reduction_for_comms(True)
        unit.set_gradient_divide_factor(1.0)
    model.to_empty(device="cpu")
    init_weights(model, SEED)
    return model


def run_micro_batches(groups, spec, model):
    """Mixed groups, micro-batch after micro-batch, then the full gradients."""
    rows = numbered(ROWS)
    total = sum(length for row in rows for documents in row.values() for _, length in documents)
    sum_of_losses = torch.zeros((), dtype=torch.float64)
    for row in rows:
        ((ranks, documents),) = ((ranks, found) for ranks, found in row.items() if dist.get_rank() in ranks)
        lengths = [length for _, length in documents]
        exchange = sequence_parallel_over(
            groups,
            SharedMicroBatch(ranks, SequenceSplit(len(ranks)), lengths, spec.tokens_per_output),
            CommunicationMeter(),
        )
        loss = model(synthetic_batch(spec, documents, SEED, sequence_parallel=exchange)) / total
        loss.backward()
        sum_of_losses += loss.detach()
    dist.all_reduce(sum_of_losses)
    return sum_of_losses, {name: parameter.grad.full_tensor() for name, parameter in model.named_parameters()}


def check_micro_batches(groups, spec, dtype, **options):
    documents = [document for row in numbered(ROWS) for found in row.values() for document in found]
    return relative_errors(
        *run_micro_batches(groups, spec, sharded(spec, dtype, **options)), reference(spec, documents)
    )


def check_weights(spec):
    """A sharded model starts from the same weights as an unsharded one."""
    whole, model = build(spec, dtype=torch.float64), sharded(spec, torch.float64)
    init_weights(whole, SEED)
    shards = dict(model.named_parameters())
    assert all(torch.equal(shards[name].full_tensor(), parameter) for name, parameter in whole.named_parameters())


def check_groups(groups):
    """Every group is created once, the world is reused, and a single rank has no group."""
    rank = dist.get_rank()
    mine = {ranks for ranks in CATALOGUE if rank in ranks and len(ranks) > 1}
    assert len(groups) == len(mine)
    assert groups[ALL] is dist.group.WORLD
    for ranks in mine:
        assert dist.get_process_group_ranks(groups[ranks]) == list(ranks)
        assert groups[ranks]._get_backend(torch.device("cpu")).options._timeout == timedelta(seconds=TIMEOUT_S)
    assert (
        sequence_parallel_over(groups, SharedMicroBatch((rank,), SequenceSplit(), (7,)), CommunicationMeter())
        is NO_SEQUENCE_PARALLEL
    )
    with pytest.raises(ValueError, match="4 ranks are not 3 sub-groups of 1"):
        sequence_parallel_over(groups, SharedMicroBatch(ALL, SequenceSplit(1, 3), (7,)), CommunicationMeter())


def check_exchange(groups):
    """Both all-to-alls together are the identity; between them a rank has every token of some heads; bytes are those
    sent.
    """
    rank, sizes = dist.get_rank(), (3, 0, 5, 2)
    meter = CommunicationMeter()
    exchange = UlyssesAttention(groups[ALL], sizes, meter)
    ((_, start, stop),) = exchange.local_spans([10]) or [(0, 3, 3)]
    q, k = (torch.arange(10.0 * heads * 2).view(10, heads, 2) for heads in (8, 2))
    got = exchange.seq_to_heads(q[start:stop], k[start:stop], k[start:stop])
    assert torch.equal(got[0], q[:, 2 * rank : 2 * rank + 2])
    assert torch.equal(got[1], k[:, rank // 2 : rank // 2 + 1]) and torch.equal(got[1], got[2])
    assert meter.bytes == 3 * sizes[rank] * (2 + 1 + 1) * 2 * 4
    assert torch.equal(exchange.heads_to_seq(got[0]), q[start:stop])
    assert (meter.calls, meter.bytes) == (2, 3 * sizes[rank] * 32 + (10 - sizes[rank]) * 2 * 2 * 4)
    with pytest.raises(ValueError, match="10 tokens, the documents 11"):
        exchange.local_spans([11])


def check_collectives(groups):
    """Every collective runs over every group of this rank, and takes time."""
    for ranks in [PAIR, THREE, ALL]:
        if dist.get_rank() in ranks:
            for collective in COLLECTIVES:
                seconds = time_collective(collective, groups[ranks], 1000, torch.device("cpu"), warmup=1, repeats=2)
                assert len(seconds) == 2 and min(seconds) > 0
                prepare(collective, groups[ranks], 0, torch.device("cpu"))()


def checks(groups):
    """By name of a check, what runs it: a pair of relative errors, or None."""
    yield "groups", lambda: check_groups(groups)
    yield "exchange", lambda: check_exchange(groups)
    yield "collectives", lambda: check_collectives(groups)
    for name in ("gqa 8/4", "latent"):
        yield f"even {name}", lambda spec=SHAPES[name]: check_group(groups, spec, PAIR, even_sizes)
    for name in ("gqa 8/2", "gpt", "vit", "sinks"):
        yield f"uneven {name}", lambda spec=SHAPES[name]: check_group(groups, spec, ALL, uneven_sizes)
    for name in ("gpt", "vit", "latent"):
        yield f"rows {name}", lambda spec=SHAPES[name]: check_micro_batches(groups, spec, torch.float64)
    yield "weights", lambda: check_weights(SHAPES["gpt"])
    odd = Decoder(**{**GQA, "heads": 12, "hidden": 48}, kv_heads=4)
    yield "three ranks 12/4", lambda: check_group(groups, odd, THREE, even_sizes)
    spec = SHAPES["gqa 8/2"]
    again = {"recompute": {0: "full", 1: "full"}, "reshard_after_forward": False}
    yield "rows recompute", lambda: check_micro_batches(groups, spec, torch.float64, **again)
    policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32, cast_forward_inputs=False)
    yield "rows bfloat16", lambda: check_micro_batches(groups, spec, torch.float32, mp_policy=policy)


EXACT = (1e-12, 1e-12)
TOLERANCE = {"rows bfloat16": (1e-2, 5e-2)}


def body(worker):
    with joined_world(worker, timeout_s=TIMEOUT_S):
        groups = ProcessGroups(CATALOGUE)
        errors = {}
        for name, check in checks(groups):
            worker.begin_task(name)
            errors[name] = check()
        return errors


@pytest.mark.slow
def test_parallel_equals_single():
    """One process group for all checks, since starting it takes longer than most of them."""
    on_ranks = launch(body, 4)
    wrong = {
        name: found
        for errors in on_ranks
        for name, found in errors.items()
        if found and any(not error <= allowed for error, allowed in zip(found, TOLERANCE.get(name, EXACT), strict=True))
    }
    assert not wrong
    assert sum(found is not None for found in on_ranks[1].values()) == 12  # rank 1 is in all of the groups
