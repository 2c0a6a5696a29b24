"""Moved to `planner.specs.dealing`."""

from planner.specs.dealing import Span, contiguous, dealt, even_sizes, portion, rows, share, zigzag

__all__ = ["Span", "contiguous", "dealt", "even_sizes", "portion", "rows", "share", "zigzag"]
