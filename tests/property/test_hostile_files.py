"""Whatever a file has in it, and whatever a path leads to: an answer, or one located error of three lines."""

import random
from contextlib import contextmanager

import pytest

from planner.errors import PlannerError
from planner.printable import UNSAFE
from tests.examples import share
from tests.hostile_files import READERS, hostile, limited, odd_paths


@contextmanager
def answered(case: object):
    """An answer or an error for people, within the limits."""
    try:
        with limited():
            yield
    except PlannerError as error:
        for each in error.errors:
            text = str(each)
            assert each.where and each.fix and len(text.split("\n")) == 3 and not UNSAFE.search(text), (
                case,
                text[:300],
            )
            assert len(text) < 6200, (case, len(text))
    except Exception as error:
        raise AssertionError(f"{case}: {type(error).__name__}: {str(error)[:300]}") from error


@pytest.mark.parametrize("name", READERS)
def test_hostile_files(tmp_path, name):
    """Of 10,000 in the soak, as many of each reader."""
    reader, chance = READERS[name], random.Random(name)
    right = reader.make(tmp_path)
    raw = right.read_bytes()
    reader.read(right)
    for number in range(share(10_000 // len(READERS))):
        right.write_bytes(hostile(raw, chance))
        with answered((name, number)):
            reader.read(right)


@pytest.mark.parametrize("name", READERS)
def test_paths_that_are_no_files(tmp_path, name):
    reader = READERS[name]
    right = reader.make(tmp_path)
    for kind, path in odd_paths(tmp_path, right).items():
        with answered((name, kind)):
            reader.read(path)
            assert name in {"records", "tokens", "config", "ledger", "digest"}, (name, kind)  # folders, or none
