"""What no step can be is refused: as the user's, with its place, where their files say so, else as a bug."""

from math import inf, nan

import pytest

from planner import files, pipeline
from planner.costs import pricing_of
from planner.errors import Impossible, InputError
from planner.scoring import answer_about, require_possible
from planner.scoring.possible import require_links, require_peak
from planner.scoring.work_at_peak import link_seconds, seconds_at_peak
from planner.specs.library import shipped_folder
from tests.static_jobs import small_cluster, static_job

FITS = "{{source: measured, spread: 0.1, layer: {{forward: {{ms_per_token: {0}}}, backward: {{ms_per_token: {0}}}}}}}"


def job_on(folder, device="h100-80gb", more="", fixed="tp: 1, micro_batch: 1"):
    """A job of one static layout on a device, with these further lines."""
    job = static_job(folder, "llama-3-8b", small_cluster(folder, device, 8), [2048] * 64, fixed)
    with open(job, "a") as text:
        text.write(more)
    return job


def changed_device(folder, *changes):
    """The path of the shipped H100 with something replaced."""
    text = (shipped_folder() / "devices/h100-80gb.yaml").read_text()
    for old, new in (("name: h100-80gb", "name: mine"), *changes):
        assert old in text
        text = text.replace(old, new, 1)
    (folder / "mine.yaml").write_text(text)
    return str(folder / "mine.yaml")


@pytest.mark.parametrize("ask", [pipeline.predict, pipeline.fits, pipeline.solve])
@pytest.mark.every(4)
def test_a_measurement_quicker_than_the_device_is_told_where_it_stands(tmp_path, ask):
    fits = f"modules:\n  llama-3-8b/llm: {FITS.format(1e-7)}\nrates:\n"
    device = changed_device(tmp_path, ("rates:\n", fits))
    with pytest.raises(InputError, match="measured too quick") as told:
        ask(job_on(tmp_path, more=f"profile: {device}\n"))
    assert told.value.exit_code == 2 and told.value.fix
    assert told.value.where.startswith(f"{device}:") and told.value.where.endswith("(modules.llama-3-8b/llm)")


def test_rates_above_the_peak_are_told_where_they_stand(tmp_path):
    device = changed_device(tmp_path, ("{bf16: 0.9648", "{bf16: 96.48"))
    with pytest.raises(InputError, match=r"its rates sustain 80\.16 of that") as told:
        pipeline.predict(job_on(tmp_path, device, "software: any\n"))
    assert told.value.where.startswith(f"{device}:") and told.value.where.endswith("(rates)")


@pytest.mark.parametrize("figure", [nan, inf, -1e-6, 1 + 1e-6])
def test_a_figure_that_cannot_be_is_a_bug_that_names_the_file(figure):
    require_possible({"share": 1 + 1e-12, "none": -1e-12}, "plan", 1.0)
    with (
        pytest.raises(Impossible, match=r"impossible figure: share is .*; this is a bug") as told,
        answer_about("a.yaml"),
    ):
        require_possible({"share": figure}, "plan", 1.0)
    assert (told.value.exit_code, told.value.where, told.value.fix) == (70, "a.yaml", "report it with this file")


def test_a_step_takes_its_flops_at_the_peak_and_its_bytes_at_that_of_links(tmp_path):
    """As it does, with room: less than either is a bug, and the MFU is the share of the one in the step."""
    predicted = pipeline.predict(job_on(tmp_path, fixed="tp: 8, micro_batch: 1"))
    plan, (found,) = predicted.plan, predicted.scores
    least, on_links = seconds_at_peak(plan, [0])["llm"], link_seconds(plan, found.tasks)
    assert 0 < least < found.step_seconds and 0 < on_links < found.step_seconds
    require_peak(plan, 0, pricing_of(plan), least, least)
    require_links(plan, on_links, on_links)
    for name, short in (("`llm`", (least * 0.999, least)), ("the mean rank", (least, least * 0.999))):
        with pytest.raises(Impossible, match=f"the FLOPs of {name} take"):
            require_peak(plan, 0, pricing_of(plan), *short)
    with pytest.raises(Impossible, match="at links' peak"):
        require_links(plan, on_links * 0.999, on_links)


@pytest.mark.parametrize("fixed", ["tp: 8", "tp: 8, overlap: [tp]", "cp: 8", "cp: 8, ulysses: 8"])
def test_no_network_is_too_slow_for_its_exchanges_to_take_time(tmp_path, fixed):
    """On links a thousand times as slow a step takes as long as they do, however much of that runs beside compute."""
    job = job_on(tmp_path, more="software: any\n", fixed=f"{fixed}, micro_batch: 1")
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text(cluster.read_text().replace("gb_per_s: 450", "gb_per_s: 0.45"))
    predicted = pipeline.predict(job)
    (found,) = predicted.scores
    on_links = link_seconds(predicted.plan, found.tasks)
    assert found.timeline.breakdown().compute < on_links <= found.step_seconds


@pytest.mark.slow
def test_a_plan_file_with_such_prices_is_refused_at_them(tmp_path):
    path = tmp_path / "plan.yaml"
    files.write(path, pipeline.solve(job_on(tmp_path, more="software: any\n")).plan)
    text = path.read_text().replace("sustained: {bf16: 0.9648}", "sustained: {bf16: 96.48}")
    path.write_text(text)
    with pytest.raises(InputError, match="its rates sustain") as told:
        pipeline.read_plan(str(path))
    assert "uses.prices.rates.h100-80gb" in told.value.where
