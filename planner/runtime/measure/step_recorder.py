"""Recordings of torch.profiler of the first steps of a run, a file for each rank, for replays and calibration."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from torch.profiler import ProfilerActivity, profile, schedule

from planner.errors import InputError
from planner.launch import Worker

LEFT_OUT, WARM_UP, RECORDED = 1, 1, 8  # steps, of those that the run has


@contextmanager
def recording(worker: Worker, folder: Path | None) -> Iterator[Callable[[], None]]:
    """Context of all steps; what it yields is called after each of them. Raises InputError where nothing can be
    written.
    """
    if folder is None:
        yield lambda: None
        return

    def write(recorded: profile) -> None:
        path = folder / f"rank-{worker.rank}.json.gz"
        try:
            folder.mkdir(parents=True, exist_ok=True)  # on each node
            recorded.export_chrome_trace(str(path))
        except OSError as error:
            what = f"cannot write the file: {error.strerror}"
            raise InputError(what, where=str(path), fix="name a folder with room") from error

    on_device = [ProfilerActivity.CUDA] if worker.device.type == "cuda" else []
    steps = schedule(wait=LEFT_OUT, warmup=WARM_UP, active=RECORDED, repeat=1)
    with profile(
        activities=[ProfilerActivity.CPU, *on_device], schedule=steps, on_trace_ready=write, record_shapes=True
    ) as recorder:
        yield recorder.step
