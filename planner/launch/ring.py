"""Ring attention (arXiv 2310.01889): keys and values go from rank to rank, while each computes with those that it has.

Backward sends them around again, and behind each block the sum of its gradients, which ends where the block is from.
Whose rows they are, every rank knows: shapes are planned, and none is sent.
"""

from collections.abc import Callable, Sequence

import torch.distributed as dist
from torch import Tensor

from planner.launch.meter import Meter
from planner.models.blockwise import Spans, blockwise
from planner.models.pieces import Masking
from planner.specs.dealing import rows

TAG = 1  # of messages around a ring; those of channels, which may use the same group, have 0


class Ring:
    """This rank's place in one ring: rank i of the group holds the tokens `dealt[i]` of the documents.

    (No dataclass: FSDP2 copies dataclasses that it finds among the arguments of a module.)
    """

    def __init__(self, group: dist.ProcessGroup, dealt: Sequence[Spans], meter: Meter) -> None:
        self.group, self.dealt, self.meter = group, tuple(dealt), meter
        self.size, self.index = dist.get_world_size(group), dist.get_rank(group)
        if len(self.dealt) != self.size:
            raise ValueError(f"{len(self.dealt)} shards for a ring of {self.size} ranks")
        self.following, self.preceding = (dist.get_global_rank(group, (self.index + by) % self.size) for by in (1, -1))

    @property
    def spans(self) -> Spans:
        return self.dealt[self.index]

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, cu_seqlens: Tensor, masking: Masking, sinks: Tensor | None = None
    ) -> Tensor:
        """As `packed_attention`, where every argument has the rows of this rank."""
        return blockwise(q, k, v, self, masking, sinks)

    def around(self, block: Tensor, visit: Callable[[Spans, Tensor], None]) -> None:
        """N blocks are visited, N - 1 times one is passed on."""
        for step in range(self.size):
            source = self.source(step)
            passed = self.pass_on(block, source) if step < self.size - 1 else None
            visit(self.dealt[source], block)
            if passed:
                block = passed.wait()

    def back(self, block: Tensor, visit: Callable[[Spans, Tensor], Tensor]) -> Tensor:
        """A rank adds its part of a block's gradient to the sum that comes behind the block, and passes that on, too.

        The sum begins at the first rank that the block comes to and ends, N - 1 ranks further, where it is from. What a
        rank adds is float32 or better, but what it passes on has the dtype of the block, as prices have it: in bfloat16
        the sum is rounded N - 1 times.
        """
        own, sums = None, None
        for step in range(self.size):
            source = self.source(step)
            passed = self.pass_on(block, source) if step < self.size - 1 else None
            found = visit(self.dealt[source], block)
            if passed:
                block = passed.wait()
            if own is None:
                own = found
            else:
                found = found + sums.wait() if sums else found
                sums = self.pass_on(found.to(block.dtype), source)
        assert own is not None, "a rank's own block is the first"
        return own + sums.wait() if sums else own

    def source(self, step: int) -> int:
        """Whose block a rank has after so many steps."""
        return (self.index - step) % self.size

    def pass_on(self, block: Tensor, source: int) -> "Passed":
        """Send this block of that rank to the next, and ask the one before for what it has."""
        return Passed(self, block.contiguous(), block.new_empty(rows(self.dealt[source - 1]), *block.shape[1:]))


class Passed:
    """A block on its way to the next rank, and another on its way here. Both are asked for in one batch: NCCL would
    wait in the first of them, on all ranks. Nobody sends what has no rows.
    """

    def __init__(self, ring: Ring, sent: Tensor, coming: Tensor) -> None:
        self.ring, self.sent, self.coming = ring, sent, coming
        ways = ((dist.isend, sent, ring.following), (dist.irecv, coming, ring.preceding))
        messages = [dist.P2POp(way, x, peer, ring.group, TAG) for way, x, peer in ways if len(x)]
        self.works = dist.batch_isend_irecv(messages) if messages else []

    def wait(self) -> Tensor:
        """What came, once what was sent is gone."""
        with self.ring.meter.measure(self.coming.device, self.sent.nbytes):
            for work in self.works:
                work.wait()
        return self.coming
