"""Places pieces of work on lanes and in time: list schedules, searched, with a bound; divides works into pieces."""

from planner.placer.allocate import Allocation, Work, allocate
from planner.placer.malleable import SpeedEnvelope, malleable_seconds, placement_bound
from planner.placer.pieces import Lanes, Mode, Piece, Placed, Placement
from planner.placer.place import place
