"""Random jobs of 1 to 16 ranks that are run exactly, their traces, and what is true of them.

Each rank is a generator that yields when its part of a collective is ready and is sent when all leave it; so the job
runs collective by collective. What delays a rank, what binds the step, and the clocks are chosen here and not inferred:
the truth of a cause is the same job run without it, the truth of the verdict the same job with one resource slower.
"""

import json
import random
from typing import NamedTuple

from tests.replay.handmade_traces import Recorder

CALL, LATENCY, BACK = 3.0, 4.0, 3.0  # µs: a call; from its end until the device can begin; the return from a wait
COMPUTE, COLLECTIVES = 7, 20  # streams
LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
CAUSES = ("loader", "gc", "span", "host", "pause", "gemm", "elementwise", "clock", "copy", "stall")
BOUNDS = ("gpu", "host", "communication", "loader")


class Cause(NamedTuple):
    """What slows one rank: µs a step more, or a factor of its durations."""

    what: str
    rank: int
    more: float = 0.0
    factor: float = 1.0


class Job(NamedTuple):
    """A job; durations in µs of one operator on the host, one kernel, one collective and one batch of data."""

    ranks: int
    steps: int
    layers: int
    host: float
    kernel: float
    collective: float
    loader: float
    seed: int
    cause: Cause | None = None
    synchronises: bool = True
    jitter: float = 0.0
    offsets: tuple[float, ...] = ()  # µs, of each rank's clock
    drifts: tuple[float, ...] = ()
    lost: float = 0.0  # share of launches that the trace lacks
    slower: tuple[str, float] = ("", 1.0)  # a resource of all ranks, and how many times as long it takes


class Ran(NamedTuple):
    """What a job did: traces, seconds of each step on each rank, end of the capture; times in µs."""

    traces: list[Recorder]
    steps: list[list[float]]
    end: float

    @property
    def step(self):
        """The median step in µs; a step lasts as long as on its slowest rank. The first begins before any work."""
        longest = sorted(max(each) for each in zip(*self.steps, strict=True))
        n = len(longest)
        return (longest[(n - 1) // 2] + longest[n // 2]) / 2


def run(job):
    """Run all ranks collective by collective."""
    ranks = [Rank(job, number) for number in range(job.ranks)]
    programs = [rank.program() for rank in ranks]
    draw = random.Random(f"{job.seed} leave")
    ready = [next(each) for each in programs]
    while ready[0] is not None:
        leave = max(ready) + job.collective * job.factor("communication")
        ready = [each.send(leave + draw.uniform(0, 2)) for each in programs]
    return Ran([rank.recorder() for rank in ranks], [rank.steps for rank in ranks], max(r.now() for r in ranks))


class Rank:
    """One rank: its host, its two streams, and what it records in true time."""

    def __init__(self, job, number):
        self.job, self.number = job, number
        self.draw = random.Random(f"{job.seed} {number}")
        self.host, self.free = 10.0, {COMPUTE: 0.0, COLLECTIVES: 0.0}
        self.events, self.correlation, self.steps = [], 0, []
        self.mine = job.cause if job.cause and job.cause.rank == number else Cause("", number)

    def now(self):
        """When all work that was launched is over, and the host here."""
        return max(self.host, *self.free.values())

    def lasts(self, base, resource, kind=""):
        jitter = 1 + self.job.jitter * self.draw.uniform(-1, 1)
        slow = self.mine.what in (kind, resource) or (
            self.mine.what == "clock" and resource == "gpu" and kind != "copy"
        )
        return base * jitter * self.job.factor(resource) * (self.mine.factor if slow else 1.0)

    def span(self, category, name, start, end, thread, **args):
        self.events.append((category, name, start, end, thread, args))

    def annotate(self, name, takes, category="user_annotation"):
        self.span(category, name, self.host, self.host + takes, 1)
        self.host += takes

    def launch(self, call, name, stream, category, after=0.0):
        """The call, and when its work can begin; the work is recorded by `device`."""
        self.correlation += 1
        args = {"correlation": self.correlation}
        if self.draw.random() >= self.job.lost:
            self.span("cuda_runtime", call, self.host, self.host + CALL, 1, **args)
        self.host += CALL
        return max(self.host + LATENCY, self.free[stream] + 1, after)

    def device(self, category, name, stream, begin, end, **args):
        self.free[stream] = end
        self.span(category, name, begin, end, stream, device=0, stream=stream, correlation=self.correlation, **args)

    def operator(self, name, kernel, base, kind, stall=0.0):
        """An operator of the host that launches one kernel after half its own time."""
        begin, own = self.host, self.lasts(self.job.host, "host") / 2
        self.host += own
        copy = kind == "copy"
        start = self.launch("cudaMemcpyAsync" if copy else "cudaLaunchKernel", kernel, COMPUTE, kind) + stall
        end = start + self.lasts(base, "gpu", kind)
        self.device("gpu_memcpy" if copy else "kernel", kernel, COMPUTE, start, end)
        self.host += own
        self.span("cpu_op", name, begin, self.host, 1)

    def event(self, name):
        self.correlation += 1
        self.span("cuda_runtime", name, self.host, self.host + 1, 1, correlation=self.correlation)
        self.host += 1

    def all_reduce(self):
        begin = self.host
        self.event("cudaEventRecord")
        self.event("cudaStreamWaitEvent")
        produced = self.free[COMPUTE]
        start = self.launch(
            "cudaLaunchKernelExC", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", COLLECTIVES, "", produced + 2
        )
        leave = yield start
        args = {
            "Collective name": "allreduce",
            "In msg nelems": 1 << 20,
            "dtype": "Float",
            "Group size": self.job.ranks,
        }
        name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
        self.device("kernel", name, COLLECTIVES, start, leave, **args, **{"Process Group Name": "0"})
        self.span("cpu_op", "c10d::allreduce_", begin, self.host, 1)

    def program(self):
        job = self.job
        for step in range(job.steps):
            begin, before = self.host, self.now()
            yield from self.step()
            self.span("user_annotation", f"ProfilerStep#{step + 5}", begin, self.host, 1)
            self.steps.append(self.now() - before)
        self.event("cudaDeviceSynchronize")
        yield None

    def step(self):
        job, mine = self.job, self.mine
        k = job.kernel
        self.annotate(LOADER, self.lasts(job.loader, "loader") + (mine.more if mine.what == "loader" else 0.0))
        self.operator("aten::copy_", "Memcpy HtoD (Pinned -> Device)", k / 2, "copy")
        self.host += 3 + (mine.more if mine.what == "pause" else 0.0)
        if mine.what == "gc":
            self.annotate("gc.collect", mine.more)
        for layer in range(job.layers):
            self.operator("aten::linear", "ampere_sgemm_128x64_tn", k, "gemm")
            if mine.what == "span" and layer == 0:
                self.annotate("## tokenize ##", mine.more)
            self.operator("aten::gelu", "vectorized_elementwise_kernel", k / 3, "elementwise")
            stall = mine.more if mine.what == "stall" and layer == 0 else 0.0
            self.operator("aten::layer_norm", "vectorized_layer_norm_kernel", k / 4, "normalisation", stall)
        for _ in range(job.layers):
            self.operator("aten::mm", "ampere_sgemm_128x64_nt", 2 * k, "gemm")
            self.operator("aten::gelu_backward", "vectorized_elementwise_kernel", k / 3, "elementwise")
            if job.ranks > 1:
                yield from self.all_reduce()
        self.event("cudaStreamWaitEvent")
        self.free[COMPUTE] = max(self.free.values())
        self.operator("Optimizer.step#AdamW.step", "multi_tensor_apply_kernel_adam", k / 2, "optimizer")
        if job.synchronises:
            takes = max(self.host, self.free[COMPUTE]) + BACK - self.host
            self.correlation += 1
            self.span(
                "cuda_runtime", "cudaStreamSynchronize", self.host, self.host + takes, 1, correlation=self.correlation
            )
            self.host += takes

    def recorder(self):
        """The trace on this rank's own clock."""
        job, r = self.job, Recorder(self.number, self.job.ranks)
        offset = job.offsets[self.number] if job.offsets else 0.0
        rate = 1 + (job.drifts[self.number] if job.drifts else 0.0)
        for category, name, start, end, thread, args in self.events:
            pid = 0 if "stream" in args else 100
            begin = round(offset + start * rate, 3)
            r.span(category, name, begin, round(offset + end * rate - begin, 3), thread, pid, **args)
        return r


def factor(job, resource):
    return job.slower[1] if job.slower[0] == resource else 1.0


Job.factor = factor


class Truth(NamedTuple):
    """What is true of a job that was run."""

    step: float  # µs
    bound: str  # the resource of which 2 % more time lengthens the job most
    margin: float  # by how much more than the next, of its length
    straggler: int | None  # the rank without whose cause the job is shorter
    delay: float  # by which share


def truth(job):
    """Run the job as it is, without its cause, and with each resource 2 % slower."""
    ran = run(job)
    longer = sorted(((run(job._replace(slower=(each, 1.02))).end - ran.end) / ran.end / 0.02, each) for each in BOUNDS)
    delay = 1 - run(job._replace(cause=None)).end / ran.end if job.cause else 0.0
    straggler = job.cause.rank if job.cause and job.ranks > 1 and delay >= 0.015 else None
    return ran, Truth(ran.step, longer[-1][1], longer[-1][0] - longer[-2][0], straggler, delay)


REGIMES = {  # µs: one operator on the host, one kernel, one collective, one batch
    "gpu": ((6, 12), (150, 400), (20, 200), (20, 300)),
    "host": ((40, 120), (5, 25), (10, 40), (20, 300)),
    "communication": ((6, 12), (20, 80), (800, 2000), (20, 200)),
    "loader": ((6, 20), (20, 60), (10, 60), (4000, 9000)),
}


def draw_job(seed):
    """A random job, of which what delays a rank does so clearly or not at all."""
    draw = random.Random(seed)
    while True:
        job = one_job(draw, seed)
        ran, true = truth(job)
        if true.margin >= 0.1 and (true.straggler is not None or true.delay < 0.004):
            return job, ran, true


def one_job(draw, seed):
    host, kernel, collective, loader = (draw.uniform(*span) for span in REGIMES[draw.choice(BOUNDS)])
    ranks, layers = draw.choice((1, 2, 2, 3, 4, 8, 16)), draw.randint(2, 5)
    job = Job(ranks, draw.randint(3, 6), layers, host, kernel, collective if ranks > 1 else 0.0, loader, seed)
    job = job._replace(
        synchronises=draw.random() < 0.5,
        jitter=draw.choice((0.0, 0.01, 0.03)),
        offsets=tuple(draw.choice((0.0, 3e3, 5e6, 4e9)) * draw.uniform(-1, 1) + 1e10 for _ in range(ranks)),
        drifts=tuple(draw.uniform(-5e-5, 5e-5) for _ in range(ranks)),
        lost=draw.choice((0.0, 0.0, 0.1)),
    )
    if ranks == 1 or draw.random() < 0.3:
        return job
    what = draw.choice(CAUSES)
    by_factor = {
        "gemm": (1.08, 1.5),
        "elementwise": (1.5, 3),
        "clock": (1.06, 1.4),
        "host": (1.2, 2.5),
        "copy": (5, 30),
    }
    work = run(job._replace(steps=2)).end / 2
    factor = draw.uniform(*by_factor[what]) if what in by_factor else 1.0
    return job._replace(cause=Cause(what, draw.randrange(ranks), work * draw.uniform(0.05, 0.5), factor))


def write(ran, folder):
    """The traces of a job as files, one per rank."""
    paths = []
    for each in ran.traces:
        paths.append(folder / f"rank{each.rank}.json")
        paths[-1].write_text(json.dumps(each.content()))
    return paths
