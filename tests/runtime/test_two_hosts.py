"""Two hosts on one machine: network namespaces with a wire between them, and torchrun on each."""

import json
import os
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from planner.files import write
from planner.runtime.checkpoint.checkpoint_index import read_index
from tests.runtime.training_worlds import spread

ROOT = Path(__file__).parents[2]
PLAN = spread(2, dp=2, zero=1, dtype="float64", rows=[[(0,), (1,)]] * 2)
ADDRESSES = {"a": "10.77.0.1", "b": "10.77.0.2"}
NAME = f"planner-{os.getpid()}-"
END_S, POLL_S = 300.0, 0.05
LOST_AFTER, STEPS = 4, 10


def ip(*words):
    return subprocess.run(["ip", *words], capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def hosts():
    """Two hosts, by name: an address each, and a wire."""
    with ExitStack() as ends:
        try:
            for name in ADDRESSES:
                space = NAME + name
                ip("netns", "add", space)
                ends.callback(ip, "netns", "del", space)
                ip("-n", space, "link", "set", "lo", "up")
                if name == "b":
                    ip("link", "add", "wa", "netns", NAME + "a", "type", "veth", "peer", "name", "wb", "netns", space)
            for name, address in ADDRESSES.items():
                ip("-n", NAME + name, "addr", "add", f"{address}/24", "dev", f"w{name}")
                ip("-n", NAME + name, "link", "set", f"w{name}", "up")
        except (OSError, subprocess.CalledProcessError) as error:
            said = getattr(error, "stderr", None) or error
            pytest.skip(f"network namespaces cannot be made here: {said}")
        yield ADDRESSES


def kill_all_on(name):
    """As if its power were cut: no process is left."""
    for process in ip("netns", "pids", NAME + name).split():
        subprocess.run(["kill", "-9", process], check=False)


@contextmanager
def agent(name, folder, *options):
    """torchrun on a host, as docs/running.md has it; nothing is left on the host behind the block."""
    words = [
        "--nnodes=2", "--nproc-per-node=1", "--max-restarts=3", "--rdzv-backend=c10d", "--rdzv-id=job",
        f"--rdzv-endpoint={ADDRESSES['a']}:29400", f"--local-addr={ADDRESSES[name]}",
        f"--rdzv-conf=is_host={int(name == 'a')}", f"--log-dir={folder / 'logs' / name}", "--tee=2",
        "-m", "planner.runtime", str(folder / "plan.yaml"), *options,
    ]  # fmt: skip
    environment = {"GLOO_SOCKET_IFNAME": f"w{name}", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
                   "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}  # fmt: skip
    with (folder / f"{name}.out").open("w") as out, (folder / f"{name}.err").open("w") as err:
        process = subprocess.Popen(
            ["ip", "netns", "exec", NAME + name, sys.executable, "-m", "torch.distributed.run", *words],
            env={**os.environ, **environment}, stdout=out, stderr=err,
        )  # fmt: skip
        try:
            yield process
        finally:
            kill_all_on(name)
            process.wait()


@pytest.mark.slow
def test_two_hosts_train_as_one_process(hosts, tmp_path):
    write(tmp_path / "plan.yaml", PLAN)
    with agent("a", tmp_path, "--steps=2", "--verify") as first, agent("b", tmp_path, "--steps=2", "--verify") as other:
        assert (first.wait(END_S), other.wait(END_S)) == (0, 0), (tmp_path / "a.err").read_text()
    assert json.loads((tmp_path / "a.out").read_text().splitlines()[-1])["verify"]["grad_rel_err"] <= 1e-12
    for name in hosts:
        assert [*(tmp_path / "logs" / name).rglob("stderr.log")]


@pytest.mark.soak
def test_a_host_that_is_lost_and_replaced_goes_on_from_the_checkpoint(hosts, tmp_path):
    """Its processes are killed and its wire is cut, so that nobody is told; the one that takes its place joins, and all
    restart from the checkpoint. Losses are those of a run of which no host was lost.
    """
    write(tmp_path / "plan.yaml", PLAN)

    def options(name):
        saves = [f"--save={tmp_path / name}", f"--resume={tmp_path / name}", "--save-every=2"]
        return [f"--steps={STEPS}", f"--metrics={tmp_path / name}.jsonl", *saves]

    def losses(name):
        file = tmp_path / f"{name}.jsonl"
        lines = map(json.loads, file.read_text().splitlines()) if file.exists() else ()
        return {line["step"]: line["loss"] for line in lines}  # of steps that were trained twice the last

    with agent("a", tmp_path, *options("whole")) as first, agent("b", tmp_path, *options("whole")):
        assert first.wait(END_S) == 0
    with agent("a", tmp_path, *options("lost")) as first:
        with agent("b", tmp_path, *options("lost")):
            while len(losses("lost")) < LOST_AFTER and first.poll() is None:
                time.sleep(POLL_S)
            ip("-n", NAME + "b", "link", "set", "wb", "down")
        ip("-n", NAME + "b", "link", "set", "wb", "up")
        with agent("b", tmp_path, *options("lost")) as other:
            assert (first.wait(END_S), other.wait(END_S)) == (0, 0), (tmp_path / "a.err").read_text()
    assert losses("lost") == losses("whole") and len(losses("lost")) == STEPS == read_index(tmp_path / "lost").steps
