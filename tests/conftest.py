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

TOGETHER = {  # what files need that a worker has once: these go to one worker, and first, as they take long
    "syntax trees": ("test_architecture", "test_docstrings", "test_language", "files/test_bounded_read"),
    "pages": ("report/",),
    "ranks": ("launch/",),
    "transformers": ("hf/", "models/networks/", "models/checkpoints/", "models/kernels/"),
    "plans to ask about": ("why/test_joint", "why/test_why", "why/test_group_slack", "why/test_kinds"),
}

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


@pytest.hookimpl(wrapper=True)
def pytest_generate_tests(metafunc):
    """Cases of the soak alone are not even collected elsewhere: those marked `soak` beside others, and of a test
    that is marked `every(n)` all but each n-th.
    """
    yield
    if not metafunc.config.getoption("thorough"):
        usual = [call for call in metafunc._calls if not any(mark.name == "soak" for mark in call.marks)]
        mark = metafunc.definition.get_closest_marker("every")
        metafunc._calls = usual[:: mark.args[0] if mark else 1] or metafunc._calls


@pytest.hookimpl(tryfirst=True)  # before -m leaves any out
def pytest_collection_modifyitems(config, items):
    """Files with slow tests come first, and those that stay together: long ones at the end would leave the other worker
    with nothing to do. In the soak, what `every(n)` left out elsewhere is marked as of it.
    """
    cases: Counter[tuple[Path, str]] = Counter()
    for item in items if config.getoption("thorough") else ():
        mark = item.get_closest_marker("every")
        if mark and not item.get_closest_marker("soak"):
            case = item.path, item.originalname
            if cases[case] % mark.args[0]:
                item.add_marker(pytest.mark.soak)
            cases[case] += 1
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: (item.path not in slow, together(item.nodeid) == file_of(item.nodeid)))


def file_of(test: str) -> str:
    return test.partition("::")[0]


def together(test: str) -> str:
    """What stays on one worker: the files of an entry of TOGETHER, else a file."""
    file = file_of(test)
    said = (need for need, names in TOGETHER.items() if file.removeprefix("tests/").startswith(names))
    return next(said, file)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """As `--dist loadfile` does it, but for files of TOGETHER."""
    from xdist.scheduler import LoadFileScheduling

    scheduler = LoadFileScheduling(config, log)
    scheduler._split_scope = together
    return scheduler


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
