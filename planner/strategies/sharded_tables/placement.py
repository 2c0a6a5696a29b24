"""Tables of a group as they are being placed: how each is cut, where its shards are, and what each rank then has."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.costs.tables import ON_ALL, ON_NODES, ShardingGroup, ShardOptions, shard_ranks

ROUNDING = 1 + 1e-9
Where = tuple[int, ...]  # ranks of the group that have a shard; nodes, where a cut is over the ranks of one; or nothing


@dataclass(eq=False)
class Placement:
    """Which option each table has, −1 for one that is not placed, and where. `loads` in seconds, others in bytes."""

    options: ShardOptions
    group: ShardingGroup
    room: float  # bytes that tables may have of a rank
    host_room: float  # bytes that tables may have of a rank's share of its host

    def __post_init__(self) -> None:
        count, ranks = len(self.options.names), self.group.ranks
        self.seconds = self.options.seconds
        self.chosen = np.full(count, -1, dtype=np.int64)
        self.where: list[Where] = [()] * count
        self.loads, self.held, self.host = (np.zeros(ranks) for _ in range(3))

    @property
    def slowest(self) -> float:
        """Seconds of the slowest rank."""
        return float(self.loads.max())

    def ranks(self, option: int, where: Where) -> NDArray[np.int64]:
        """The ranks of the group that have shards of an option."""
        return shard_ranks(int(self.options.cut[option]), where, self.group)

    def fits(self, option: int) -> NDArray[np.bool_]:
        """The ranks that have room for a shard of an option."""
        room = self.held + self.options.held[option] <= self.room * ROUNDING
        if not self.options.host[option]:
            return np.asarray(room)
        return np.asarray(room & (self.host + self.options.host[option] <= self.host_room * ROUNDING))

    def least_loaded(self, option: int) -> Where | None:
        """Where an option goes if its shards go to the ranks, or nodes, that have least; None: it does not fit."""
        cut, parts, fits = int(self.options.cut[option]), int(self.options.parts[option]), self.fits(option)
        if cut in ON_ALL:
            return () if fits.all() else None
        loads = np.where(fits, self.loads, np.inf)
        if cut in ON_NODES:
            loads = loads.reshape(-1, self.group.per_node).max(axis=1)
        if parts == 1:
            found = [int(loads.argmin())]
        else:
            found = sorted(int(each) for each in np.argsort(loads, kind="stable")[:parts])
        return None if np.isinf(loads[found]).any() else tuple(found)

    def put(self, table: int, option: int, where: Where) -> None:
        """Place a table that is not placed."""
        self.add(option, where, 1.0)
        self.chosen[table], self.where[table] = option, where

    def take(self, table: int) -> tuple[int, Where]:
        """Take a table away; returns how it was placed."""
        option, where = int(self.chosen[table]), self.where[table]
        self.add(option, where, -1.0)
        self.chosen[table], self.where[table] = -1, ()
        return option, where

    def add(self, option: int, where: Where, sign: float) -> None:
        """Add what an option's shards take of their ranks."""
        ranks = self.ranks(option, where)
        self.loads[ranks] += sign * self.seconds[option]
        self.held[ranks] += sign * self.options.held[option]
        self.host[ranks] += sign * self.options.host[option]

    def growth(self, option: int, where: Where) -> float:
        """By how much an option's shards raise the sum of squares of the ranks' seconds."""
        loads, each = self.loads[self.ranks(option, where)], float(self.seconds[option])
        return float(each * (2.0 * loads.sum() + each * len(loads)))

    def put_best(self, table: int) -> bool:
        """Place a table in the way that raises the squares of loads least; False where none fits."""
        places = ((option, self.least_loaded(option)) for option in self.options.of(table))
        able = [(self.growth(option, where), option, where) for option, where in places if where is not None]
        if able:
            self.put(table, *min(able)[1:])
        return bool(able)

    def saved(self) -> tuple[NDArray[np.int64], list[Where]]:
        """The placement, to come back to."""
        return self.chosen.copy(), [*self.where]

    def restore(self, saved: tuple[NDArray[np.int64], list[Where]]) -> None:
        """Come back to a saved placement; sums are taken anew, so that rounding does not add up."""
        for values in (self.loads, self.held, self.host):
            values[:] = 0.0
        self.chosen, self.where = saved[0].copy(), [*saved[1]]
        for option, where in zip(self.chosen, self.where, strict=True):
            if option >= 0:
                self.add(int(option), where, 1.0)

    def on_rank(self, rank: int) -> list[int]:
        """The tables that have a shard on a rank."""
        node = rank // self.group.per_node
        cuts = self.options.cut[self.chosen]
        return [
            table
            for table, (cut, where) in enumerate(zip(cuts, self.where, strict=True))
            if cut in ON_ALL or (node if cut in ON_NODES else rank) in where
        ]
