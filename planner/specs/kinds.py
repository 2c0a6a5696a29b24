"""Entries of a table that hold for one kind of rank among several: `llm@h100-80gb` beside `llm@a100-80gb`.

A cluster of one kind needs no such names, and its files have none.
"""

from collections.abc import Iterable, Mapping
from typing import TypeVar

from planner.specs.cluster import Cluster

T = TypeVar("T")


def kinds(cluster: Cluster) -> tuple[str, ...]:
    """The cluster's kinds of ranks, each once, in its order."""
    return tuple(dict.fromkeys(entry.kind for entry in cluster.ranks))


def on_kind(name: str, kind: str, among: Iterable[str]) -> str:
    """What an entry for ranks of `kind` is called: by its name alone where there is no other kind."""
    return f"{name}@{kind}" if len(tuple(among)) > 1 else name


def entry(table: Mapping[str, T], name: str, kind: str) -> T | None:
    """What holds for ranks of `kind`: their own entry, else the one that holds for every kind."""
    return table.get(f"{name}@{kind}", table.get(name))


def entries(table: Mapping[str, T], kind: str) -> dict[str, T]:
    """All that holds for ranks of `kind`, by name alone."""
    names = dict.fromkeys(key.partition("@")[0] for key in table)
    found = ((name, entry(table, name, kind)) for name in names)
    return {name: value for name, value in found if value is not None}
