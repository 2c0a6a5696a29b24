"""Features of frozen encoders are kept where that is quicker and there is room, and only where they stay the same."""

from dataclasses import replace

import pytest

from planner import pipeline
from planner.costs.pricing import pricing_of
from planner.errors import InputError
from planner.plan.feature_storage import capacity_bytes, feature_facts
from planner.plan.legal.plan_laws import require_legal, violations
from planner.plan.plan_file import Layout
from planner.plan.tasks.expand import expand
from planner.scoring import score
from planner.scoring.work_at_peak import module_flops
from planner.specs.base import Ranks, with_fields
from planner.specs.inputs import JobOptions, load_job
from planner.specs.parallelism import Parallelism
from planner.strategies import modality_layout
from planner.strategies.modality.kept_features import kept_sources, kept_variants
from planner.strategies.modality.module_space import ModuleOption
from planner.strategies.static.layouts_plan import solve_together
from planner.units import GIB
from tests.modality_jobs import CLUSTER, seeing_job

ROWS, IMAGES = (600,) * 4, "patches,row\n" + "".join(f"{1600 + 40 * n},{n}\n" for n in range(4))
FROZEN = "trained: {vit: none}\n"
AGAIN = "  repeated: {epochs: 5, samples: 1000}\n" + FROZEN
PLAIN = "{host_gib: 8, disk_gib: 8, disk_gb_per_s: 2}"
WIDE = 64 * 4  # bytes of one output in float32, of four patches


def job(folder, fixed="", more=AGAIN, storage=PLAIN):
    seeing_job(folder, 2, fixed, ROWS, IMAGES, more)
    (folder / "cluster.yaml").write_text(CLUSTER.replace("RANKS", "2") + f"storage: {storage}\n")
    return load_job(str(folder / "job.yaml"), JobOptions(effort=1))


def source_of(folder, more=AGAIN, storage=PLAIN):
    plan = modality_layout.plan(job(folder, more=more, storage=storage), None)
    assert not violations(plan)
    return plan.layouts["vit"].features, plan


@pytest.mark.soak
def test_it_is_a_matter_of_seconds_and_of_bytes(tmp_path):
    """Memory is quicker than a disk, a disk than computing; but not where it is slow, and not without room."""
    found, plan = source_of(tmp_path)
    assert found == "host"
    told = [each for each in reversed(plan.alternatives) if "vit" in each.layouts]
    others = {each.layouts["vit"].features or "computed": each for each in told}
    assert plan.outcome.value < others["disk"].value and "features from disk" in others["disk"].because
    assert others["computed"].value is None and others["computed"].too_slow
    full = "{host_gib: 0.0001, disk_gib: 8, disk_gb_per_s: 2}"
    found, plan = source_of(tmp_path, storage=full)
    assert found == "disk"
    refused = [each.because for each in plan.alternatives if "memory of its hosts may keep 0.0 GiB" in each.because]
    assert refused and plan.outcome.bound <= plan.outcome.value
    assert source_of(tmp_path, storage="{host_gib: 0, disk_gib: 0}")[0] == "computed"
    assert source_of(tmp_path, storage="{host_gib: 0, disk_gib: 8, disk_gb_per_s: 0.0001}")[0] == "computed"


@pytest.mark.parametrize(
    "more", [FROZEN, AGAIN.replace("5", "1"), AGAIN.replace("1000", "1000, augmented: [vit]"), AGAIN[: -len(FROZEN)]]
)
def test_nothing_is_kept_that_changes_or_is_not_seen_again(tmp_path, more):
    assert kept_sources(job(tmp_path, more=more), "vit") == ()
    assert kept_sources(job(tmp_path), "vit") == ("host", "disk")
    assert kept_sources(job(tmp_path, "vit: {features: disk}"), "vit") == ("disk",)


def fixed_plan(folder, features, epochs=5, **fields):
    said = ", ".join(f"{key}: {value}" for key, value in {"features": features, "zero": 0, **fields}.items())
    return solve_together(job(folder, f"llm: {{}}, vit: {{{said}}}", AGAIN.replace("5", str(epochs))))


@pytest.mark.parametrize("epochs", [2, 5, 100])
@pytest.mark.every(3)
def test_a_forward_takes_its_share_of_computing_and_the_bytes_over_the_rate(tmp_path, epochs):
    computed, host, disk = (fixed_plan(tmp_path, each, epochs) for each in ("computed", "host", "disk"))
    price = pricing_of(computed).price
    in_memory = computed.uses.devices["cpu"].memory_gb_per_s
    for plan, gb_per_s in ((host, in_memory), (disk, 2 / 2)):  # two ranks share the disk
        kept = pricing_of(plan)
        for task in (task for task in expand(plan) if task.module == "vit" and task.phase == "F"):
            reading = task.tokens / 4 * WIDE / (gb_per_s * 1e9)
            assert kept.price(task).value == pytest.approx(price(task).value / epochs + reading, rel=1e-9)
        assert score(plan).step_seconds < score(computed).step_seconds
        assert module_flops(plan, [0])["vit"] < module_flops(computed, [0])["vit"]


@pytest.mark.slow
def test_more_epochs_are_never_slower_and_bytes_are_those_of_all_samples(tmp_path):
    seconds = [score(fixed_plan(tmp_path, "host", epochs)).step_seconds for epochs in (2, 3, 10)]
    assert seconds == sorted(seconds, reverse=True)
    plan = fixed_plan(tmp_path, "host")
    patches = sum(plan.uses.items["vit"].values())
    assert feature_facts(plan, "vit").data_bytes("float32") == patches / 4 * WIDE / len(ROWS) * 1000
    assert capacity_bytes(plan.uses.cluster, plan.uses.devices, "host", range(2)) == 8 * GIB


@pytest.mark.parametrize(
    ("fixed", "more", "told", "place"),
    [
        ("vit: {features: host}", AGAIN[: -len(FROZEN)], "`vit` is trained", "fix.layouts.vit.features"),
        ("vit: {features: host}", FROZEN, "does not say that samples are seen again", "fix.layouts.vit.features"),
        ("vit: {features: disk}", AGAIN.replace("5", "1"), "one epoch sees each sample once", "vit.features"),
        ("vit: {features: host, tp: 2}", AGAIN, "and tp is 2", "fix.layouts.vit.features"),
        ("vit: {features: host}", AGAIN.replace("1000", "1000000"), "may keep 8.0 GiB", "fix.layouts.vit.features"),
        ("llm: {features: host}", AGAIN, "`llm` feeds no module", "fix.layouts.llm.features"),
    ],
)
def test_what_cannot_be_is_a_located_error(tmp_path, fixed, more, told, place):
    with pytest.raises(InputError) as raised:
        modality_layout.plan(job(tmp_path, fixed, more), None)
    assert told in raised.value.message and place in raised.value.where and raised.value.fix


def test_inputs_that_change_are_those_of_encoders(tmp_path):
    with pytest.raises(InputError, match="`llm` is no encoder") as raised:
        job(tmp_path, more=AGAIN.replace("1000", "1000, augmented: [llm]"))
    assert "workload.repeated.augmented" in raised.value.where


@pytest.mark.parametrize(("field", "value"), [("zero", 1), ("features", "disk")])
def test_an_edited_plan_that_cannot_be_is_illegal(tmp_path, field, value):
    plan = fixed_plan(tmp_path, "host")
    storage = with_fields(plan.uses.cluster.storage, disk_gib=0.0)
    uses = with_fields(plan.uses, cluster=with_fields(plan.uses.cluster, storage=storage))
    edited = with_fields(plan.layouts["vit"], **{field: value})
    uses = with_fields(uses, fix=with_fields(uses.fix, layouts={}))
    with pytest.raises(InputError) as raised:
        require_legal(with_fields(plan, uses=uses, layouts={**plan.layouts, "vit": edited}), "made up")
    assert "layouts.vit.features" in raised.value.where


def test_each_encoder_keeps_where_the_job_says(tmp_path):
    """Also where one is fixed to hosts and the other to disks."""
    option = {name: ModuleOption(Layout(ranks=Ranks((0, 1)), dp=2, zero=1), 1.0, 0.0) for name in ("vit", "ear")}
    inputs = job(tmp_path, "vit: {features: disk}")
    model, batch = inputs.model, inputs.batches[0]
    modules = {**model.modules, "ear": model.modules["vit"]}
    edges = (*model.edges, with_fields(model.edges[0], source="ear"))
    fix = {**inputs.job.fix.layouts, "ear": Parallelism(features="host")}
    two = replace(
        inputs,
        model=with_fields(model, modules=modules, edges=edges),
        batches=(replace(batch, streams={**batch.streams, "ear": batch.streams["vit"]}),),
        job=with_fields(inputs.job, fix=with_fields(inputs.job.fix, layouts=fix)),
    )
    found = [*kept_variants(two, option, {"vit": "all", "ear": "apart"})]
    assert found
    for chosen, called in found:
        assert {name: each.layout.features for name, each in chosen.items()} == {"vit": "disk", "ear": "host"}
        assert called == {"vit": "all, features from disk", "ear": "apart, features from host"}
        assert all((each.layout.dp, each.layout.zero, each.seconds < 1.0) == (2, 0, True) for each in chosen.values())


@pytest.mark.slow
def test_the_quickest_place_is_chosen(tmp_path):
    found, plan = source_of(tmp_path)
    assert found == "host" and plan.outcome.bound <= plan.outcome.value


@pytest.mark.slow
def test_a_person_can_ask_why_not(tmp_path):
    plan = solve_together(job(tmp_path, "llm: {}, vit: {}"))
    answer = pipeline.why_not(plan, ("vit.features=host",))
    assert answer.after and answer.after.value == pytest.approx(score(fixed_plan(tmp_path, "host")).step_seconds)
    assert answer.seconds < 0 and answer.infeasible is None
    never = pipeline.why_not(plan, ("vit.features=disk", "vit.tp=2"))
    assert never.infeasible and "tp is 2" in never.infeasible.message
