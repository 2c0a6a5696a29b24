"""Contents that worker processes make ahead, handed over through shared memory in their order (torch's DataLoader)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch.utils.data import DataLoader, Dataset


def contents_ahead(
    contents: "Dataset[Any]", numbers: Sequence[int], workers: int, prefetch: int, pinned: bool = False
) -> "DataLoader[Any]":
    """The contents of these numbers, as they are. Each worker has `prefetch` of them ready; without workers this
    process makes them when they are asked for. `pinned`: in page-locked memory.
    """
    from torch.utils.data import DataLoader

    return DataLoader(
        contents,
        batch_size=None,
        sampler=numbers,
        num_workers=workers,
        prefetch_factor=prefetch if workers else None,
        pin_memory=pinned,
        collate_fn=as_it_is,
        multiprocessing_context="fork" if workers else None,
    )


def as_it_is(contents: Any) -> Any:
    """What a worker hands over: nothing is collated."""
    return contents
