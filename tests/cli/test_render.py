"""Output whose reader leaves, as `head` does: quiet, and no failure of ours."""

import subprocess
import sys

import pytest

from tests.test_golden import GOLDEN

PLAN = str(GOLDEN / "sequence_groups" / "demo" / "plan.yaml")


@pytest.mark.parametrize("words", [("show", PLAN), ("show", PLAN, "--json"), ("schema", "plan")])
def test_a_reader_that_leaves_is_no_error(words):
    command = [sys.executable, "-m", "planner", *words]
    done = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    done.stdout.close()
    said = done.stderr.read()
    done.stderr.close()
    assert done.wait() == 141
    assert "error" not in said and "Traceback" not in said and "BrokenPipe" not in said
