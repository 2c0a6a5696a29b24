"""Outputs of encoders stand one after the other at the head of the items that read them."""

from collections import defaultdict
from random import Random

import pytest

from planner.plan.legal.plan_laws import violations
from planner.plan.plan_file import Edge, Group, Layout, Step
from planner.plan.tokens.encoder_outputs import FedSpan, fed_spans, fed_tokens
from planner.specs.base import Ranks, with_fields
from planner.specs.layers import Audio
from tests.plans import decoder, encoder_plan, plan_of, uses, vit

EAR = Audio(layers=1, hidden=16, heads=4, ffn=16, mels=4, pool=2, out=32)
WIDE = with_fields(EAR, hidden=32)  # as wide as what it reads
INTO_LLM, CHAIN = ("vit>llm", "ear>llm"), ("vit>ear", "ear>llm")


def plan_with(items, feeds, specs=None, edges=INTO_LLM, by=()):
    """`by`: edges over which cross attention reads."""
    specs = {"llm": decoder(), "vit": with_fields(vit(), merge=2), "ear": EAR, **(specs or {})}
    ranks = Ranks((0,))
    layouts = {name: Layout(ranks=ranks, dp=1) for name in specs}
    row = {name: {"g": tuple(of_module)} for name, of_module in items.items()}
    between = tuple(
        Edge(source=source, target=target, by="cross_attention" if f"{source}>{target}" in by else "tokens")
        for source, target in (name.split(">") for name in edges)
    )
    return plan_of(1, uses(1, specs, items, feeds), layouts, {"g": Group(ranks=ranks)}, Step(
        sync="step", micro_batches=(row,)), between)  # fmt: skip


ITEMS = {"llm": {7: 12, 8: 5}, "vit": {3: 8, 1: 16, 2: 4}, "ear": {0: 6, 4: 2}}
FEEDS = {"vit": {3: 7, 1: 7, 2: 8}, "ear": {0: 7, 4: 8}}


def test_by_edge_then_by_number_without_gaps():
    assert fed_spans(plan_with(ITEMS, FEEDS)) == {
        ("vit", 1): [FedSpan(("llm", 7), 0, 4)],
        ("vit", 3): [FedSpan(("llm", 7), 4, 2)],
        ("ear", 0): [FedSpan(("llm", 7), 6, 3)],
        ("vit", 2): [FedSpan(("llm", 8), 0, 1)],
        ("ear", 4): [FedSpan(("llm", 8), 1, 1)],
    }
    assert fed_tokens(plan_with(ITEMS, FEEDS)) == {("llm", 7): 9, ("llm", 8): 2}
    assert not violations(plan_with(ITEMS, FEEDS))


@pytest.mark.parametrize("seed", range(40))
def test_of_many_that_feed_many_each_has_its_tokens_and_they_follow_each_other(seed):
    """Counted token by token: every reader's first tokens are all outputs of whatever feeds it, each once, in order."""
    random, units = Random(seed), {"vit": 4, "ear": 2}
    items = {
        "llm": {7: 99, 8: 99, 9: 99},
        "ear": {0: 60, 4: 40},
        "vit": {item: 4 * random.randrange(1, 5) for item in range(4)},
    }
    draw = lambda name, readers: {i: tuple(random.sample(readers, random.randrange(3))) for i in items[name]}  # noqa: E731
    feeds = {"vit>llm": draw("vit", [7, 8, 9]), "vit>ear": draw("vit", [0, 4]), "ear": draw("ear", [7, 8, 9])}
    edges = random.sample(["vit>llm", "vit>ear", "ear>llm"], 3)
    plan = plan_with(items, feeds, {"ear": WIDE}, edges)
    stands = defaultdict(dict)  # reader → token → (encoder item, its output)
    for source, places in fed_spans(plan).items():
        for place in places:
            for row in range(place.outputs):
                assert stands[place.target].setdefault(place.first + row, (source, row)) == (source, row)
    for target, tokens in stands.items():
        wanted = [
            ((name, item), row)
            for name, to in (edge.split(">") for edge in edges)
            for item, readers in sorted(feeds.get(f"{name}>{to}", feeds.get(name, {})).items())
            for row in range(items[name][item] // units[name])
            if to == target[0] and target[1] in readers
        ]
        assert [tokens[at] for at in range(len(tokens))] == wanted
    assert fed_tokens(plan) == {target: len(tokens) for target, tokens in stands.items()}


def test_an_item_may_be_made_of_outputs_alone_and_no_more():
    assert not violations(plan_with({**ITEMS, "llm": {7: 9, 8: 2}}, FEEDS))
    (violation,) = violations(plan_with({**ITEMS, "llm": {7: 8, 8: 2}}, FEEDS))
    assert "item 7 of `llm` has 8 tokens, and 9 outputs" in violation.message


@pytest.mark.parametrize(
    ("specs", "edges", "says"),
    [
        ({"vit": vit().__class__(layers=1, hidden=16, heads=4, ffn=16, patch=2, out=31)}, INTO_LLM, "31 wide"),
        ({"vit": decoder()}, INTO_LLM, "ends in a loss"),
        ({}, CHAIN, "outputs of `vit` are 32 wide, the tokens of `ear` 16"),
        ({"llm": WIDE}, INTO_LLM, "no module reads the outputs of `llm`"),
        ({"ear": decoder()}, CHAIN, "`ear` ends in a loss"),
    ],
)
def test_only_what_fits_is_fed(specs, edges, says):
    feeds = FEEDS if edges == INTO_LLM else {"vit": {3: 0, 1: (0, 4), 2: 0}, "ear": FEEDS["ear"]}
    assert any(says in found.message for found in violations(plan_with(ITEMS, feeds, specs, edges)))


def test_what_is_read_may_be_read_on():
    feeds = {"vit": {3: 0, 2: (0, 4), 1: 0}, "ear": {0: (7, 8), 4: 8}}
    plan = plan_with({**ITEMS, "ear": {0: 8, 4: 2}}, feeds, {"ear": WIDE}, CHAIN)
    assert not violations(plan)
    assert fed_tokens(plan) == {("ear", 0): 7, ("ear", 4): 1, ("llm", 7): 4, ("llm", 8): 5}


def test_what_cross_attention_reads_is_beside_the_tokens():
    specs, by = {"llm": with_fields(decoder(), cross=32)}, ("vit>llm",)
    plan = plan_with({**ITEMS, "llm": {7: 3, 8: 1}}, FEEDS, specs, by=by)  # three tokens, all of them outputs of `ear`
    assert not violations(plan)
    assert fed_tokens(plan) == {("llm", 7): 3, ("llm", 8): 1}
    assert fed_tokens(plan, "cross_attention") == {("llm", 7): 6, ("llm", 8): 1}
    assert [fed.first for fed in fed_spans(plan)["vit", 3]] == [4] and fed_spans(plan)["ear", 0][0].first == 0


@pytest.mark.parametrize(
    ("spec", "feeds", "says"),
    [
        (decoder(), FEEDS, "`llm` has no cross attention"),
        (with_fields(decoder(), cross=31), FEEDS, "are 32 wide, cross attention of `llm` reads 31"),
        (
            with_fields(decoder(), cross=32),
            {**FEEDS, "vit": {3: 7, 1: 7, 2: 7}},
            "cross attention of `llm` has nothing to read for item 8",
        ),
    ],
)
def test_cross_attention_has_something_to_read_that_fits(spec, feeds, says):
    (found,) = violations(plan_with(ITEMS, feeds, {"llm": spec}, by=("vit>llm",)))
    assert says in found.message and found.fix


@pytest.mark.parametrize("under", ["vit", "vit>ear"])
def test_what_feeds_several_says_which(under):
    feeds = {under: {3: 0, 1: 0, 2: 0}, "ear": {0: 7, 4: 8}}
    items = {**ITEMS, "ear": {0: 8, 4: 2}}
    found = violations(plan_with(items, feeds, {"ear": WIDE}, (*CHAIN, "vit>llm")))
    assert [v.message.rpartition(", ")[2] for v in found[:1]] == (
        ["and this key names none of them"] if under == "vit" else []
    )


def test_modules_that_wait_for_each_other_are_refused():
    feeds = {"vit": {3: 0, 1: 0, 2: 0}, "ear": {0: 1, 4: 2}}
    specs = {"vit": with_fields(vit(), merge=2, hidden=32), "ear": WIDE}
    found = violations(plan_with(ITEMS, feeds, specs, ("vit>ear", "ear>vit")))
    assert [(v.where, "leads back" in v.message) for v in found] == [("edges[0]", True), ("edges[1]", True)]


def test_an_item_is_fed_in_its_own_step():
    plan = encoder_plan()
    first, second = plan.steps[0].micro_batches
    later = {"vit": first["vit"], "llm": second["llm"]}, {"vit": second["vit"], "llm": first["llm"]}
    steps = tuple(Step(sync="step", micro_batches=(row,)) for row in later)
    assert "in another step" in violations(with_fields(plan, steps=steps))[0].message
