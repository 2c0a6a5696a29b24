"""Evaluates a formula once for every distinct value of the fields that it depends on, among a million layouts.

Layouts of a space differ in a dozen fields, and most formulas depend on few of them: a layer on its shards and
micro-batch, states on the mesh and the ZeRO stage. So a formula of many operations runs over hundreds of layouts, and
what is left to do for each layout is arithmetic on its results.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from planner.costs.layout_columns import NON_NUMERIC_FIELDS, NUMERIC_FIELDS, LayoutColumns

Result = TypeVar("Result")
Indices = NDArray[np.int64]
IndexPair = tuple[Indices, Indices]
Digits = tuple[Indices, int]  # places of values among the distinct ones, and how many these are
# What the work of a layer and its activations depend on; not stages, states and replicas.
LAYER_FIELDS = (
    "seq", "micro_batch", "tp", "cp", "ulysses", "ep", "etp", "cross_reads", "cross_pairs", "readers",
    "sequence_parallel", "load_spreads", "offloaded_parts",
)  # fmt: skip
LARGEST_KEY = 2**62
KEYS_PER_LAYOUT = 4  # so many possible keys for each layout are counted in a table; more are sorted
FEWEST_COMPARED = 64  # fewer layouts than these are not compared
REMEMBERED = 4096  # results of formulas on distinct layouts, of about a hundred numbers each
TOLD_APART = tuple(name for name in NON_NUMERIC_FIELDS if name != "alike")


def on_distinct(at: LayoutColumns, names: tuple[str, ...], formula: Callable[..., Result], *inputs: Hashable) -> Result:
    """The formula's result, (layouts,) each; `names`: the fields that it may depend on besides those that are no
    numbers. All others are nan to it. Of a formula that is a function of the layouts and `inputs` alone, results are
    remembered: a search asks for the same meshes and micro-batches beside one memory after another. None are where
    coefficients are arrays, as a fit has them.
    """
    few, place = distinct_columns(at, names)
    known = bool(inputs) and is_hashable(inputs)
    own: Result = remembered(formula, inputs, KnownColumns.of(few, names)) if known else formula(few, *inputs)
    if place is None:
        return own
    found: Result = taken(own, place, few_layouts(few, names))
    return found


def is_hashable(inputs: tuple[Hashable, ...]) -> bool:
    """Whether these have a hash: only looking for it tells, as it is that of all that they hold."""
    try:
        hash(inputs)
    except TypeError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class KnownColumns:
    """Layouts that are equal to others where these have the same values."""

    values: tuple[Hashable, ...]  # of the fields that count
    at: LayoutColumns = field(compare=False)

    @classmethod
    def of(cls, at: LayoutColumns, names: tuple[str, ...]) -> "KnownColumns":
        """Layouts of which these fields count, and those that are no numbers."""
        numbers = [column.tobytes() if np.ndim(column := getattr(at, name)) else column for name in names]
        return cls((names, *numbers, *(getattr(at, name) for name in TOLD_APART)), at)


@lru_cache(maxsize=REMEMBERED)
def remembered(formula: Callable[..., Any], inputs: tuple[Hashable, ...], columns: KnownColumns) -> Any:
    """The formula's result, whose arrays nobody changes."""
    return formula(columns.at, *inputs)


def distinct_columns(at: LayoutColumns, names: tuple[str, ...]) -> tuple[LayoutColumns, Indices | None]:
    """The layouts that differ in these fields, the others nan, and the place of each layout among them; all of the
    layouts, and no places, where too few are alike.
    """
    arrays = {name: column for name in names if np.ndim(column := getattr(at, name))}
    count = max((column.size for column in arrays.values()), default=0)
    if count < FEWEST_COMPARED:
        return at, None
    first, place = known_places(at, names, tuple(arrays.values()))
    if first.size > count // 2:
        return at, None
    few: dict[str, Any] = {name: np.nan for name in NUMERIC_FIELDS if name not in names}
    few |= {name: column[first] for name, column in arrays.items()}
    return replace(at, **few, alike={}), place


def columns_where(at: LayoutColumns, some: NDArray[Any]) -> LayoutColumns:
    """The layouts for which this is true, or those at these places."""
    if some.dtype == np.bool_ and some.all():
        return at
    own = {name: column[some] for name in NUMERIC_FIELDS if np.ndim(column := getattr(at, name))}
    return replace(at, **own, alike={})


def joined_columns(each: Sequence[LayoutColumns]) -> LayoutColumns:
    """The layouts of several columns one behind another; they agree in the fields that are no numbers."""
    counts, joined = [layout_count(at) for at in each], dict[str, Any]()
    for name in NUMERIC_FIELDS:
        columns = [getattr(at, name) for at in each]
        if any(map(np.ndim, columns)) or len({*columns}) > 1:
            many = zip(columns, counts, strict=True)
            joined[name] = np.concatenate([np.broadcast_to(column, (count,)) for column, count in many])
    return replace(each[0], **joined, alike={})


def joined_by_kind(each: Iterable[LayoutColumns]) -> Iterator[LayoutColumns]:
    """Yield the layouts of several columns, joined with those that agree in the fields that are no numbers."""
    kinds: dict[tuple[Hashable, ...], list[LayoutColumns]] = {}
    for at in each:
        kinds.setdefault(tuple(getattr(at, name) for name in TOLD_APART), []).append(at)
    yield from map(joined_columns, kinds.values())


def layout_count(at: LayoutColumns) -> int:
    """How many layouts these columns have, by all of their numbers."""
    return few_layouts(at, NUMERIC_FIELDS)


def few_layouts(few: LayoutColumns, names: tuple[str, ...]) -> int:
    """How many layouts these columns have in the fields of these names."""
    return max(np.size(getattr(few, name)) for name in names)


def known_places(at: LayoutColumns, names: tuple[str, ...], columns: tuple[NDArray[Any], ...]) -> IndexPair:
    """What `distinct_values` gives, computed once for columns that many formulas ask for."""
    known = at.alike.get(names)
    if known is None or [*map(id, known[0])] != [*map(id, columns)]:
        digits = [known_digits(at, column) for column in columns]
        known = at.alike[names] = (columns, *distinct_combinations(digits))
    return known[1], known[2]


def known_digits(at: LayoutColumns, column: NDArray[Any]) -> Digits:
    """What `digits_of` gives, computed once for a column that is in the keys of many formulas."""
    key = (str(id(column)),)
    if key not in at.alike:
        at.alike[key] = (column, digits_of(column))  # with the column, so that no other one gets its id
    digits: Digits = at.alike[key][1]
    return digits


def distinct_values(columns: Sequence[NDArray[Any]]) -> IndexPair:
    """The index of the first of each distinct combination of the columns' values; and each one's place among these."""
    return distinct_combinations([*map(digits_of, columns)])


def distinct_combinations(columns: Sequence[Digits]) -> IndexPair:
    """The index of the first of each distinct combination of columns as digits; and each one's place among these."""
    key, radix = np.zeros(columns[0][0].size, dtype=np.int64), 1
    for digits, size in columns:
        if radix * size >= LARGEST_KEY:
            key = np.unique(key, return_inverse=True)[1]
            radix = int(key.max()) + 1
        key, radix = key * size + digits, radix * size
    if radix > KEYS_PER_LAYOUT * key.size:
        _, first, place = np.unique(key, return_index=True, return_inverse=True)
        return first, place
    place, count = ranked(key, radix)
    first = np.empty(count, dtype=np.int64)
    first[place[::-1]] = np.arange(key.size)[::-1]  # of equal places the last assignment stays
    return first, place


def digits_of(column: NDArray[Any]) -> Digits:
    """The place of each value among the column's distinct values, and how many these are."""
    digits = column.astype(np.int64)
    if (digits != column).any() or digits.min() < 0 or digits.max() > KEYS_PER_LAYOUT * digits.size:
        digits = np.unique(column, return_inverse=True)[1]
        return digits, int(digits.max()) + 1
    return ranked(digits, int(digits.max()) + 1)


def ranked(key: Indices, radix: int) -> Digits:
    """The place of each key among the distinct ones, all below `radix`, and how many these are: without sorting."""
    present = np.zeros(radix, dtype=np.bool_)
    present[key] = True
    rank = np.cumsum(present) - 1
    return rank[key], int(rank[-1]) + 1


def taken(found: Any, place: Indices, count: int) -> Any:
    """The results of distinct layouts for all layouts; results may be numbers, tuples and dataclasses of them."""
    if is_dataclass(found) and not isinstance(found, type):
        own = {field.name: taken(getattr(found, field.name), place, count) for field in fields(found)}
        return replace(found, **own)
    if isinstance(found, dict):
        return {key: taken(each, place, count) for key, each in found.items()}
    if isinstance(found, tuple):
        each = [taken(one, place, count) for one in found]
        return type(found)(*each) if hasattr(found, "_fields") else tuple(each)
    array = np.asarray(found)
    return array[place] if array.ndim and array.shape[0] == count else found
