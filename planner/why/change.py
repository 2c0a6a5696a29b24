"""`KEY=VALUE` in a plan's own words, as a change of its problem, and what must change with it."""

from dataclasses import replace

from planner.errors import InputError
from planner.specs.base import changed
from planner.specs.inputs import Inputs
from planner.specs.parallelism import Sync
from planner.strategies import STRATEGIES, is_static, strategy
from planner.why.keys import APPLY, fix_item

FIRST = ("ranks", "nodes", "tokens_per_rank")  # applied before what they allow


def with_changes(inputs: Inputs, words: tuple[str, ...]) -> Inputs:
    """The problem with every `KEY=VALUE` applied. Raises InputError saying what is allowed."""
    said: set[str] = set()
    for word in sorted(words, key=lambda word: not word.startswith(FIRST)):
        key, equals, value = (part.strip() for part in word.partition("="))
        if not equals or not value:
            raise InputError(f"`{word}` is no change", where=word, fix="write it as KEY=VALUE, like zero=2")
        if key in said:
            raise InputError(f"`{key}` is said twice", where=word, fix="say it once")
        said.add(key)
        apply = fix_item if key.startswith("items.") else APPLY.get(key)
        if apply is None:
            allowed = ", ".join(["items.N.degree", *APPLY])
            raise InputError(f"a plan has no `{key}` that could be changed", where=word, fix=f"one of {allowed}")
        inputs = apply(inputs, key, value)
    return inputs


def with_what_follows(inputs: Inputs, words: tuple[str, ...]) -> tuple[Inputs, tuple[str, ...], str]:
    """What the changes bring with them, said in the same words; and why no strategy can decide the result, if so.

    A strategy that was asked for brings what lets ranks meet the way that it needs; a strategy that was not gives way
    to one that can.
    """
    said = {word.partition("=")[0].strip() for word in words}
    inputs, follows = with_one_meeting(inputs, said)
    reasons = {name: unable(name, inputs) for name in (inputs.job.strategy, *STRATEGIES)}
    if not reasons[inputs.job.strategy]:
        return left_open(inputs, said), follows, ""
    if "strategy" not in said:
        able = [name for name, reason in reasons.items() if not reason and not is_static(name)]
        if able:
            return replace(inputs, job=changed(inputs.job, strategy=able[0])), (*follows, f"strategy={able[0]}"), ""
    elif not said & {"zero", "sync"}:
        other = with_other_meeting(inputs)
        if not unable(other.job.strategy, other):
            return other, (f"zero={other.job.layout.zero}", f"sync={other.job.sync}"), ""
    return inputs, follows, "; ".join(dict.fromkeys(filter(None, reasons.values())))


def with_one_meeting(inputs: Inputs, said: set[str]) -> tuple[Inputs, tuple[str, ...]]:
    """ZeRO-3's ranks meet in every micro-batch, others once a step: of the two, the one that was not said follows."""
    job = inputs.job
    meets: Sync = "micro_batch" if job.zero == 3 else "step"
    if job.sync == meets or {"sync", "zero"} <= said:
        return inputs, ()
    if "sync" not in said:
        return replace(inputs, job=changed(job, sync=meets)), (f"sync={meets}",)
    zero = 3 if job.sync == "micro_batch" else 2
    return replace(inputs, job=changed(job, layout=changed(job.layout, zero=zero))), (f"zero={zero}",)


def left_open(inputs: Inputs, said: set[str]) -> Inputs:
    """A search of layouts decides ZeRO stage and recompute anew, unless they were asked for or fixed by the job."""
    if not is_static(inputs.job.strategy):
        return inputs
    unsaid = {key: None for key in ("zero", "recompute") if key not in said}
    return replace(inputs, job=changed(inputs.job, layout=changed(inputs.job.layout, **unsaid)))


def with_other_meeting(inputs: Inputs) -> Inputs:
    """Once a step where ranks meet in every micro-batch, and the other way round."""
    job = inputs.job
    zero, sync = (2, "step") if job.sync == "micro_batch" else (3, "micro_batch")
    return replace(inputs, job=changed(job, layout=changed(job.layout, zero=zero), sync=sync))


def unable(name: str, inputs: Inputs) -> str | None:
    """Why a strategy cannot decide this; None when it can."""
    if name not in STRATEGIES:
        return f"no strategy is called `{name}`"
    reason = strategy(name).supports(inputs)
    return reason.partition(" | ")[0] if reason else None
