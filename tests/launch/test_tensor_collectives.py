"""A tensor-parallel block over four gloo ranks: its collectives, their gradients, and the bytes that they send."""

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F

from planner.launch.communication.communication_meter import CommunicationMeter
from planner.launch.communication.process_groups import ProcessGroups
from planner.launch.communication.tensor_collectives import TensorParallelGroup, tensor_parallel_over
from planner.launch.processes import launch
from planner.launch.worker import joined_world
from planner.models.batch import IGNORED, Batch
from planner.models.build import build, init_weights
from planner.models.inputs.training_items import synthetic_batch
from planner.models.networks.word_prediction import VocabularyEmbedding, sharded_cross_entropy
from planner.models.sharding import ModuleShard
from planner.models.tensor_parallel import NO_TENSOR_PARALLEL
from planner.specs.layers import Decoder
from planner.specs.sequence_sharding import even_sizes

pytestmark = pytest.mark.slow

ALL, WIDTH = (0, 1, 2, 3), 6
SHARDS = {  # tokens, unit → rows of each rank
    (12, 1): (3, 3, 3, 3),
    (13, 1): (4, 3, 3, 3),
    (15, 1): (4, 4, 4, 3),
    (3, 1): (1, 1, 1, 0),
    (8, 4): (4, 4, 0, 0),
    (36, 4): (12, 8, 8, 8),
}
SPEC = Decoder(layers=2, hidden=32, heads=8, kv_heads=2, ffn=48, vocab=64, tied=True)


def block(groups, tokens, unit=1):
    return TensorParallelGroup(groups[ALL], even_sizes(tokens, len(ALL), unit), CommunicationMeter())


def drawn(*shape, seed=0, own=False):
    """Random numbers that are the same on all ranks, or each rank's own."""
    made = torch.Generator().manual_seed(17 * seed + (dist.get_rank() + 1 if own else 0))
    return torch.randn(*shape, dtype=torch.float64, generator=made)


def over_ranks(x):
    """The sum of a number over all ranks."""
    total = x.detach().clone()
    dist.all_reduce(total)
    return total


def close(left, right):
    torch.testing.assert_close(left, right, rtol=1e-12, atol=1e-12)


def check_identities(groups):
    for (tokens, unit), sizes in SHARDS.items():
        tensor, rank = block(groups, tokens, unit), dist.get_rank()
        assert tuple(tensor.sizes) == sizes
        first, last = sum(sizes[:rank]), sum(sizes[: rank + 1])
        x, others = drawn(tokens, WIDTH), [drawn(tokens, WIDTH, seed=seed) for seed in range(4)]
        assert torch.equal(tensor.local_rows(x), x[first:last])
        assert torch.equal(tensor.all_gather(tensor.local_rows(x)), x)
        close(tensor.reduce_scatter(others[rank]), sum(others)[first:last])
        close(tensor.all_gather(tensor.reduce_scatter(others[rank])), tensor.all_reduce_sum(others[rank]))
        assert torch.equal(tensor.all_reduce_max(others[rank]), torch.stack(others).amax(0))
        assert torch.equal(tensor.local_rows(torch.arange(tokens)), torch.arange(first, last))
        merged = x.view(tokens // unit, unit * WIDTH)  # each row stands for several tokens
        assert torch.equal(tensor.local_rows(merged), merged[first // unit : last // unit])
        close(tensor.reduce_scatter(merged), 4 * merged[first // unit : last // unit])


def check_some_rows(groups):
    """With some rows alone each rank keeps those that it has, however many, and none where there are none."""
    tensor, rank = block(groups, 15), dist.get_rank()
    x, others = drawn(15, WIDTH), [drawn(15, WIDTH, seed=seed) for seed in range(4)]
    for kept in ([0, 1, 5, 8, 9, 10, 11, 14], [12], [], [*range(15)]):
        rows = torch.tensor(kept, dtype=torch.int64)
        few, own = tensor.among(rows)
        local = tensor.local_rows(x)[own]
        assert torch.equal(few.all_gather(local), x[rows])
        assert torch.equal(few.local_rows(x[rows]), local)
        close(few.reduce_scatter(others[rank][rows]), tensor.local_rows(sum(others))[own])


def gradient(function, x, y):
    """The gradient of <function(x), y>, and that number."""
    x = x.clone().requires_grad_()
    inner = (function(x) * y).sum()
    inner.backward()
    return inner.detach(), x.grad


def check_adjoints(groups):
    """<A x, y> = <x, A' y> over all ranks. A replicated vector counts once."""
    for tokens, unit in SHARDS:
        tensor = block(groups, tokens, unit)
        rows = tensor.sizes[dist.get_rank()]
        own, alike = drawn(tokens, WIDTH, own=True), drawn(tokens, WIDTH, seed=2)
        shard, alike_too = drawn(rows, WIDTH, own=True, seed=1), drawn(tokens, WIDTH, seed=3)
        inner, back = gradient(tensor.all_gather, shard, own)
        close(over_ranks(inner), over_ranks((shard * back).sum()))
        inner, back = gradient(tensor.reduce_scatter, own, shard)
        close(over_ranks(inner), over_ranks((own * back).sum()))
        inner, back = gradient(tensor.local_rows, alike, shard)
        close(over_ranks(inner), (alike * back).sum())
        inner, back = gradient(tensor.all_reduce_sum, own, alike_too)
        close(inner, over_ranks((own * back).sum()))


def check_bytes(groups):
    """An all-gather and a reduce-scatter together send 2 b s h (n - 1) / n elements, plus the padding of
    uneven shards.
    """
    for tokens, allowed in ((1000, 0.0), (1001, 0.02)):
        tensor = block(groups, tokens)
        tensor.all_gather(drawn(tensor.sizes[dist.get_rank()], WIDTH).float())
        half = tensor.meter.bytes
        tensor.reduce_scatter(drawn(tokens, WIDTH).float())
        want = 2 * tokens * WIDTH * 3 / 4 * 4
        assert want <= tensor.meter.bytes <= (1 + allowed) * want
        assert (tensor.meter.calls, tensor.meter.bytes) == (2, 2 * half)


def check_layer_bytes(groups):
    """In each direction a layer's attention and its MLP send 2 b s h (n - 1) / n each (arXiv 2505.11432)."""
    tokens = 203
    tensor = block(groups, tokens)
    model, batch = sharded(tensor, [(0, tokens)])
    x = drawn(tensor.sizes[dist.get_rank()], SPEC.hidden).requires_grad_()
    y = model.layers["0"](x, model.position_encoding(x, batch), batch)
    forward = tensor.meter.take_measured().bytes
    y.sum().backward()
    want = 2 * 2 * tokens * SPEC.hidden * 3 / 4 * 8
    assert want <= forward == tensor.meter.bytes <= 1.02 * want


def check_nobody_else(groups):
    assert tensor_parallel_over(groups, (dist.get_rank(),), 8, 1, CommunicationMeter()) is NO_TENSOR_PARALLEL
    assert tensor_parallel_over(groups, ALL, 0, 1, CommunicationMeter()) is NO_TENSOR_PARALLEL


def check_vocabulary(groups):
    """Embeddings and cross-entropies equal those of full tables, with huge logits and with targets without a loss."""
    tokens, words = 13, 20
    tensor = block(groups, tokens)
    part, rank = tensor.shard, dist.get_rank()
    ids = torch.randint(words, (tokens,), generator=torch.Generator().manual_seed(1))
    table, own = drawn(words, WIDTH), VocabularyEmbedding(words, WIDTH, torch.float64, part)
    own.weight.data = table[slice(*part.span(words))].clone()
    assert torch.equal(own(ids, tensor), tensor.local_rows(table[ids]))
    targets = ids.masked_fill(ids % 5 == 0, IGNORED)
    logits = (1e3 * drawn(tokens, words)).requires_grad_()
    want = F.cross_entropy(logits, targets, reduction="none")
    want.sum().backward()
    mine = logits.detach()[:, slice(*part.span(words))].clone().requires_grad_()
    losses = sharded_cross_entropy(mine, targets, tensor, part)
    close(losses, want.detach())
    tensor.local_rows(losses).sum().backward()
    close(mine.grad, logits.grad[:, slice(*part.span(words))])
    half = sharded_cross_entropy(mine.detach().bfloat16(), targets, tensor, part)
    assert half.dtype == torch.float32 and tensor.shard.index == rank


def sharded(tensor, documents) -> tuple[torch.nn.Module, Batch]:
    """This rank's shard of a model, and the batch of its block."""
    model = build(SPEC, dtype=torch.float64, shard=ModuleShard(tp=tensor.shard))
    init_weights(model, 1)
    whole = synthetic_batch(SPEC, documents, seed=4)
    return model, Batch(whole.inputs, whole.targets, whole.positions, whole.cu_seqlens, tensor_parallel=tensor)


def check_chunks(groups):
    """Chunks of the loss are summed over the block, once in forward and once more in backward."""
    documents = [(0, 9), (1, 14)]
    model, batch = sharded(block(groups, 23), documents)
    model.loss_tokens = 7
    loss = model(batch)
    loss.backward()
    single = build(SPEC, dtype=torch.float64)
    init_weights(single, 1)
    want = single(synthetic_batch(SPEC, documents, seed=4))
    want.backward()
    close(over_ranks(loss), want.detach())
    first, last = batch.tensor_parallel.shard.span(SPEC.vocab)
    torch.testing.assert_close(
        model.embedding.weight.grad, single.embedding.weight.grad[first:last], rtol=0, atol=1e-10
    )


CHECKS = [check_identities, check_some_rows, check_adjoints, check_bytes, check_layer_bytes, check_nobody_else,
          check_vocabulary, check_chunks]  # fmt: skip


def body(worker):
    with joined_world(worker, timeout_s=60):
        groups, done = ProcessGroups([ALL]), []
        for check in CHECKS:
            worker.begin_task(check.__name__)
            check(groups)
            done.append(check.__name__)
        return done


def test_a_block_of_four_ranks():
    """One process group for all checks, since starting it takes longer than most of them."""
    assert launch(body, 4) == [[check.__name__ for check in CHECKS]] * 4
