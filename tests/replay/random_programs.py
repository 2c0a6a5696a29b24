"""Random programs of one host thread and several streams, with a small simulation of their own, and their traces."""

from typing import NamedTuple

from hypothesis import strategies as st

from tests.replay.handmade_traces import Recorder

CALL, LATENCY, BACK = 5, 3, 4  # µs: a call that launches; from its end until the device can begin; from a sync
STREAMS = (7, 20, 21)


class Instruction(NamedTuple):
    what: str  # work, launch, record, wait, stream_sync, device_sync
    stream: int = 7
    lasts: int = 0
    name: str = ""
    event: int = -1


def instructions():
    stream, lasts = st.sampled_from(STREAMS), st.integers(1, 400)
    launch = st.builds(Instruction, st.just("launch"), stream, lasts, st.sampled_from(["sgemm", "relu_elementwise"]))
    others = st.builds(Instruction, st.sampled_from(["record", "stream_sync"]), stream)
    wait = st.builds(Instruction, st.just("wait"), stream, event=st.integers(0, 5))
    work = st.builds(Instruction, st.just("work"), lasts=st.integers(1, 60))
    return st.lists(st.one_of(launch, launch, launch, others, wait, work), min_size=1, max_size=40)


def run(program, factor=1):
    """Ends of operations by stream in order, and of the host; and the trace. Gemms last `factor` times as long."""
    r, host, ends, free = Recorder(), 1, {stream: [] for stream in STREAMS}, dict.fromkeys(STREAMS, 0)
    events, held = [], dict.fromkeys(STREAMS, 0)  # (stream, correlation, when it has happened); from waits
    for each in [*program, Instruction("device_sync")]:
        stream = each.stream
        if each.what == "work":
            host += each.lasts
        elif each.what == "launch":
            begin = max(host + CALL + LATENCY, free[stream], held[stream])
            lasts = each.lasts * (factor if "gemm" in each.name else 1)
            r.launch(each.name, host, CALL, stream, begin, lasts)
            free[stream] = begin + lasts
            ends[stream].append(free[stream])
            host += CALL
        elif each.what == "record":
            r.call("cudaEventRecord", host, 1)
            events.append((stream, r.correlation, free[stream]))
            host += 1
        elif each.what == "wait" and each.event < len(events):
            on, record, happened = events[each.event]
            r.call("cudaStreamWaitEvent", host, 1)
            said = {"stream": stream, "wait_on_stream": on, "wait_on_cuda_event_record_corr_id": record, "device": 0}
            r.span("cuda_sync", "Stream Wait Event", host, 0, stream, pid=0, correlation=r.correlation, **said)
            held[stream] = max(held[stream], happened)
            host += 1
        elif each.what.endswith("_sync"):
            over = max(free.values()) if each.what == "device_sync" else free[stream]
            takes = max(host, over) + BACK - host
            r.call("cudaDeviceSynchronize" if each.what == "device_sync" else "cudaStreamSynchronize", host, takes)
            if each.what == "stream_sync":
                r.span(
                    "cuda_sync",
                    "Stream Sync",
                    host,
                    takes,
                    stream,
                    pid=0,
                    correlation=r.correlation,
                    device=0,
                    stream=stream,
                )
            host += takes
    return r.step(0, 0, host), [end for stream in sorted(STREAMS) for end in ends[stream]], host
