"""Where published records lie: the folder of public data itself, one in it called `published`, or one beside it."""

from pathlib import Path

from planner.published.record_files import is_published_file


def published_folder(data: Path | None) -> Path | None:
    """The first of these with a file of published records; None without one."""
    places = (data, data / "published", data.parent / "published") if data else ()
    return next((folder for folder in places if holds_records(folder)), None)


def holds_records(folder: Path) -> bool:
    return any(path.is_file() and is_published_file(path) for path in folder.glob("*.csv"))
