"""A list of integers for each of many things, flat."""

from collections.abc import Sequence
from itertools import chain, pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]


class RaggedArray(NamedTuple):
    """A list of integers for each thing, flat (CSR): that of thing i is `values[offsets[i]:offsets[i + 1]]`."""

    offsets: IntArray  # (n + 1,)
    values: IntArray

    def __getitem__(self, i: int) -> list[int]:  # type: ignore[override]
        found: list[int] = self.values[self.offsets[i] : self.offsets[i + 1]].tolist()
        return found

    def lists(self) -> list[list[int]]:
        """Return all lists."""
        values: list[int] = self.values.tolist()
        return [values[first:last] for first, last in pairwise(self.offsets.tolist())]

    def owners(self) -> IntArray:
        """Return, for each entry of the lists, whose it is."""
        return np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))

    def gathered(self, which: IntArray) -> "RaggedArray":
        """Return the lists at these places, in this order."""
        lengths = np.diff(self.offsets)[which]
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        places = np.repeat(self.offsets[which] - offsets[:-1], lengths) + np.arange(int(offsets[-1]))
        return RaggedArray(offsets, self.values[places])


def ragged(each: Sequence[Sequence[int]]) -> RaggedArray:
    """Return a list for each, flattened."""
    first = np.zeros(len(each) + 1, dtype=np.int64)
    np.cumsum(np.fromiter(map(len, each), dtype=np.int64, count=len(each)), out=first[1:])
    return RaggedArray(first, np.fromiter(chain.from_iterable(each), dtype=np.int64, count=int(first[-1])))


def ragged_of_pairs(owners: IntArray, values: IntArray, count: int) -> RaggedArray:
    """Return the lists of `count` things, given whose each entry is; those of one thing keep their order."""
    offsets = np.concatenate([[0], np.cumsum(np.bincount(owners, minlength=count))])
    return RaggedArray(offsets, values[np.argsort(owners, kind="stable")])
