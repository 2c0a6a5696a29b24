"""A demo that is asked to end ends, whichever of its stages it is in: with the signal's code, without the rest."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.examples import soaked
from tests.launch.test_local_network import family_of

ROOT = Path(__file__).parents[1]
RANKS = 4
CASES = [(name, stage) for name in ("documents", "multimodal") for stage in ("profile", "solve", "run")]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "stage"), soaked(CASES, [("documents", "profile")]))
def test_a_demo_ends_with_the_signal(tmp_path, name, stage):
    command = [sys.executable, "-u", "-m", "planner", "demo", name, "--folder", str(tmp_path / "demo")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "XDG_DATA_HOME": str(tmp_path)}
    process = subprocess.Popen(command, env=environment, stdout=-1, stderr=-1, text=True, start_new_session=True)
    try:
        begun = next(line for line in process.stdout if line[:1].isdigit() and line.split()[1] == stage)
        while stage == "run" and len(family_of(process.pid)) < RANKS + 2 and process.poll() is None:
            time.sleep(0.05)  # itself, what its ranks are forked from, and these
        process.send_signal(signal.SIGTERM)
        rest, errors = process.communicate()
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 128 + signal.SIGTERM, (begun, errors)
    assert "what just happened" not in rest and not any(line[:1].isdigit() for line in rest.splitlines())
