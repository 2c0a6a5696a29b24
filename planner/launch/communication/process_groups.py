"""The process groups of a plan by their ranks. Torch itself would silently create a second group of the same ranks."""

from collections.abc import Iterable, Sequence

import torch.distributed as dist

from planner.launch.worker import world_timeout
from planner.specs.base import Ranks


class ProcessGroups:
    """Process groups by their ranks. On creation every rank creates all groups of the catalogue, in one sorted order.

    Their timeout is that of the world, which is not created again. The group of a single rank is created when it is
    asked for, since no other rank takes part.
    """

    def __init__(self, catalogue: Iterable[Sequence[int]]) -> None:
        self.rank, world = dist.get_rank(), tuple(range(dist.get_world_size()))
        world_group = dist.group.WORLD
        assert world_group is not None, "join the world before its groups"
        self._groups = {world: world_group}
        for ranks in sorted({tuple(ranks) for ranks in catalogue}):
            if len(ranks) > 1 and ranks != world:
                group = dist.new_group(list(ranks), timeout=world_timeout(), group_desc=f"ranks {Ranks(ranks)}")
                if self.rank in ranks:
                    self._groups[ranks] = group

    def __getitem__(self, ranks: Sequence[int]) -> dist.ProcessGroup:
        """The group of these ranks, in ascending order, to which this rank belongs."""
        key = tuple(ranks)
        if key not in self._groups and key == (self.rank,):
            self._groups[key] = dist.new_group(
                [self.rank], use_local_synchronization=True, group_desc=f"rank {self.rank}"
            )
        return self._groups[key]

    def __len__(self) -> int:
        return len(self._groups)
