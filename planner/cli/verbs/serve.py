"""`planner serve`: how GPUs are shared among the stages of a model that is served."""

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from planner.cli.options import Json, job_names, optional_duration, written
from planner.errors import InputError


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
    start_up: Annotated[
        str, typer.Option(help="What instances take to start, beside loading weights, with another tp.")
    ] = "10s",
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
    html: Annotated[Path | None, written(help="Write a page, instances over time, to this file.")] = None,
    output: Annotated[
        Path | None, written("-o", "--output", help="Write the decisions of --elastic to this file.")
    ] = None,
    launch: Annotated[Path | None, written(help="Write a script that starts the instances to this file.")] = None,
    json: Json = False,
) -> None:
    """Share a cluster among encoding, prefill and decode, so that most requests are answered in time.

    Times are simulated. Exit code 3: requests come quicker than any split serves them in time; the message says how
    many GPUs would do.
    """
    from planner import files, pipeline
    from planner.cli import progress, render
    from planner.cli.views import serving_tables as views
    from planner.report import serving_page
    from planner.serving import ORDERS, Asked, launch_script
    from planner.simulate.serving import ServingSetup
    from planner.specs.workload.requests.servegen import Window
    from planner.workflows import serving

    def span(text: str, option: str) -> float:
        return optional_duration(text, option) or 0.0

    clients = tuple(each.strip() for each in client.split(",") if each.strip())
    drawn = Window(span(start, "--from"), span(seconds, "--seconds"), clients, seed, repeated)
    setup = ServingSetup(
        encoder_cache=encoder_cache,
        prefix_cache=prefix_cache,
        switch_s=span(switch, "--switch"),
        start_s=span(start_up, "--start-up"),
    )
    orders = tuple(each for each in ORDERS if order.value in (each, "both"))
    asked = Asked(requests, measured, rate, setup, drawn, orders, any_rate, front, elastic)
    if output and not elastic:
        raise InputError("a static split decides nothing", where="-o", fix="--elastic")
    with progress.progress_bar("serving", "splits") as on_split:
        found = pipeline.serve(job, asked, on_split)
    if output:
        files.write(output, serving.decisions(found))
    told = serving.request_story(found, why) if why else []
    if launch:
        files.write_text(launch, launch_script(found.inputs, found.split, found.best.order))
    if html:
        files.write_text(html, serving_page(serving.shown(found), found.inputs.job.name, serving.lanes(found)).html())
    if why:
        render.emit(json, {"request": why, "story": told}, "\n".join(told))
        raise typer.Exit
    render.emit(
        json,
        views.serving_answer(found),
        *views.serving_tables(found, {"launch script": launch, "page": html, "decisions": output}),
    )
