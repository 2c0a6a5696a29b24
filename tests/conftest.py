"""Property tests are the same on every run and never fail for being slow; workers begin with what most of them need.

Outside data is where PLANNER_SHARED says. With --no-skips tests that skip fail, but for want of a GPU or of that name.
"""

import gc
import os
import signal
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch: two test workers on two cores, matrices small
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # a world of one rank has a thread for each core: idle ones sleep

import torch

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell's background: what tests start would not hear Ctrl-C
    signal.signal(signal.SIGINT, signal.default_int_handler)

from planner.launch import processes
from tests.examples import QUICK, THOROUGH

USUAL = settings(deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("thorough", USUAL, max_examples=THOROUGH)
settings.register_profile("quick", USUAL, max_examples=QUICK)
processes.PRELOADED_MODULES += [  # whatever launches first: ranks are forked from one process, which has these
    "planner.runtime.execute.training_loop",
    "tests.runtime.training_worlds",
    "tests.runtime.one_process",
]

UNSET = "PLANNER_SHARED is not set"
ALLOWED = ("CUDA", "GPU", "network namespaces", UNSET)  # in the reasons of tests that may skip even so


def pytest_addoption(parser):
    parser.addoption("--thorough", action="store_true", help="all examples of property tests; else a tenth of them")
    said = "tests that skip fail, but for want of a GPU or of PLANNER_SHARED"
    parser.addoption("--no-skips", action="store_true", help=said)


def pytest_configure(config):
    """Before tests are imported, which ask how many examples there are, and leave no garbage to look for."""
    settings.load_profile("thorough" if config.getoption("thorough") else "quick")
    gc.disable()


def pytest_collection_finish():
    """Half a million objects are there for good by now, and are taken out of what the collector looks through."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)  # before -m leaves any out
def pytest_collection_modifyitems(items):
    """Of a test that is marked `every(n)` each n-th case runs, and the others in the soak. Files with slow tests come
    first: a long one at the end would leave the other worker with nothing to do.
    """
    cases: Counter[tuple[Path, str]] = Counter()
    for item in items:
        if mark := item.get_closest_marker("every"):
            case = item.path, item.originalname
            if cases[case] % mark.args[0]:
                item.add_marker(pytest.mark.soak)
            cases[case] += 1
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


def pytest_runtest_setup(item):
    """Asked when a test runs: a module that asks CUDA as it is imported could start no rank on a GPU, as the process
    from which ranks are forked imports it too.
    """
    if item.get_closest_marker("gpu") and not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")


@pytest.fixture(scope="session", autouse=True)
def nothing_measured(tmp_path_factory):
    """Nothing is priced by what was measured on this machine; a test that measures says where."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "nothing"))
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    report = yield
    if report.skipped and not hasattr(report, "wasxfail") and item.config.getoption("no_skips"):
        reason = report.longrepr[2]
        if not any(word in reason for word in ALLOWED):
            report.outcome, report.longrepr = "failed", f"with --no-skips a test may not skip: {reason}"
    return report


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of outside data: published rows, tables of kernels and devices, recorded traces."""
    named = os.environ.get("PLANNER_SHARED", "")
    folder = Path(named).resolve()
    if not named:
        pytest.skip(UNSET)
    if not folder.is_dir():
        pytest.skip(f"there is no folder {folder}, which PLANNER_SHARED names")
    return folder
