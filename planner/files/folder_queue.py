"""A queue in a folder, through which one process hands numbered items of work to another without blocking either.

    FOLDER/7/…         offered: its files may still be replaced by better ones
    FOLDER/taken/7/…   taken

An item appears by one rename and is taken by one rename, so it is complete or absent. Replacing one of its files is a
rename onto a path inside the item's folder, which fails once it is taken: what was taken is not offered a second time.
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
class FolderQueue:
    """A queue between one process that offers and replaces items, and one that takes them; nobody else touches the
    folder.
    """

    folder: Path

    def offered(self, number: int) -> bool:
        """Whether the item can be taken."""
        return (self.folder / str(number)).is_dir()

    def taken(self, number: int) -> bool:
        """Whether the item has been taken."""
        return (self.folder / TAKEN / str(number)).is_dir()

    def offer(self, number: int, texts: Mapping[str, str]) -> None:
        """Offers a new item: its files by name."""
        hidden = self.folder / f".{number}"
        shutil.rmtree(hidden, ignore_errors=True)  # left by one that was killed here
        for name, text in texts.items():
            write_text(hidden / name, text)
        hidden.rename(self.folder / str(number))

    def replace(self, number: int, name: str, text: str) -> bool:
        """Replaces a file of an offered item; False, without effect, where it has been taken."""
        new = self.folder / f".{name}"
        write_text(new, text)
        try:
            os.replace(new, self.folder / str(number) / name)
        except OSError:  # no such folder any more
            new.unlink()
            return False
        return True

    def withdraw(self, number: int) -> None:
        """Removes an offered item, if it is still there."""
        hidden = self.folder / f".{number}"
        shutil.rmtree(hidden, ignore_errors=True)
        with suppress(FileNotFoundError):
            (self.folder / str(number)).rename(hidden)
        shutil.rmtree(hidden, ignore_errors=True)

    def take(self, number: int) -> Path | None:
        """Takes an item: its folder, now the caller's; None where it is not offered."""
        taken = self.folder / TAKEN / str(number)
        try:
            os.rename(self.folder / str(number), taken)
        except FileNotFoundError:
            return None
        return taken

    def next(self, first: int) -> int:
        """The number after the last item taken; `first` where none was."""
        return max((number + 1 for number in item_numbers(self.folder / TAKEN)), default=first)

    def reset_taken(self, first: int = 0) -> None:
        """Forgets what was taken; with `first`, item `first` − 1 counts as the last one taken, for a reader that
        resumes there.

        Raises InputError where the folder cannot be made.
        """
        removed = self.folder / f".{TAKEN}"
        try:
            shutil.rmtree(removed, ignore_errors=True)
            with suppress(FileNotFoundError):
                (self.folder / TAKEN).rename(removed)
            shutil.rmtree(removed, ignore_errors=True)
            (self.folder / TAKEN).mkdir(parents=True)
            if first:
                (self.folder / TAKEN / str(first - 1)).mkdir()
        except OSError as error:
            raise InputError(
                f"cannot make the folder: {error.strerror}", where=str(self.folder), fix="choose another path"
            ) from error

    def clear(self) -> None:
        """Forgets what was taken, and withdraws what is offered."""
        self.reset_taken()
        for number in item_numbers(self.folder):
            self.withdraw(number)


def item_numbers(folder: Path) -> list[int]:
    """Numbers of the items in a folder, rising."""
    try:
        return sorted(int(name) for name in os.listdir(folder) if name.isdecimal())
    except FileNotFoundError:
        return []
