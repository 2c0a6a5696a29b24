"""What serves a model as tables and JSON: the best split beside the best of every other family, in each order."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from planner.cli.views.plain_table import table
from planner.serving import ElasticAnswer, Found, ServingAnswer, Split
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
        "split": split_answer(answer.split),
        "families": [found_answer(each) for each in answer.found],
        "front": [found_answer(each) for each in answer.front],
        "elastic": elastic_answer(answer.elastic) if answer.elastic else None,
        "in_time": history.met(question.service) / len(question.requests),
        "ttft_s": quantiles(answer, "ttft"),
        "tpot_s": quantiles(answer, "tpot"),
        "images": {"hits": history.hits[0], "misses": history.misses[0]},
        "prefix_blocks": {"hits": history.hits[1], "misses": history.misses[1]},
        "prices": {str(tp): each.source for tp, each in question.prices.items()},
    }


def found_answer(found: Found) -> dict[str, Any]:
    names = ("family", "order", "goodput", "bound", "tried", "passed")
    return {name: getattr(found, name) for name in names} | {"split": split_answer(found.split)}


def split_answer(split: Split | None) -> dict[str, Any] | None:
    if split is None:
        return None
    limits = {name: getattr(split, name) for name in ("gpus", "answers", "tokens", "chunked")}
    return {"instances": [each._asdict() for each in split.shares], **limits}


def elastic_answer(elastic: ElasticAnswer) -> dict[str, Any]:
    """What a policy has, and each of its decisions with all that it weighed."""
    decisions = [
        {"at_s": at, **each._asdict(), "terms": dict(each.terms)}
        for at, actions in elastic.history.decisions
        for each in actions
    ]
    return {
        "goodput": elastic.goodput,
        "still": elastic.still,
        "of_still": elastic.goodput / elastic.still,
        "moves": elastic.history.moves,
        "moves_a_minute": elastic.moves_a_minute,
        "start": split_answer(elastic.start),
        "decisions": decisions,
    }


def quantiles(answer: ServingAnswer, name: str) -> dict[str, float]:
    """Seconds that half, and nine of ten, of the requests do not exceed."""
    history = answer.history
    rising = sorted(getattr(history.served(number), name) for number in range(len(history.requests)))
    return {"p50": rising[len(rising) // 2], "p90": rising[int(0.9 * (len(rising) - 1))]}


def serving_tables(answer: ServingAnswer, written: Mapping[str, Path | None]) -> Iterator[RenderableType]:
    """The best split, the best of each family, and how long requests wait."""
    question, best = answer.inputs.question, answer.best
    service = question.service
    promised = f"{service.percentile:g} % within {service.ttft_s:g} s, and {service.tpot_s * 1e3:g} ms a token"
    yield Text.assemble((f"{answer.split.text}", "bold"), f"; {order_text(best)}")
    above = f", at most {percent(answer.bound / best.goodput - 1.0)} less than any split sustains"
    yield Text(f"goodput {rate_text(best.goodput)} simulated, {promised}{above}")
    yield table(*HEADS, rows=[found_cells(answer, each, answer.gpus) for each in answer.found])
    if answer.elastic:
        elastic = answer.elastic
        share, moves = percent(elastic.goodput / elastic.still), plural(elastic.history.moves, "move")
        told = f"{share} of the best split's on the same requests; {moves}, {elastic.moves_a_minute:.2g} a minute"
        yield Text(f"elastic from {elastic.start.text}: goodput {rate_text(elastic.goodput)}, {told}")
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
    for what, path in written.items():
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
