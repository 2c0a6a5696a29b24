"""What serves a model as tables and JSON: the best split beside the best of every other family, in each order."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from planner.cli.views.plain_table import table
from planner.serving import Found, ServingAnswer
from planner.units import percent, plural

HEADS = ("", "order", ">goodput", ">bound", ">per $1", "split")


def serving_answer(answer: ServingAnswer) -> dict[str, Any]:
    question, history = answer.inputs.question, answer.history
    return {
        "goodput": answer.best.goodput,
        "bound": answer.bound,
        "rate": question.rate,
        "requests": len(question.requests),
        "gpus": answer.gpus,
        "usd_per_hour": answer.usd(answer.gpus),
        "order": answer.best.order,
        "split": split_answer(answer.best),
        "families": [found_answer(each) for each in answer.found],
        "front": [found_answer(each) for each in answer.front],
        "elastic": elastic_answer(answer) if answer.elastic else None,
        "in_time": history.met(question.service) / len(question.requests),
        "ttft_s": quantiles(answer, "ttft"),
        "tpot_s": quantiles(answer, "tpot"),
        "images": {"hits": history.hits[0], "misses": history.misses[0]},
        "prefix_blocks": {"hits": history.hits[1], "misses": history.misses[1]},
        "prices": {str(tp): each.source for tp, each in question.prices.items()},
    }


def found_answer(found: Found) -> dict[str, Any]:
    return {
        "family": found.family,
        "order": found.order,
        "goodput": found.goodput,
        "bound": found.bound,
        "tried": found.tried,
        "passed": found.passed,
        "split": split_answer(found),
    }


def split_answer(found: Found) -> dict[str, Any] | None:
    split = found.split
    if split is None:
        return None
    return {
        "instances": [{"stages": each.stages, "instances": each.instances, "tp": each.tp} for each in split.shares],
        "gpus": split.gpus,
        "answers": split.answers,
        "tokens": split.tokens,
        "chunked": split.chunked,
    }


def elastic_answer(answer: ServingAnswer) -> dict[str, Any]:
    """What a policy has, and each of its decisions with all that it weighed."""
    elastic = answer.elastic
    assert elastic
    decisions = [
        {"at_s": at, **{name: value for name, value in each._asdict().items() if name != "terms"}, **dict(each.terms)}
        for at, actions in elastic.history.decisions
        for each in actions
    ]
    return {
        "goodput": elastic.goodput,
        "of_best": elastic.goodput / answer.best.goodput,
        "moves": elastic.moves,
        "moves_a_minute": elastic.moves_a_minute,
        "start": [{"stages": each.stages, "instances": each.instances, "tp": each.tp} for each in elastic.start.shares],
        "decisions": decisions,
    }


def quantiles(answer: ServingAnswer, name: str) -> dict[str, float]:
    """Seconds that half, and nine of ten, of the requests do not exceed."""
    history = answer.history
    rising = sorted(getattr(history.served(number), name) for number in range(len(history.requests)))
    return {"p50": rising[len(rising) // 2], "p90": rising[int(0.9 * (len(rising) - 1))]}


def serving_tables(answer: ServingAnswer, launch: Path | None, html: Path | None) -> Iterator[RenderableType]:
    """The best split, the best of each family, and how long requests wait."""
    question, best = answer.inputs.question, answer.best
    service = question.service
    promised = f"{service.percentile:g} % within {service.ttft_s:g} s, and {service.tpot_s * 1e3:g} ms a token"
    yield Text.assemble((f"{answer.split.text}", "bold"), f"; {order_text(best)}")
    above = f", at most {percent(answer.bound / best.goodput - 1.0)} less than any split sustains"
    yield Text(f"goodput {rate_text(best.goodput)} simulated, {promised}{above}")
    yield table(*HEADS, rows=[found_cells(answer, each, answer.gpus) for each in answer.found])
    if answer.elastic:
        share = percent(answer.elastic.goodput / best.goodput)
        moves = f"{plural(answer.elastic.moves, 'move')}, {answer.elastic.moves_a_minute:.2g} a minute"
        yield Text(f"elastic: goodput {rate_text(answer.elastic.goodput)}, {share} of the best split's; {moves}")
    if answer.front:
        yield Text("\nwith fewer GPUs", style="dim")
        named = [(each, each.split.gpus) for each in answer.front if each.split]
        rows = [(plural(gpus, "GPU"), *found_cells(answer, each, gpus)[1:]) for each, gpus in named]
        yield table(*HEADS, rows=rows)
    first, each = quantiles(answer, "ttft"), quantiles(answer, "tpot")
    at = min(question.rate, best.goodput)
    wait = f"first token {first['p50']:.3f} s, p90 {first['p90']:.3f} s"
    step = f"each further {each['p50'] * 1e3:.1f} ms, p90 {each['p90'] * 1e3:.1f} ms"
    yield Text(f"at {rate_text(at)} of {plural(len(question.requests), 'request')}: {wait}; {step}")
    (hits, blocks), (misses, absent) = answer.history.hits, answer.history.misses
    if question.setup.encoder_cache and hits + misses:
        yield Text(f"{percent(hits / (hits + misses))} of the images had their features kept")
    if question.setup.prefix_cache and blocks + absent:
        yield Text(f"{percent(blocks / (blocks + absent))} of the blocks of prompts were kept")
    yield Text("; ".join(sorted({f"prices: {each.source}" for each in question.prices.values()})), style="dim")
    for what, path in (("launch script", launch), ("page", html)):
        if path:
            yield Text(f"{what} written to {path}", style="dim")


def order_text(found: Found) -> str:
    return "first come, first served" if found.order == "fifo" else "shortest work first, with ageing"


def found_cells(answer: ServingAnswer, found: Found, gpus: int) -> tuple[str, ...]:
    """The cells of a family's best."""
    if found.split is None:
        return found.family, found.order, "none", rate_text(found.bound), "", "none is in time"
    usd = answer.usd(gpus)
    per_dollar = f"{found.goodput * 3600.0 / usd:,.0f}" if usd else ""
    return found.family, found.order, rate_text(found.goodput), rate_text(found.bound), per_dollar, found.split.text


def rate_text(rate: float) -> str:
    return f"{rate:.3g}/s"
