"""Traces made by hand, event by event, whose replay is known."""

import gzip
import json

from planner.replay import build_graph, read_kineto_trace

PID, MAIN, BACKWARD = 100, 1, 2


class Recorder:
    """Events in microseconds, on one rank."""

    def __init__(self, rank=0, world=1):
        self.rank, self.world, self.events, self.correlation = rank, world, [], 0

    def span(self, category, name, start, lasts, thread=MAIN, pid=PID, **args):
        event = {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": thread, "ts": start, "dur": lasts}
        self.events.append({**event, "args": args})
        return self

    def op(self, name, start, lasts, thread=MAIN):
        return self.span("cpu_op", name, start, lasts, thread)

    def step(self, number, start, lasts):
        return self.span("user_annotation", f"ProfilerStep#{number}", start, lasts)

    def call(self, name, start, lasts, thread=MAIN, **args):
        self.correlation += 1
        return self.span("cuda_runtime", name, start, lasts, thread, correlation=self.correlation, **args)

    def device(self, name, stream, start, lasts, category="kernel", correlation=None, **more):
        args = {"device": 0, "stream": stream, "correlation": correlation or self.correlation, **more}
        return self.span(category, name, start, lasts, stream, pid=0, **args)

    def launch(self, name, call_at, takes, stream, *times):
        """A kernel and the call that launches it."""
        self.call("cudaLaunchKernel", call_at, takes)
        return self.device(name, stream, *times)

    def content(self):
        about = {"backend": "nccl", "rank": self.rank, "world_size": self.world}
        return {"schemaVersion": 1, "distributedInfo": about, "traceEvents": self.events}

    def write(self, folder, name="trace.json.gz"):
        path = folder / name
        data = json.dumps(self.content()).encode()
        path.write_bytes(gzip.compress(data) if name.endswith("gz") else data)
        return path

    def graph(self, folder):
        return build_graph(read_kineto_trace(self.write(folder, f"rank{self.rank}.json")))


def two_streams(scale=1):
    """A gemm of 100 on stream 7; a collective on stream 20 waits for it, and a kernel on 7 for that; then a wait."""
    r = Recorder()
    t = lambda value: value * scale  # noqa: E731
    r.step(0, t(0), t(400))
    r.op("aten::mm", t(5), t(15))
    r.launch("sgemm_nn", t(10), t(5), 7, t(20), t(100))
    r.call("cudaEventRecord", t(25), t(1))
    r.call("cudaStreamWaitEvent", t(27), t(1))
    r.launch("ncclKernel_AllReduce_RING", t(30), t(5), 20, t(121), t(50))
    r.call("cudaEventRecord", t(36), t(1))
    r.call("cudaStreamWaitEvent", t(38), t(1))
    r.launch("vectorized_elementwise_kernel", t(40), t(5), 7, t(172), t(30))
    r.call("cudaDeviceSynchronize", t(50), t(155))
    return r
