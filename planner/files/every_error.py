"""Finds all that is wrong with a file: each error is repaired in the data, and the rest is checked again.

A misspelt key is renamed, and what is below it is checked too. Any other fault is replaced by what the format would
accept there. What a replacement breaks by itself is no error of the file: the search ends where it would be said.
"""

from typing import Any

import msgspec

from planner.errors import InputError, InputErrors
from planner.files.error_location import (
    FileError,
    find_error,
    from_file,
    input_error,
    nearest_names,
    other_names,
    value_at,
    with_value,
)
from planner.files.format_schema import example, keys_at, may_be_left_out, schemas_at
from planner.files.yaml_text import FilePositions, KeyPath

MOST_ERRORS = 20  # that are searched for
LARGE = 10**6  # values of a file over errors searched for: each search checks all values several times


def every_error(error: msgspec.ValidationError, data: Any, kind: type, name: str, places: FilePositions) -> InputError:
    """All that is wrong with the data of a file, in its order, of which `error` is the first that msgspec found."""
    search = ErrorSearch(data, kind, places)
    next_error: msgspec.ValidationError | None = error
    while next_error and search.add(find_error(next_error, search.data, kind)):
        next_error = search.conversion_error()
    found = sorted(search.found, key=lambda finding: finding.position(search.places))
    errors = [input_error(finding, name, search.places) for finding in found]
    return errors[0] if len(errors) == 1 else InputErrors(errors)


class ErrorSearch:
    """The data of a file, repaired error by error."""

    def __init__(self, data: Any, kind: type, places: FilePositions) -> None:
        self.data, self.kind, self.places = data, kind, dict(places)
        self.found: list[FileError] = []
        self.replaced: list[KeyPath] = []  # routes whose value is no longer the file's

    def add(self, finding: FileError) -> bool:
        """Take an error and repair it; whether there may be more."""
        if self.found and self.is_doubtful(finding):
            return False
        self.found.append(finding)
        return len(self.found) < min(MOST_ERRORS, LARGE // len(self.places)) and self.repair(finding)

    def is_doubtful(self, finding: FileError) -> bool:
        """Whether an error may come of a replacement: it is in one, or in what has one."""
        route = finding.route
        inside = any(route[: len(each)] == each for each in self.replaced)
        above = any(each[: len(route)] == route for each in self.replaced)
        return inside or (above and not finding.missing)

    def conversion_error(self) -> msgspec.ValidationError | None:
        """The next error of the data; None where there is none."""
        try:
            msgspec.convert(self.data, self.kind, strict=True, dec_hook=from_file)
        except msgspec.ValidationError as error:
            return error
        return None

    def repair(self, finding: FileError) -> bool:
        """Change the data so that the error is gone; whether that could be done."""
        if finding.missing:
            return self.replace((*finding.route, finding.missing))
        if finding.key:
            return self.rename(finding.route)
        return self.replace(self.whole(finding.route))

    def whole(self, route: KeyPath) -> KeyPath:
        """The value to replace: where a word chooses among mappings, as `from` does, that mapping."""
        chooses = len([part for part in schemas_at(self.kind, route[:-1]) if "properties" in part]) > 1
        return route[:-1] if route and chooses and isinstance(route[-1], str) else route

    def rename(self, route: KeyPath) -> bool:
        """Give a key the name that was meant, or remove it."""
        *above, key = route
        mapping = dict(value_at(self.data, tuple(above)))
        free = [each for each in keys_at(self.kind, tuple(above)) if each not in mapping]
        near = "" if key in other_names(self.kind) else next(iter(nearest_names(str(key), free)), "")
        value = mapping.pop(key)
        if near:
            mapping[near] = value
            below = [each for each in self.places if each[: len(route)] == route and each != (*route, "<key>")]
            self.places |= {(*above, near, *each[len(route) :]): self.places[each] for each in below}
        else:
            self.replaced.append(route)
        self.data = with_value(self.data, tuple(above), mapping)
        return True

    def replace(self, route: KeyPath) -> bool:
        """Remove a value that may be left out, or put one there that the format accepts; whether there is one."""
        if not route:
            return False
        self.replaced.append(route)
        above, key = value_at(self.data, route[:-1]), route[-1]
        if isinstance(above, dict) and may_be_left_out(self.kind, route):
            changed: Any = {each: above[each] for each in above if each != key}
        else:
            value = example(self.kind, route)
            if value is None:
                return False
            changed = {**above, key: value} if isinstance(above, dict) else [*above]
            changed[key] = value
        self.data = with_value(self.data, route[:-1], changed)
        return True
