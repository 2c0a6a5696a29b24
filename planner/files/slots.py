"""A folder through which one process hands numbered pieces of work to another; neither waits for the other.

    FOLDER/7/…         offered: its files may still be replaced by better ones
    FOLDER/taken/7/…   taken

A piece appears by one rename and is taken by one rename, so it is there whole or not at all. To replace a file of it is
a rename onto a path inside its folder, which taking removes: what was taken is not offered a second time.
"""

import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from planner.errors import InputError
from planner.files.write import write_text

TAKEN = "taken"


@dataclass(frozen=True, slots=True)
class Slots:
    """One side offers and replaces, the other takes; only these two touch the folder."""

    folder: Path

    def offered(self, number: int) -> bool:
        return (self.folder / str(number)).is_dir()

    def taken(self, number: int) -> bool:
        return (self.folder / TAKEN / str(number)).is_dir()

    def offer(self, number: int, texts: Mapping[str, str]) -> None:
        """A new piece: files by name."""
        hidden = self.folder / f".{number}"
        shutil.rmtree(hidden, ignore_errors=True)  # left by one that was killed here
        for name, text in texts.items():
            write_text(hidden / name, text)
        hidden.rename(self.folder / str(number))

    def replace(self, number: int, name: str, text: str) -> bool:
        """A better file in an offered piece; False, and nothing happens, when it has been taken."""
        new = self.folder / f".{name}"
        write_text(new, text)
        try:
            os.replace(new, self.folder / str(number) / name)
        except OSError:  # no such folder any more
            new.unlink()
            return False
        return True

    def withdraw(self, number: int) -> None:
        """Remove an offered piece, if it is still there."""
        hidden = self.folder / f".{number}"
        shutil.rmtree(hidden, ignore_errors=True)
        with suppress(FileNotFoundError):
            (self.folder / str(number)).rename(hidden)
        shutil.rmtree(hidden, ignore_errors=True)

    def take(self, number: int) -> Path | None:
        """The folder of a piece that is now the caller's; None when it is not offered."""
        mine = self.folder / TAKEN / str(number)
        try:
            os.rename(self.folder / str(number), mine)
        except FileNotFoundError:
            return None
        return mine

    def next(self, first: int) -> int:
        """The number after the last one taken; `first` when none was."""
        return max((number + 1 for number in numbers(self.folder / TAKEN)), default=first)

    def rewind(self, first: int = 0) -> None:
        """From here on nothing has been taken; `first`: but the one before this, for one that goes on from there."""
        before = self.folder / f".{TAKEN}"
        try:
            shutil.rmtree(before, ignore_errors=True)
            with suppress(FileNotFoundError):
                (self.folder / TAKEN).rename(before)
            shutil.rmtree(before, ignore_errors=True)
            (self.folder / TAKEN).mkdir(parents=True)
            if first:
                (self.folder / TAKEN / str(first - 1)).mkdir()
        except OSError as error:
            raise InputError(
                f"cannot make the folder: {error.strerror}", where=str(self.folder), fix="choose another path"
            ) from error

    def clear(self) -> None:
        """Nothing has been taken, and nothing is offered."""
        self.rewind()
        for number in numbers(self.folder):
            self.withdraw(number)


def numbers(folder: Path) -> list[int]:
    """Of the pieces in a folder."""
    try:
        return sorted(int(name) for name in os.listdir(folder) if name.isdecimal())
    except FileNotFoundError:
        return []
