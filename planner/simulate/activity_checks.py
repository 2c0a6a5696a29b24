"""Validates activities before the clock runs: indices in range, shapes as documented, quantities finite."""

import numpy as np
from numpy.typing import NDArray

from planner.errors import InputError
from planner.simulate.activities import NO_ACTIVITY, Activities, RaggedArray

MAX_QUANTITY = 1e300  # upper limit of any quantity


def require_valid(activities: Activities) -> None:
    """Raises InputError for the first activity with an index out of range or an impossible quantity."""
    n = activities.count
    require_lengths(activities)
    for name, lists, below in (
        ("lane", activities.lanes, activities.lane_count),
        ("activity", activities.after, n),
        ("link", activities.links, len(activities.bandwidth)),
        ("store", activities.takes, len(activities.stock)),
        ("store", activities.gives, len(activities.stock)),
    ):
        require_lists(name, lists, n)
        article = "an" if name == "activity" else "a"
        require_all(
            (lists.values >= 0) & (lists.values < below),
            f"names {article} {name} that is not there",
            owner_of_entries(lists),
        )
    for what, each in (("queued by", activities.queued_by), ("sharer of", activities.sharer)):
        below = n if what == "queued by" else np.iinfo(np.int64).max
        require_all((each >= NO_ACTIVITY) & (each < below), f"is {what} an activity that does not exist")
    require_all((activities.share >= 0) & (activities.share <= 1), "asks for a share that is not between 0 and 1")
    for what, amounts in (("seconds", activities.seconds), ("bytes", activities.bytes)):
        require_all((amounts >= 0) & (amounts < MAX_QUANTITY), f"has {what} that are negative, or not finite")
    for lists, amounts in ((activities.takes, activities.taken), (activities.gives, activities.given)):
        require_all(
            (amounts >= 0) & (amounts < MAX_QUANTITY),
            "moves an amount that is negative, or not finite",
            owner_of_entries(lists),
        )
    if (
        not ((activities.bandwidth > 0) & (activities.bandwidth < MAX_QUANTITY)).all()
        or not ((activities.stock >= 0) & (activities.stock < MAX_QUANTITY)).all()
    ):
        raise invalid_activities("a bandwidth is not above 0, or a stock is negative, or one of them is not finite")
    require_all((activities.bytes == 0) | (np.diff(activities.links.offsets) > 0), "moves bytes over no link")
    for name, lists in (("lane", activities.lanes), ("store", activities.takes)):
        require_once(name, lists)


def require_lengths(activities: Activities) -> None:
    """Check the lengths of all arrays: compiled code would read beyond the end of one that is too short."""
    n = activities.count
    each = {"seconds": n, "queued_by": n, "share": n, "sharer": n, "bytes": n}
    entries = {"taken": len(activities.takes.values), "given": len(activities.gives.values)}
    entries |= {"bandwidth": len(activities.bandwidth), "stock": len(activities.stock)}
    for name, length in (each | entries).items():
        shape = np.shape(getattr(activities, name))
        if shape != (length,):
            raise invalid_activities(f"`{name}` has the shape {shape}, not ({length},): one for each")
    for name in ("lanes", "after", "links", "takes", "gives"):
        lists: RaggedArray = getattr(activities, name)
        if np.ndim(lists.offsets) != 1 or np.ndim(lists.values) != 1:
            raise invalid_activities(f"`{name}` is not two flat arrays")


def require_lists(name: str, lists: RaggedArray, count: int) -> None:
    first = lists.offsets
    if len(first) != count + 1 or first[0] != 0 or first[-1] != len(lists.values) or (np.diff(first) < 0).any():
        raise invalid_activities(f"the lists of {name}s are not one for each activity")


def require_once(name: str, lists: RaggedArray) -> None:
    """No activity may name a lane or a store twice: it would wait for itself."""
    named = owner_of_entries(lists) * (lists.values.max(initial=0) + 1) + lists.values
    if len(np.unique(named)) < len(named):
        raise invalid_activities(f"an activity names a {name} twice")


def owner_of_entries(lists: RaggedArray) -> NDArray[np.int64]:
    """For each entry of the lists, the number of its activity."""
    return np.repeat(np.arange(len(lists.offsets) - 1), np.diff(lists.offsets))


def require_all(valid: NDArray[np.bool_], what: str, owner: NDArray[np.int64] | None = None) -> None:
    """Raises InputError for the first entry that is not valid; `owner`: the activity of each entry."""
    if not valid.all():
        at = int(np.argmin(valid))
        raise invalid_activities(f"activity {at if owner is None else owner[at]} {what}")


def invalid_activities(what: str) -> InputError:
    return InputError(
        what, where="activities", fix="build them with ActivityBuilder of simulate/activities.py, numbered from 0"
    )
