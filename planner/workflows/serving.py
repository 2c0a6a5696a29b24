"""The workflow of `planner serve`: a job and requests, the best split, and what became of a request."""

from pathlib import Path

from planner import files, pipeline
from planner.callbacks import OnProgress, silent
from planner.errors import InputError
from planner.serving import ORDERS, Asked, ServingAnswer, Wanted, launch_script
from planner.simulate.serving import NEVER, QueueOrder, Served, ServingSetup
from planner.specs.workload.requests.servegen import Window
from planner.units import first_few, parse_duration


def window(start: float | None, seconds: float | None, clients: str, seed: int, repeated: float) -> Window:
    """What is drawn of ServeGen's clients."""
    named = tuple(each.strip() for each in clients.split(",") if each.strip())
    return Window(start or 0.0, seconds or 600.0, named, seed, repeated)


def asked(
    requests: Path | None, measured: Path | None, rate: float | None, caches: tuple[int, int], drawn: Window
) -> Asked:
    """What was typed."""
    setup = ServingSetup(encoder_cache=caches[0], prefix_cache=caches[1])
    return Asked(requests, measured, rate, setup, drawn)


def serve(job: str, question: Asked, what: Wanted, on_split: OnProgress = silent) -> ServingAnswer:
    """The best split for a job's requests. Raises InputError and Infeasible."""
    return pipeline.serve(job, question, what, on_split)


def wanted(order: str, any_rate: bool, front: bool, switch_s: float | None) -> Wanted:
    """What was asked of the answer."""
    orders: tuple[QueueOrder, ...] = tuple(each for each in ORDERS if order in (each, "both"))
    return Wanted(orders, any_rate, front, switch_s)


def switch_seconds(elastic: bool, text: str) -> float | None:
    """Seconds of a move, where a policy is asked for. Raises InputError."""
    if not elastic:
        return None
    try:
        return parse_duration(text)
    except ValueError as error:
        raise InputError(str(error), where="--switch", fix="such as 0.1s or 5s") from error


def script(found: ServingAnswer) -> str:
    """The script that starts the best split. Raises InputError."""
    return launch_script(found.inputs, found.split, found.best.order)


def lanes(found: ServingAnswer) -> list[str]:
    """What each instance does, in their order."""
    return [share.text.split(" ", 1)[1] for share in found.split.shares for _ in range(share.instances)]


def request_story(found: ServingAnswer, name: str) -> list[str]:
    """Where the time of a request went, a line for each part of it. Raises InputError where there is none."""
    names = [each.id for each in found.history.requests]
    if name not in names:
        fix = files.nearest_word(name, names) or f"one of {first_few(names)}"
        raise InputError(f"no request is called `{name}`", where="--why", fix=fix)
    served = found.history.served(names.index(name))
    request, service = served.request, found.inputs.question.service
    images = f" with {len(request.images)} images of {sum(request.images):,} tokens" if request.images else ""
    lines = [f"{request.arrival_s:,.3f} s: comes, {request.text_tokens:,} tokens of text{images}"]
    lines += [f"{span:8.3f} s {what}" for span, what in parts_of(served) if span > 5e-7]
    judged = "in time" if served.ttft <= service.ttft_s else f"late: {service.ttft_s:g} s are promised"
    lines.append(f"first token {served.ttft:.3f} s after it came, {judged}")
    judged = "in time" if served.tpot <= service.tpot_s else f"late: {service.tpot_s:g} s are promised"
    lines.append(f"{request.output_tokens} tokens, {served.tpot * 1e3:.2f} ms each after the first, {judged}")
    return lines


def parts_of(served: Served) -> list[tuple[float, str]]:
    """Seconds of each part of a request's time, which add up to all of it."""
    parts, at = [], served.request.arrival_s
    apart = served.encode != NEVER and served.encode < served.prefill
    if apart:
        parts += [(served.encode - at, "waits to be encoded"), (served.encoded - served.encode, "is encoded")]
        at = served.encoded
    parts.append((served.prefill - at, "waits to be prefilled"))
    inside = 0.0 if apart or served.encode == NEVER else served.encoded - served.encode
    parts += [(inside, "is encoded, by whoever prefills it"), (served.first - served.prefill - inside, "is prefilled")]
    if served.request.output_tokens > 1:
        joined = min(served.joined, served.done)
        parts += [(joined - served.first, "waits for room where it is answered, and moves there")]
        parts += [(served.done - joined, "is answered")]
    return parts
