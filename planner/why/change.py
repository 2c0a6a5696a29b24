"""`KEY=VALUE` in a plan's own words, as a change of its problem, and what must change with it."""

from dataclasses import replace

from planner.errors import InputError
from planner.specs.base import changed
from planner.specs.inputs import Inputs
from planner.specs.job import Sync
from planner.strategies import STRATEGIES, strategy
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

    ZeRO-3's ranks meet in every micro-batch and others once a step; a strategy that cannot gives way to one that can.
    """
    said = {word.partition("=")[0].strip() for word in words}
    follows: list[str] = []
    job = inputs.job
    meets: Sync = "micro_batch" if job.layout.zero == 3 else "step"
    if job.sync != meets:
        if "sync" not in said:
            job = changed(job, sync=meets)
            follows.append(f"sync={meets}")
        elif "zero" not in said:
            zero = 3 if job.sync == "micro_batch" else 2
            job = changed(job, layout=changed(job.layout, zero=zero))
            follows.append(f"zero={zero}")
    inputs = replace(inputs, job=job)
    reasons = {name: unable(name, inputs) for name in (job.strategy, *STRATEGIES)}
    if not reasons[job.strategy]:
        return inputs, tuple(follows), ""
    able = [] if "strategy" in said else [name for name, reason in reasons.items() if not reason]
    if not able:
        return inputs, tuple(follows), "; ".join(dict.fromkeys(filter(None, reasons.values())))
    return replace(inputs, job=changed(job, strategy=able[0])), (*follows, f"strategy={able[0]}"), ""


def unable(name: str, inputs: Inputs) -> str | None:
    """Why a strategy cannot decide this; None when it can."""
    if name not in STRATEGIES:
        return f"no strategy is called `{name}`"
    return strategy(name).supports(inputs)
