"""A queue in a folder, through which one process hands numbered items of work to another without blocking either.

    FOLDER/7/…         offered: its files may still be replaced by better ones
    FOLDER/taken/7/…   taken

An item appears by one rename and is taken by one rename, so it is complete or absent. Replacing one of its files is a
rename onto a path inside the item's folder, which fails once it is taken: what was taken is not offered a second time.
The folder of an item has a mark, and only what has one is an item: a folder of the user's named 2019 is not removed.
"""

import errno
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from planner.errors import InputError
from planner.files.named_paths import inside
from planner.files.write import write_text

TAKEN = "taken"
MARK = ".item"  # in the folder of an item, from before its files until behind them


@dataclass(frozen=True, slots=True)
class FolderQueue:
    """A queue between one process that offers and replaces items, and one that takes them; nobody else touches the
    folder.
    """

    folder: Path

    def offered(self, number: int) -> bool:
        """Whether the item can be taken."""
        return is_item(self.folder / str(number))

    def taken(self, number: int) -> bool:
        """Whether the item has been taken."""
        return is_item(self.folder / TAKEN / str(number))

    def offer(self, number: int, texts: Mapping[str, str]) -> None:
        """Offers a new item: its files by name. Raises InputError where something else is in its place."""
        hidden, item = self.folder / f".{number}", self.folder / str(number)
        with naming(item):
            remove_item(hidden)  # left by one that was killed here
            make_item(hidden)
            for name, text in texts.items():
                write_text(hidden / name, text)
            if os.path.lexists(item):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
            hidden.rename(item)

    def replace(self, number: int, name: str, text: str) -> bool:
        """Replaces a file of an offered item; False, without effect, where it has been taken."""
        new = self.folder / f".{name}"
        new.unlink(missing_ok=True)  # a link would be followed
        write_text(new, text)
        try:
            os.replace(new, self.folder / str(number) / name)
        except OSError:  # no such folder any more
            new.unlink()
            return False
        return True

    def withdraw(self, number: int) -> None:
        """Removes an offered item, if it is still there."""
        with naming(self.folder / str(number)):
            remove_whole(self.folder / str(number))

    def take(self, number: int) -> Path | None:
        """Takes an item: its folder, now the caller's; None where it is not offered."""
        taken = self.folder / TAKEN / str(number)
        if not self.offered(number):
            return None
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
        taken = self.folder / TAKEN
        with naming(inside(self.folder, TAKEN, str(taken))):
            for number in item_numbers(taken):
                remove_whole(taken / str(number))
            taken.mkdir(parents=True, exist_ok=True)
            if first:
                make_item(taken / str(first - 1))

    def clear(self) -> None:
        """Forgets what was taken, and withdraws what is offered."""
        self.reset_taken()
        for number in item_numbers(self.folder):
            self.withdraw(number)


def item_numbers(folder: Path) -> list[int]:
    """Numbers of the items in a folder, rising."""
    try:
        return sorted(int(name) for name in os.listdir(folder) if name.isdecimal() and is_item(folder / name))
    except FileNotFoundError:
        return []


def is_item(folder: Path) -> bool:
    """Whether a queue made this folder."""
    return (folder / MARK).is_file() and not folder.is_symlink()


def make_item(folder: Path) -> None:
    """Makes the folder of an item, with nothing in it. Raises OSError where something is there."""
    folder.mkdir(parents=True)
    (folder / MARK).touch()


def remove_whole(item: Path) -> None:
    """Removes an item, its name first: nobody finds a half. Raises OSError."""
    hidden = item.with_name(f".{item.name}")
    remove_item(hidden)
    if is_item(item):
        with suppress(FileNotFoundError):  # it has just been taken
            item.rename(hidden)
        remove_item(hidden)


def remove_item(folder: Path) -> None:
    """Removes the folder of an item, its mark last, so that the next removal ends what a kill did not; of others only
    one that is empty. Raises OSError.
    """
    if is_item(folder):
        for file in folder.iterdir():
            if file.name != MARK:
                file.unlink()
        (folder / MARK).unlink()
    with suppress(OSError):
        folder.rmdir()


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Raises an OSError inside as an InputError that names this path."""
    try:
        yield
    except OSError as error:
        fix = "remove what is there, or choose another path"
        raise InputError(f"cannot make the folder: {error.strerror}", where=str(path), fix=fix) from error
