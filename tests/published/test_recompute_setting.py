"""What is recomputed, in the words of several frameworks."""

import pytest

from planner.published.recompute_setting import recompute_setting
from planner.published.record_files import UnusableRecord
from tests.published.made_records import record


@pytest.mark.parametrize(
    ("text", "share", "again"),
    [
        ("", 0, set()),
        ("none", 0, set()),
        ("No AC", 0, set()),
        ("0", 0, set()),
        ("full", 1, set()),
        ("True", 1, set()),
        ("full:uniform:1", 1, set()),
        ("yes (policy in Appendix B)", 1, set()),
        ("selective", 0, {"attention"}),
        ("select", 0, {"attention"}),
        ("selective op", 0, {"norm", "mlp"}),
        ("per-op selective", 0, {"norm", "mlp"}),
        ("selective layer", 0.5, set()),
        ("selective 4", 0.25, set()),
        ("every 2nd layer", 0.5, set()),
        ("core_attn", 0, {"attention"}),
        ("norm, act", 0, {"norm", "mlp"}),
        ("norm, act, shared_expert", 0, {"norm", "mlp"}),
        ("selective: mlp + core_attn", 0, {"mlp", "attention"}),
        ("selective: layernorm moe", 0, {"norm", "moe"}),
        ("moe_act", 0, {"mlp"}),
        ("moe", 0, {"moe"}),
        ("1", 1 / 8, set()),
        ("block 3", 3 / 8, set()),
        ("full:block:16", 1, set()),
        ("50%", 0.5, set()),
    ],
)
def test_words(text, share, again):
    assert recompute_setting(record(recompute=text), "megatron", 8) == (share, again)


def test_the_settings_may_say_it():
    assert recompute_setting(record(recompute="", other_settings="tp2; recompute=full; zero1"), "megatron", 8) == (
        1,
        set(),
    )


def test_where_layers_are_selected_the_flops_count_them():
    """A second forward of all layers is a third of the model's FLOPs."""
    share, _ = recompute_setting(record(recompute="Selective AC", mfu_pct="60", hfu_pct="70"), "fsdp", 8)
    assert share == pytest.approx(0.5)
    with pytest.raises(UnusableRecord):
        recompute_setting(record(recompute="Selective AC"), "fsdp", 8)


def test_other_words_are_named():
    with pytest.raises(UnusableRecord, match="recompute not understood"):
        recompute_setting(record(recompute="sometimes"), "megatron", 8)
