"""One thing to measure once, and what came out: plain data between the plan of a profile, its ranks and its fits."""

from dataclasses import dataclass
from typing import Literal, get_args

from planner.launch.collectives import COLLECTIVES  # noqa: F401
