"""The records of one side of a trace: slices, arrows from sends to receives, memory."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from planner.plan.task import STREAMS, Task
from planner.simulate.coloured import Colours
from planner.simulate.memory import Memory
from planner.simulate.shown import Shown
from planner.simulate.timeline import Event, Timeline
from planner.units import US, gib

Label = Literal["measured", "simulated"]
Record = dict[str, Any]
Threads = dict[tuple[int, str], int]  # (rank, name of the thread) → its number


@dataclass(frozen=True, slots=True)
class Traced:
    """One step to draw."""

    timeline: Timeline
    tasks: Sequence[Task]
    label: Label  # what its times are
    memory: Memory | None = None
    step: int = 0  # of the plan
    run_step: int | None = None  # of a run


@dataclass(frozen=True, slots=True)
class Side:
    """Where the steps of one label are drawn."""

    first: int  # process of rank 0
    threads: Threads
    shown: Shown
    colours: Colours

    def names(self, suffix: str, order: int, sides: int) -> Iterator[Record]:
        """Of processes and threads; the sides of a rank lie beside each other."""
        for rank, alike in self.shown.stands_for.items():
            who = f"rank {rank}{suffix}" + (f" (as ranks {alike})" if len(alike) > 1 else "")
            yield self.metadata("process_name", rank, {"name": who})
            yield self.metadata("process_sort_index", rank, {"sort_index": rank * sides + order})
        for (rank, name), number in self.threads.items():
            yield {**self.metadata("thread_name", rank, {"name": name}), "tid": number}
            yield {**self.metadata("thread_sort_index", rank, {"sort_index": number}), "tid": number}

    def metadata(self, name: str, rank: int, args: Record) -> Record:
        return {"ph": "M", "name": name, "pid": self.first + rank, "args": args}

    def step(self, traced: Traced, start: float, number: int, arrows_before: int) -> Iterator[Record]:
        """One step that begins at `start` microseconds, the trace's `number`-th."""
        by_id = {task.id: task for task in traced.tasks}
        drawn = self.shown.sources(traced.timeline)
        for event in traced.timeline.events:
            ranks = [rank for source in event.ranks for rank in drawn.get(source, ())]
            yield from self.slices(event, by_id[event.id], ranks, start, number)
        yield from self.arrows(traced.timeline, by_id, start, arrows_before)
        yield from self.counters(traced.memory, start) if traced.memory else ()

    def slices(self, event: Event, task: Task, ranks: list[int], start: float, number: int) -> Iterator[Record]:
        """The event on each of these ranks."""
        begun, ended = microseconds(event.start), microseconds(event.end)
        args = described(event, task) | ({"step": number} if number else {})
        for rank in ranks:
            yield {
                "ph": "X",
                "name": self.colours.name(event.id, task.group),
                "cat": event.phase,
                "cname": self.colours.colour(task.group),
                "pid": self.first + rank,
                "tid": self.threads[rank, thread(task)],
                "ts": round(start + begun, 3),
                "dur": round(ended - begun, 3),
                "args": args,
            }

    def arrows(self, timeline: Timeline, by_id: dict[str, Task], start: float, before: int) -> Iterator[Record]:
        """From every send to what it was sent for: each receiving rank gets one arrow."""
        sent: dict[str, list[tuple[Event, int]]] = {}
        for event in timeline.events:
            if event.phase == "send":
                sent.setdefault(event.id, []).extend((event, rank) for rank in event.ranks)
        drawn = self.shown.sources(timeline)
        number = before
        for event in timeline.events:
            task = by_id[event.id]
            awaited = task.after if event.phase == "recv" else ()
            sources = [pair for task_id in awaited for pair in sent.get(task_id, ())]
            receivers = [(source, rank) for source in event.ranks if sources for rank in drawn.get(source, ())]
            for source, rank in receivers:
                send, sender = sources[task.ranks.index(source) % len(sources)]
                sender = self.shown.representative.get(sender, -1)
                if (sender, thread(by_id[send.id])) in self.threads:
                    number += 1
                    tail = self.threads[sender, thread(by_id[send.id])]
                    yield self.end("s", number, sender, tail, start + microseconds(send.start))
                    head = self.threads[rank, thread(task)]
                    yield {**self.end("f", number, rank, head, start + microseconds(event.start)), "bp": "e"}

    def end(self, which: str, number: int, rank: int, tid: int, at: float) -> Record:
        place = {"pid": self.first + rank, "tid": tid, "ts": round(at, 3)}
        return {"ph": which, "name": "transfer", "cat": "transfer", "id": number, **place}

    def counters(self, memory: Memory, start: float) -> Iterator[Record]:
        for rank in self.shown.stands_for:
            for seconds, held in memory.curves[rank]:
                at = round(start + microseconds(seconds), 3)
                yield {"ph": "C", "name": "memory", "pid": self.first + rank, "ts": at, "args": {"GiB": gib(held)}}


def described(event: Event, task: Task) -> Record:
    """What a slice says about its task; what is as usual is left out."""
    args: Record = {
        "task": event.id,
        "module": event.module,
        "group": task.group,
        "items": len(task.items),
        "tokens": task.tokens,
        "source": event.source,
    }
    if event.comm:
        args["comm_ms"] = round(event.comm * 1e3, 6)
    if event.spread:
        args["spread"] = event.spread
    if event.cause:
        args["cause"] = event.cause
    return args


def thread(task: Task) -> str:
    """Streams are threads; groups that share a device run beside each other, so each has its own."""
    return task.stream if task.share == 1 else f"{task.stream} {task.group}"


def numbered_threads(steps: Iterable[Traced], shown: Shown) -> Threads:
    """Streams in their usual order, then by name."""
    streams = [*dict.fromkeys(STREAMS.values())]
    found = set()
    for traced in steps:
        by_id = {task.id: task for task in traced.tasks}
        drawn = shown.sources(traced.timeline)
        for event in traced.timeline.events:
            name = thread(by_id[event.id])
            found |= {(rank, name) for source in event.ranks for rank in drawn.get(source, ())}
    ordered = sorted(found, key=lambda key: (key[0], streams.index(key[1].partition(" ")[0]), key[1]))
    first = {rank: number for number, (rank, _) in reversed([*enumerate(ordered)])}
    return {(rank, name): number - first[rank] for number, (rank, name) in enumerate(ordered)}


def microseconds(seconds: float) -> float:
    """To the nanosecond, so that what follows something never begins before its end."""
    return round(seconds / US, 3)
