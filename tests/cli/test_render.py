"""What is printed is the data itself; and a reader that leaves, as `head` does, is no failure of ours."""

import subprocess
import sys

import pytest

from planner.cli.render import emit, svg
from planner.cli.views.plain_table import table
from tests.test_golden import GOLDEN

PLAN = str(GOLDEN / "sequence_groups" / "demo" / "plan.yaml")


@pytest.mark.slow
def test_a_reader_that_leaves_is_no_error():
    command = [sys.executable, "-m", "planner", "show", PLAN]
    done = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    done.stdout.close()
    said = done.stderr.read()
    done.stderr.close()
    assert done.wait() == 141
    assert "error" not in said and "Traceback" not in said and "BrokenPipe" not in said


def test_brackets_and_colons_of_data_are_printed(capsys):
    """They are no markup of rich's: a layout says `recompute: [norm]`."""
    rows = table("", "")
    rows.add_row("layout", "{recompute: [norm], note: :a:}")
    emit(False, {}, rows, "[moe] :b:")
    printed = capsys.readouterr().out
    assert "{recompute: [norm], note: :a:}" in printed and "[moe] :b:" in printed
    assert "[norm]" in svg("", [rows]).replace("&#160;", " ")
