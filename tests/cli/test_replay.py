"""`planner replay` as a user types it."""

import json

import pytest
from typer.testing import CliRunner

from planner.cli.app import app
from planner.errors import InputError
from tests.replay.exact_jobs import Cause, Job, run, write
from tests.replay.handmade_traces import Recorder, two_streams


def call(*arguments):
    return CliRunner().invoke(app, ["replay", *map(str, arguments)])


def test_json_has_what_is_promised(tmp_path):
    found = json.loads(call(two_streams().write(tmp_path), "--json").stdout)
    assert found["steps"][0]["measured_seconds"] == pytest.approx(400e-6)
    assert found["steps"][0]["replayed_seconds"] == pytest.approx(400e-6)
    assert found["median_error"] == pytest.approx(0, abs=1e-9)
    parts = {key: value for key, value in found["breakdown"].items() if key != "kinds"}
    assert sum(parts.values()) == pytest.approx(400e-6)
    assert found["critical_path"][0]["seconds"] > 0
    assert found["whatif"] is None


@pytest.mark.parametrize(
    "options",
    [
        ["--without", "everything"],
        ["--scale", "gemm"],
        ["--scale", "gemm=fast"],
        ["--scale", "(=2"],
        ["--scale", "attention=2"],
        ["--bandwidth", "-1"],
        ["--bandwidth", "nan"],
        ["--set", "tp=2"],
    ],
)
def test_what_cannot_be_asked_is_refused(tmp_path, options):
    refused = call(two_streams().write(tmp_path), *options)
    assert isinstance(refused.exception, InputError)
    assert refused.exception.fix
    assert not refused.stdout


def test_nothing_to_change_is_refused(tmp_path):
    path = Recorder().op("aten::mm", 0, 100).write(tmp_path)
    assert isinstance(call(path, "--bandwidth", "2x").exception, InputError)


def test_a_trace_is_not_written_over(tmp_path):
    path = two_streams().write(tmp_path)
    before = path.read_bytes()
    assert isinstance(call(path, "--trace", path).exception, InputError)
    assert path.read_bytes() == before


def rank(number, gemm, begins, lasts):
    """A gemm, then a collective of two ranks."""
    r = Recorder(number, 2).step(0, 0, 600)
    r.launch("sgemm", 10, 5, 7, 20, gemm)
    r.call("cudaStreamWaitEvent", 20, 1).launch("ncclKernel_AllReduce_RING", 30, 5, 20, begins, lasts)
    return r.call("cudaDeviceSynchronize", 40, 500)


def test_a_folder_stands_for_its_traces_and_the_slow_rank_is_named_first(tmp_path):
    folder = tmp_path / "traces"
    (folder / "node-1").mkdir(parents=True)
    files = [
        rank(0, 100, 121, 250).write(folder, "rank0.pt.trace.json.gz"),
        rank(1, 300, 321, 50).write(folder / "node-1", "rank1.pt.trace.json"),
    ]
    (folder / "config.json").write_text('{"hidden_size": 8}')
    by_name, by_folder = (json.loads(call(*given, "--json").stdout) for given in (files, [folder]))
    left_out = f"{folder}: config.json is no trace of torch.profiler, and is left out"
    assert by_folder.pop("notes") == [left_out, *by_name.pop("notes")]
    assert by_folder["stragglers"] == by_name["stragglers"]
    shown = " ".join(call(folder).stdout.split())
    assert "rank 1 is slow: it makes the steps 33.3 % longer; the others waited 200 µs for it, at 1 of 1" in shown
    assert "collectives. gemm kernels (+200 µs)" in shown
    assert by_name["stragglers"][0]["cause"]["what"] == "kernels"


def test_a_folder_without_traces_and_an_output_among_traces_are_refused(tmp_path):
    refused = call(tmp_path)
    assert isinstance(refused.exception, InputError) and refused.exception.where == str(tmp_path)
    two_streams().write(tmp_path)
    refused = call(tmp_path, "--trace", tmp_path / "out.json")
    assert isinstance(refused.exception, InputError)
    assert not (tmp_path / "out.json").exists()


def jobs_before_and_after(folder):
    """Two ranks, recorded before one had slower products, and since."""
    job = Job(2, 3, 2, host=10, kernel=200, collective=60, loader=100, seed=0)
    for name, cause in (("before", None), ("after", Cause("gemm", 1, factor=1.3))):
        (folder / name).mkdir()
        write(run(job._replace(cause=cause)), folder / name)
    return folder / "before", folder / "after"


def test_what_changed_since_an_earlier_recording_adds_up(tmp_path):
    before, after = jobs_before_and_after(tmp_path)
    answer = json.loads(call(after, "--against", before, "--json").stdout)
    found, steps = answer["against"], answer["ranks"][0]["breakdown"]
    differences = [found["after"][part] - found["before"][part] for part in found["after"]]
    assert sum(differences) == pytest.approx(found["seconds"])
    assert sum(each["seconds"] for each in found["kernels"]) == pytest.approx(found["kernel_seconds"])
    assert found["seconds"] > 0 and steps
    gemm = {each["name"]: each for each in found["kernels"] if each["kind"] == "gemm"}
    assert gemm["ampere_sgemm_128x64_nt"]["seconds"] == pytest.approx(0.3 * 2 * 400e-6 / 2, rel=0.01)
    assert not json.loads(call(before, "--against", before, "--json").stdout)["against"]["seconds"]
    shown = " ".join(call(after, "--against", before).stdout.split())
    assert shown.startswith("against the earlier recording a step takes +") and "kernels: 3 changed, 0 came" in shown


def test_the_critical_path_is_drawn_as_arrows(tmp_path):
    out = tmp_path / "out.json"
    assert call(two_streams().write(tmp_path), "--trace", out).exit_code == 0
    written = json.loads(out.read_text())["traceEvents"]
    ends = {kind: [e for e in written if e["ph"] == kind] for kind in "sf"}
    assert [e["id"] for e in ends["s"]] == [e["id"] for e in ends["f"]] != []
    for arrow in (*ends["s"], *ends["f"]):  # each lies within an activity of the replayed timeline
        assert any(
            (e["pid"], e["tid"]) == (arrow["pid"], arrow["tid"]) and e["ts"] <= arrow["ts"] <= e["ts"] + e["dur"]
            for e in written
            if e["ph"] == "X"
        )


def test_a_recording_is_drawn_as_a_page(tmp_path):
    before, after = jobs_before_and_after(tmp_path)
    out = tmp_path / "page.html"
    made = CliRunner().invoke(app, ["report", str(after), "-o", str(out), "--json"])
    assert json.loads(made.stdout)["bound"] == "gpu"
    page = out.read_text()
    assert "Rank 1 is slow" in page and "gemm kernels" in page and page.count("<rect") > 10
    single = CliRunner().invoke(app, ["report", str(before / "rank0.json"), "-o", str(out), "--json"])
    assert json.loads(single.stdout)["ranks"] == 1


def test_recordings_of_two_runs_are_refused_with_code_2(tmp_path):
    for number, gap in ((0, 2000), (1, 9000)):
        r = Recorder(number, 2).step(0, 0, 90_000)
        for i in range(4):
            r.launch("ncclKernel_AllReduce_RING", 100 + i * i * gap, 5, 20, 120 + i * i * gap, 50)
        r.write(tmp_path, f"rank{number}.json")
    refused = call(tmp_path)
    assert isinstance(refused.exception, InputError)
    assert refused.exception.exit_code == 2 and "one run" in refused.exception.fix
