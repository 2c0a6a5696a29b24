"""`planner serve`: how GPUs are shared among the stages of a model that is served."""

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from planner.cli.options import Json, job_names, optional_duration


class Order(str, Enum):
    """Orders of queues that can be typed."""

    both = "both"
    fifo = "fifo"
    shortest = "shortest"


def serve(
    job: Annotated[str, typer.Argument(help="A job with a service level, or its file.", autocompletion=job_names)],
    requests: Annotated[
        Path | None,
        typer.Option(
            help="Requests, as CSV or JSON lines; or a trace of Azure, Mooncake, ServeGen or vLLM's benchmark."
        ),
    ] = None,
    order: Annotated[Order, typer.Option(help="Which queue order instances have.")] = Order.both,
    rate: Annotated[
        float | None, typer.Option(help="Requests a second, in place of the file's.", min=1e-6, max=1e9)
    ] = None,
    any_rate: Annotated[
        bool, typer.Option("--any-rate", help="Answer also where requests come quicker than any split serves them.")
    ] = False,
    front: Annotated[
        bool, typer.Option("--front", help="The best of fewer GPUs too: goodput against dollars.")
    ] = False,
    elastic: Annotated[
        bool, typer.Option("--elastic", help="A policy too that gives instances other stages as requests come.")
    ] = False,
    switch: Annotated[str, typer.Option(help="What an instance takes to take on another stage.")] = "0.1s",
    measured: Annotated[
        Path | None, typer.Option(help="A CSV of stage, batch, tokens, seconds, to which prices are fitted.")
    ] = None,
    encoder_cache: Annotated[
        int, typer.Option(help="Tokens of features of images that are kept for the same images.", min=0, max=10**12)
    ] = 0,
    prefix_cache: Annotated[
        int,
        typer.Option(help="Tokens of keys and values that are kept for prompts that begin alike.", min=0, max=10**12),
    ] = 0,
    start: Annotated[str, typer.Option("--from", help="Of ServeGen's clients: from this time of their day on.")] = "0",
    seconds: Annotated[str, typer.Option(help="Of ServeGen's clients: so long.")] = "600",
    client: Annotated[str, typer.Option(help="Of ServeGen's clients: these, such as 0,2; all, where left out.")] = "",
    repeated: Annotated[
        float, typer.Option(help="Of ServeGen's images: the share that a client sends again.", min=0, max=1)
    ] = 0.0,
    seed: Annotated[int, typer.Option(help="Of what is drawn from ServeGen.")] = 0,
    why: Annotated[str, typer.Option(help="Where the time of this request went.")] = "",
    html: Annotated[Path | None, typer.Option(help="Write a page, instances over time, to this file.")] = None,
    launch: Annotated[Path | None, typer.Option(help="Write a script that starts the instances to this file.")] = None,
    json: Json = False,
) -> None:
    """Share a cluster among encoding, prefill and decode, so that most requests are answered in time.

    Times are simulated. Exit code 3: requests come quicker than any split serves them in time; the message says how
    many GPUs would do.
    """
    from planner import files
    from planner.cli import progress, render
    from planner.cli.views import serving_tables as views
    from planner.report import serving_page
    from planner.workflows import serving

    times = optional_duration(start, "--from"), optional_duration(seconds, "--seconds")
    drawn = serving.window(*times, client, seed, repeated)
    asked = serving.asked(requests, measured, rate, (encoder_cache, prefix_cache), drawn)
    with progress.progress_bar("serving", "splits") as on_split:
        wanted = serving.wanted(order.value, any_rate, front, serving.switch_seconds(elastic, switch))
        found = serving.serve(job, asked, wanted, on_split)
    told = serving.request_story(found, why) if why else []
    if launch:
        files.write_text(launch, serving.script(found))
    if html:
        files.write_text(html, serving_page(found.history, found.inputs.job.name, serving.lanes(found)).html())
    if why:
        render.emit(json, {"request": why, "story": told}, "\n".join(told))
        raise typer.Exit
    render.emit(json, views.serving_answer(found), *views.serving_tables(found, launch, html))
