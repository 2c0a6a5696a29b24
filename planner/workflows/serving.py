"""What `planner serve` tells of an answer: what became of a request, and what each instance does."""

from planner import files
from planner.errors import InputError
from planner.serving import ServingAnswer, actions_file
from planner.simulate.serving import NEVER, Served, ServingHistory
from planner.specs.serving_actions import ServingActionsFile
from planner.units import first_few, plural


def decisions(found: ServingAnswer) -> ServingActionsFile:
    """What a policy decided, which was asked for, as a file."""
    assert found.elastic, "a static split decides nothing"
    return actions_file(found.inputs, found.elastic)


def shown(found: ServingAnswer) -> ServingHistory:
    """The run that pages and stories are of: of the policy, where one was asked for."""
    return found.elastic.history if found.elastic else found.history


def lanes(found: ServingAnswer) -> list[str]:
    """What each instance does, in their order; of a policy, at first."""
    split = found.elastic.start if found.elastic else found.split
    return [share.text.split(" ", 1)[1] for share in split.shares for _ in range(share.instances)]


def request_story(found: ServingAnswer, name: str) -> list[str]:
    """Where the time of a request went, a line for each part of it. Raises InputError where there is none."""
    history = shown(found)
    names = [each.id for each in history.requests]
    if name not in names:
        fix = files.nearest_word(name, names) or f"one of {first_few(names)}"
        raise InputError(f"no request is called `{name}`", where="--why", fix=fix)
    served = history.served(names.index(name))
    request, service = served.request, found.inputs.question.service
    images = f" with {plural(len(request.images), 'image')} of {sum(request.images):,} tokens" if request.images else ""
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
