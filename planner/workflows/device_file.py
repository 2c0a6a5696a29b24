"""The devices of this machine that an elastic run may have: a line of a file, which its launcher reads twice a second.

    SAVED/devices.txt    0-1,3

The run's launcher writes it, without the devices of ranks that were lost; whoever has a device back adds it again.
"""

import logging
from pathlib import Path

from planner.errors import InputError
from planner.files import path_exists, read_text, write_text
from planner.specs.base import Ranks
from planner.units import plural

LOG = logging.getLogger(__name__)
DEVICE_FILE = "devices.txt"


class DeviceFile:
    """That file of a run, whose job is for `count` devices."""

    def __init__(self, folder: Path, count: int) -> None:
        self.path, self.count = folder / DEVICE_FILE, count
        self.refused = ""  # why the file was last refused

    def begin(self, ranks: int) -> Ranks:
        """The devices of a run that begins with a plan of so many ranks: what is there from before, or the first ones,
        which are written then. Raises InputError.
        """
        if not path_exists(self.path, str(self.path)):
            self.write(Ranks(range(ranks)))
        return self.read()

    def write(self, devices: Ranks) -> None:
        """Write the devices that are left. Raises InputError."""
        write_text(self.path, f"{devices}\n", durable=True)

    def read(self) -> Ranks:
        """The devices that the run may have. Raises InputError."""
        text = read_text(self.path).strip()
        try:
            devices = Ranks.from_file(text)
        except ValueError:
            devices = Ranks()
        if not devices or devices[-1] >= self.count:
            fix = f"such as 0-{self.count - 1}: the job has {plural(self.count, 'device')}"
            raise InputError(f"`{text[:40]}` is no choice of devices", where=str(self.path), fix=fix)
        return devices

    def now(self, devices: Ranks) -> Ranks:
        """The devices that the run may have now; where the file is refused, which is logged once, those that it has."""
        try:
            return self.read()
        except InputError as error:
            if self.refused != str(error):
                self.refused = str(error)
                LOG.warning("%s: %s", error.where, error.message)
            return devices

    def differs_from(self, devices: Ranks) -> bool:
        """Whether the run should have others than these."""
        return self.now(devices) != devices
