"""The callback by which long work reports its progress."""

from collections.abc import Callable

OnProgress = Callable[[int, int, str], None]  # done, of how many, what


def silent(done: int, of: int, what: str) -> None:
    """Show no progress."""
