"""Ring attention (arXiv 2310.01889): keys and values are sent from rank to rank, while each rank computes with those it
has.

Backward sends them around again, each followed by the sum of its gradients, which ends at the block's own rank. Every
rank knows the shapes of all blocks from the plan, so no shape is sent.
"""

from collections.abc import Callable, Sequence

import torch.distributed as dist
from torch import Tensor

from planner.launch.communication.communication_meter import CommunicationMeter
from planner.models.kernels import Masking, Spans, blockwise_attention
from planner.specs.sequence_sharding import token_count

TAG = 1  # of ring messages; those of channels, which may use the same group, have tag 0


class RingAttention:
    """This rank's member of one ring: rank i of the group holds the tokens `shards[i]` of the documents.

    (No dataclass: FSDP2 copies dataclasses that it finds among the arguments of a module.)
    """

    def __init__(self, group: dist.ProcessGroup, dealt: Sequence[Spans], meter: CommunicationMeter) -> None:
        self.group, self.shards, self.meter = group, tuple(dealt), meter
        self.size, self.index = dist.get_world_size(group), dist.get_rank(group)
        if len(self.shards) != self.size:
            raise ValueError(f"{len(self.shards)} shards for a ring of {self.size} ranks")
        self.following, self.preceding = (dist.get_global_rank(group, (self.index + by) % self.size) for by in (1, -1))

    @property
    def spans(self) -> Spans:
        """The spans of tokens on this rank."""
        return self.shards[self.index]

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, cu_seqlens: Tensor, masking: Masking, sinks: Tensor | None = None
    ) -> Tensor:
        """Attention with the shapes of `SequenceParallel.attend`: all arguments have the rows of this rank."""
        return blockwise_attention(q, k, v, self, masking, sinks)

    def visit_blocks(self, block: Tensor, visit: Callable[[Spans, Tensor], None]) -> None:
        """Visit all N blocks `(rows, kv_heads, head_dim + value_dim)`; each is passed on N - 1 times."""
        for step in range(self.size):
            source = self.source_of_step(step)
            transfer = self.pass_on(block, source) if step < self.size - 1 else None
            visit(self.shards[source], block)
            if transfer:
                block = transfer.wait()

    def visit_blocks_backward(self, block: Tensor, visit: Callable[[Spans, Tensor], Tensor]) -> Tensor:
        """The gradient of this rank's block `(rows, kv_heads, head_dim + value_dim)`, of the same shape. A rank adds
        its part of a block's gradient to the sum that follows the block, and passes that on.

        The sum starts at the first rank that receives the block and ends, N - 1 ranks later, at the block's own rank. A
        rank adds in float32 or better but sends the dtype of the block, as prices assume: in bfloat16 the sum is
        rounded N - 1 times.
        """
        own_gradient, incoming_sum = None, None
        for step in range(self.size):
            source = self.source_of_step(step)
            transfer = self.pass_on(block, source) if step < self.size - 1 else None
            gradient = visit(self.shards[source], block)
            if transfer:
                block = transfer.wait()
            if own_gradient is None:
                own_gradient = gradient
            else:
                gradient = gradient + incoming_sum.wait() if incoming_sum else gradient
                incoming_sum = self.pass_on(gradient.to(block.dtype), source)
        assert own_gradient is not None, "a rank's own block is the first"
        return own_gradient + incoming_sum.wait() if incoming_sum else own_gradient

    def source_of_step(self, step: int) -> int:
        """The rank whose block this rank has after so many steps."""
        return (self.index - step) % self.size

    def pass_on(self, block: Tensor, source: int) -> "BlockTransfer":
        """Send this block `(rows, ...)` of rank `source` to the next rank, and receive the previous rank's."""
        return BlockTransfer(
            self, block.contiguous(), block.new_empty(token_count(self.shards[source - 1]), *block.shape[1:])
        )


class BlockTransfer:
    """A block sent to the next rank while another is received. Both operations are in one batch: NCCL would otherwise
    block in the first of them, on all ranks. Blocks without rows are not sent.
    """

    def __init__(self, ring: RingAttention, sent: Tensor, incoming: Tensor) -> None:
        self.ring, self.sent, self.received = ring, sent, incoming
        operations = ((dist.isend, sent, ring.following), (dist.irecv, incoming, ring.preceding))
        messages = [dist.P2POp(operation, x, peer, ring.group, TAG) for operation, x, peer in operations if len(x)]
        self.works = dist.batch_isend_irecv(messages) if messages else []

    def wait(self) -> Tensor:
        """The received block `(rows, ...)`, once the other is sent."""
        with self.ring.meter.measure(self.received.device, "ring", self.sent.nbytes):
            for work in self.works:
                work.wait()
        return self.received
