"""A timeline as a Chrome trace, which ui.perfetto.dev opens: a process per rank, a thread per stream.

Simulated and measured timelines become the same format, so that they can be laid over each other; times are in
microseconds from the start of the step.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Literal

from planner.plan.task import STREAMS, Task
from planner.simulate.memory import Memory
from planner.simulate.timeline import Event, Timeline
from planner.units import US, gib

Record = dict[str, Any]
Threads = dict[tuple[int, str], int]  # (rank, name of the thread) → its number


def to_trace(
    timeline: Timeline, tasks: Sequence[Task], label: Literal["measured", "simulated"], memory: Memory | None = None
) -> Record:
    """One JSON object; `label` says what the times are."""
    by_id = {task.id: task for task in tasks}
    threads = numbered_threads(timeline, by_id)
    records = [*names(timeline, threads)]
    for event in timeline.events:
        records += slices(event, by_id[event.id], threads)
    records += arrows(timeline, by_id, threads)
    records += counters(memory) if memory else []
    return {
        "traceEvents": records,
        "displayTimeUnit": "ms",
        "otherData": {"planner": label, "step_seconds": timeline.step_seconds},
    }


def thread(task: Task) -> str:
    """Streams are threads; groups that share a device run beside each other, so each has its own."""
    return task.stream if task.share == 1 else f"{task.stream} {task.group}"


def numbered_threads(timeline: Timeline, by_id: dict[str, Task]) -> Threads:
    """Streams in their usual order, then by name."""
    streams = [*dict.fromkeys(STREAMS.values())]
    found = {(rank, thread(by_id[event.id])) for event in timeline.events for rank in event.ranks}
    ordered = sorted(found, key=lambda key: (key[0], streams.index(key[1].partition(" ")[0]), key[1]))
    first = {rank: number for number, (rank, _) in reversed([*enumerate(ordered)])}
    return {(rank, name): number - first[rank] for number, (rank, name) in enumerate(ordered)}


def names(timeline: Timeline, threads: Threads) -> Iterator[Record]:
    for rank in range(timeline.ranks):
        yield metadata("process_name", rank, {"name": f"rank {rank}"})
        yield metadata("process_sort_index", rank, {"sort_index": rank})
    for (rank, name), number in threads.items():
        yield {**metadata("thread_name", rank, {"name": name}), "tid": number}
        yield {**metadata("thread_sort_index", rank, {"sort_index": number}), "tid": number}


def metadata(name: str, rank: int, args: Record) -> Record:
    return {"ph": "M", "name": name, "pid": rank, "args": args}


def slices(event: Event, task: Task, threads: Threads) -> Iterator[Record]:
    """The event on each of its ranks."""
    start = microseconds(event.start)
    args = {"group": task.group, "items": len(task.items), "tokens": task.tokens, "source": event.source}
    if event.comm:
        args["comm_ms"] = round(event.comm * 1e3, 6)
    for rank in event.ranks:
        yield {
            "ph": "X",
            "name": event.id,
            "cat": event.phase,
            "pid": rank,
            "tid": threads[rank, thread(task)],
            "ts": start,
            "dur": round(microseconds(event.end) - start, 3),
            "args": args,
        }


def arrows(timeline: Timeline, by_id: dict[str, Task], threads: Threads) -> Iterator[Record]:
    """From every send to what it was sent for: each receiving rank gets one arrow."""
    sent: dict[str, list[tuple[Event, int]]] = {}
    for event in timeline.events:
        if event.phase == "send":
            sent.setdefault(event.id, []).extend((event, rank) for rank in event.ranks)
    number = 0
    for event in timeline.events:
        task = by_id[event.id]
        sources = [pair for task_id in task.after for pair in sent.get(task_id, ())] if event.phase == "recv" else []
        for rank in event.ranks if sources else ():
            send, sender = sources[task.ranks.index(rank) % len(sources)]
            number += 1
            common = {"name": "transfer", "cat": "transfer", "id": number}
            tail = threads[sender, thread(by_id[send.id])]
            yield {**common, "ph": "s", "pid": sender, "tid": tail, "ts": microseconds(send.start)}
            head = threads[rank, thread(task)]
            yield {**common, "ph": "f", "bp": "e", "pid": rank, "tid": head, "ts": microseconds(event.start)}


def counters(memory: Memory) -> Iterator[Record]:
    for rank, curve in enumerate(memory.curves):
        for seconds, held in curve:
            yield {"ph": "C", "name": "memory", "pid": rank, "ts": microseconds(seconds), "args": {"GiB": gib(held)}}


def microseconds(seconds: float) -> float:
    """To the nanosecond, so that what follows something never begins before its end."""
    return round(seconds / US, 3)
