"""Where in which plan's file something is wrong: as other illegal plans say it."""

from collections.abc import Iterator
from contextlib import contextmanager

from planner.errors import InputError


@contextmanager
def located(name: str, place: str = "") -> Iterator[None]:
    """An InputError from in here says `NAME (its own place, or else `place`)`."""
    try:
        yield
    except InputError as error:
        where = error.where or place
        raise InputError(error.message, where=f"{name} ({where})" if where else name, fix=error.fix) from error
