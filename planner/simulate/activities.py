"""The input of the event clock: activities that hold lanes, and wait.

The tasks of a plan and the operators of a recorded trace both become activities. A lane is a FIFO queue with a
capacity of 1: a stream of a device, or a thread of its host. Activities that no other activity queues (`queued_by`)
are in it from the beginning, by number; the others join it when the activity that queues them ends. So the order
within a lane is fixed where the program fixes it, and found while the clock runs where a host decides it, as for
kernels on a stream. At the head of its queues an activity occupies its share of the lanes; it starts when all its
lanes have admitted it and all that it waits for has ended. A lane admits at most one activity of each sharer at a
time.

`require_valid` checks them before the clock runs: indices in range, shapes as documented, quantities finite.
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.errors import InputError
from planner.plan.tasks.ragged_array import IntArray, RaggedArray

FloatArray = NDArray[np.float64]

NO_ACTIVITY = -1  # in `queued_by`, `sharer` and `causes`: there is none


@dataclass(frozen=True, slots=True)
class Activities:
    """The n activities of a program, numbered in program order."""

    seconds: FloatArray  # (n,) duration
    lanes: RaggedArray
    after: RaggedArray  # activities that must have ended before this one starts
    queued_by: IntArray  # (n,) the activity whose end puts this one into the queues of its lanes, or NO_ACTIVITY
    share: FloatArray  # (n,) of the capacity of each of its lanes, 0 to 1
    sharer: IntArray  # (n,) activities with the same sharer are never in a lane together; or NO_ACTIVITY
    lane_count: int

    @property
    def count(self) -> int:
        return len(self.seconds)


class ActivityTimes(NamedTuple):
    """Start and end of each activity in seconds, and the activity whose end let it start."""

    starts: FloatArray  # (n,)
    ends: FloatArray  # (n,)
    causes: IntArray  # (n,) or NO_ACTIVITY


class ListBuilder:
    """Collects a list of integers for each of many things, flat."""

    def __init__(self) -> None:
        self.offsets, self.values = array("q", [0]), array("q")

    def append(self, each: Sequence[int]) -> int:
        """Add a list and return its number."""
        self.values.extend(each)
        self.offsets.append(len(self.values))
        return len(self.offsets) - 2

    def build(self) -> RaggedArray:
        return RaggedArray(np.array(self.offsets, dtype=np.int64), np.array(self.values, dtype=np.int64))


class ActivityBuilder:
    """Collects activities one by one, in program order."""

    def __init__(self) -> None:
        self.scalar_fields = array("d")  # seconds, queued_by, share, sharer
        self.lanes, self.after = ListBuilder(), ListBuilder()
        self.lane_count = 0

    def add_lane(self) -> int:
        self.lane_count += 1
        return self.lane_count - 1

    def add(
        self,
        seconds: float,
        lanes: Sequence[int] = (),
        after: Sequence[int] = (),
        *,
        queued_by: int = NO_ACTIVITY,
        share: float = 1.0,
        sharer: int = NO_ACTIVITY,
    ) -> int:
        """Add an activity and return its number; `after` may name activities that are added later."""
        self.scalar_fields.extend((seconds, queued_by, share, sharer))
        self.lanes.append(lanes)
        return self.after.append(after)

    def build(self) -> Activities:
        """The activities as arrays."""
        scalars = np.array(self.scalar_fields, dtype=np.float64).reshape(-1, 4)
        return Activities(
            seconds=scalars[:, 0].copy(),
            lanes=self.lanes.build(),
            after=self.after.build(),
            queued_by=scalars[:, 1].astype(np.int64),
            share=scalars[:, 2].copy(),
            sharer=scalars[:, 3].astype(np.int64),
            lane_count=self.lane_count,
        )


MAX_SECONDS = 1e300


def require_valid(activities: Activities) -> None:
    """Raises InputError for the first activity with an index out of range or an impossible quantity."""
    n = activities.count
    require_lengths(activities)
    for name, lists, below in (
        ("lane", activities.lanes, activities.lane_count),
        ("activity", activities.after, n),
    ):
        require_lists(name, lists, n)
        article = "an" if name == "activity" else "a"
        require_all(
            (lists.values >= 0) & (lists.values < below),
            f"names {article} {name} that is not there",
            lists.owners(),
        )
    for what, each in (("queued by", activities.queued_by), ("sharer of", activities.sharer)):
        below = n if what == "queued by" else np.iinfo(np.int64).max
        require_all((each >= NO_ACTIVITY) & (each < below), f"is {what} an activity that does not exist")
    require_all((activities.share >= 0) & (activities.share <= 1), "asks for a share that is not between 0 and 1")
    seconds = activities.seconds
    require_all((seconds >= 0) & (seconds < MAX_SECONDS), "has seconds that are negative, or not finite")
    require_once("lane", activities.lanes)


def require_lengths(activities: Activities) -> None:
    """Check the lengths of all arrays: compiled code would read beyond the end of one that is too short."""
    n = activities.count
    for name in ("seconds", "queued_by", "share", "sharer"):
        shape = np.shape(getattr(activities, name))
        if shape != (n,):
            raise invalid_activities(f"`{name}` has the shape {shape}, not ({n},): one for each")
    for name in ("lanes", "after"):
        lists: RaggedArray = getattr(activities, name)
        if np.ndim(lists.offsets) != 1 or np.ndim(lists.values) != 1:
            raise invalid_activities(f"`{name}` is not two flat arrays")


def require_lists(name: str, lists: RaggedArray, count: int) -> None:
    first = lists.offsets
    if len(first) != count + 1 or first[0] != 0 or first[-1] != len(lists.values) or (np.diff(first) < 0).any():
        raise invalid_activities(f"the lists of {name}s are not one for each activity")


def require_once(name: str, lists: RaggedArray) -> None:
    """No activity may name a lane twice: it would wait for itself."""
    named = lists.owners() * (lists.values.max(initial=0) + 1) + lists.values
    if len(np.unique(named)) < len(named):
        raise invalid_activities(f"an activity names a {name} twice")


def require_all(valid: NDArray[np.bool_], what: str, owner: NDArray[np.int64] | None = None) -> None:
    """Raises InputError for the first entry that is not valid; `owner`: the activity of each entry."""
    if not valid.all():
        at = int(np.argmin(valid))
        raise invalid_activities(f"activity {at if owner is None else owner[at]} {what}")


def invalid_activities(what: str) -> InputError:
    return InputError(
        what, where="activities", fix="build them with ActivityBuilder of simulate/activities.py, numbered from 0"
    )
