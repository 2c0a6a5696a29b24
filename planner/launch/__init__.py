"""Worker processes, their groups, and the communication that runtime and profiler share."""

from planner.launch.contents_ahead import contents_ahead
from planner.launch.failures import describe_exception
from planner.launch.hangs import HangLimits
from planner.launch.interrupts import handling_interrupts, ignoring_interrupts
from planner.launch.processes import Supervision, die_with_parent, launch, start_fork_server
from planner.launch.task_board import BegunTask
from planner.launch.traffic import SentBytes, TrafficKind
from planner.launch.worker import DeviceKind, Worker, joined_world, usable_cores, worker_from_environment
