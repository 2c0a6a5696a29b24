"""Table entries for one of several kinds of ranks: `llm@h100-80gb` beside `llm@a100-80gb`.

Files of a cluster with one kind have plain names.
"""

from collections.abc import Iterable, Mapping
from typing import TypeVar

from planner.specs.hardware.cluster import Cluster

T = TypeVar("T")


def rank_kinds(cluster: Cluster) -> tuple[str, ...]:
    """Return the cluster's kinds of ranks, each once, in its order."""
    return tuple(dict.fromkeys(entry.kind for entry in cluster.ranks))


def entry_name(name: str, kind: str, among: Iterable[str]) -> str:
    """Return the name of an entry for ranks of `kind`: the plain name where there is no other kind."""
    return f"{name}@{kind}" if len(tuple(among)) > 1 else name


def entry_of_kind(table: Mapping[str, T], name: str, kind: str) -> T | None:
    """Return the entry for ranks of `kind`: their own, else the one of every kind; None: there is neither."""
    return table.get(f"{name}@{kind}", table.get(name))


def entries_of_kind(table: Mapping[str, T], kind: str) -> dict[str, T]:
    """Return all entries for ranks of `kind`, by plain name."""
    names = dict.fromkeys(key.partition("@")[0] for key in table)
    found = ((name, entry_of_kind(table, name, kind)) for name in names)
    return {name: value for name, value in found if value is not None}
