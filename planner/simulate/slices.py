"""Records of a Chrome trace for one side of a comparison: slices, arrows from sends to receives, memory counters."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from planner.plan.task import STREAMS, Task
from planner.simulate.coloured import Colours
from planner.simulate.drawn import Drawn
from planner.simulate.memory import Memory
from planner.simulate.timeline import Event, Timeline
from planner.units import US, gib

Label = Literal["measured", "simulated"]
Record = dict[str, Any]
Threads = dict[tuple[int, str], int]  # (rank, name of the thread) → thread number


@dataclass(frozen=True, slots=True)
class Traced:
    """One step to write into a trace."""

    timeline: Timeline
    tasks: Sequence[Task]
    label: Label  # whether its times are measured or simulated
    memory: Memory | None = None
    step: int = 0  # number of the step in the plan
    run_step: int | None = None  # number of the step in the run


@dataclass(frozen=True, slots=True)
class Side:
    """Writes the steps of one label, measured or simulated, as trace records."""

    first: int  # process number of rank 0
    threads: Threads
    drawn: Drawn
    colours: Colours

    def names(self, suffix: str, order: int, sides: int) -> Iterator[Record]:
        """Name and sort processes and threads; the two sides of a rank are adjacent."""
        for rank, alike in self.drawn.stands_for.items():
            who = f"rank {rank}{suffix}" + (f" (as ranks {alike})" if len(alike) > 1 else "")
            yield self.metadata("process_name", rank, {"name": who})
            yield self.metadata("process_sort_index", rank, {"sort_index": rank * sides + order})
        for (rank, name), number in self.threads.items():
            yield {**self.metadata("thread_name", rank, {"name": name}), "tid": number}
            yield {**self.metadata("thread_sort_index", rank, {"sort_index": number}), "tid": number}

    def metadata(self, name: str, rank: int, args: Record) -> Record:
        return {"ph": "M", "name": name, "pid": self.first + rank, "args": args}

    def step(self, traced: Traced, start: float, number: int, arrows_before: int) -> Iterator[Record]:
        """Records of one step that begins at `start` microseconds and is the trace's `number`-th."""
        by_id = {task.id: task for task in traced.tasks}
        for event in traced.timeline.events:
            yield from self.slices(event, by_id[event.id], self.drawn.of(event.ranks), start, number)
        yield from self.arrows(traced.timeline, by_id, start, arrows_before)
        yield from self.counters(traced.memory, start) if traced.memory else ()

    def slices(self, event: Event, task: Task, ranks: list[int], start: float, number: int) -> Iterator[Record]:
        """One slice for each of these ranks."""
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
        """One arrow for each receiving rank, from the send that it receives."""
        sent = {(event.id, rank): event for event in timeline.events if event.phase == "send" for rank in event.ranks}
        number = before
        for event in timeline.events:
            task = by_id[event.id]
            sends = [by_id[awaited] for awaited in task.after if event.phase == "recv" and awaited in by_id]
            sources = [(send, rank) for send in sends if send.phase == "send" for rank in send.ranks]
            for rank in self.drawn.of(event.ranks) if sources else ():
                send, sender = sources[task.ranks.index(rank) % len(sources)]
                tail = self.drawn.representative.get(sender, -1), thread(send)
                if tail in self.threads and (send.id, sender) in sent:
                    number += 1
                    begun = start + microseconds(sent[send.id, sender].start)
                    yield self.end("s", number, tail[0], self.threads[tail], begun)
                    head = self.threads[rank, thread(task)]
                    yield {**self.end("f", number, rank, head, start + microseconds(event.start)), "bp": "e"}

    def end(self, which: str, number: int, rank: int, tid: int, at: float) -> Record:
        place = {"pid": self.first + rank, "tid": tid, "ts": round(at, 3)}
        return {"ph": which, "name": "transfer", "cat": "transfer", "id": number, **place}

    def counters(self, memory: Memory, start: float) -> Iterator[Record]:
        for rank in self.drawn.stands_for:
            for seconds, held in memory.curves[rank]:
                at = round(start + microseconds(seconds), 3)
                yield {"ph": "C", "name": "memory", "pid": self.first + rank, "ts": at, "args": {"GiB": gib(held)}}


def described(event: Event, task: Task) -> Record:
    """The `args` of a slice; fields at their default are left out."""
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
    """Each stream is a thread; groups that share a device run concurrently, so each has its own compute thread."""
    return task.stream if task.share == 1 or task.stream != "compute" else f"{task.stream} {task.group}"


def numbered_threads(steps: Iterable[Traced], drawn: Drawn) -> Threads:
    """Number the threads of each drawn rank: streams in their usual order, then by name."""
    streams = [*dict.fromkeys(STREAMS.values())]
    found = set()
    for traced in steps:
        by_id = {task.id: task for task in traced.tasks}
        for event in traced.timeline.events:
            name = thread(by_id[event.id])
            found |= {(rank, name) for rank in drawn.of(event.ranks)}
    ordered = sorted(found, key=lambda key: (key[0], streams.index(key[1].partition(" ")[0]), key[1]))
    first = {rank: number for number, (rank, _) in reversed([*enumerate(ordered)])}
    return {(rank, name): number - first[rank] for number, (rank, name) in enumerate(ordered)}


def microseconds(seconds: float) -> float:
    """Seconds in microseconds, rounded to the nanosecond so that no slice starts before its predecessor ends."""
    return round(seconds / US, 3)
