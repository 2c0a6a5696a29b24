"""Every output of an encoder comes to whoever reads it, once, whatever both sides' groups are."""

from collections import Counter
from itertools import accumulate
from random import Random

import pytest

from planner.plan.plan_file import Layout
from planner.plan.task import Task
from planner.plan.tokens.encoder_outputs import FedSpan
from planner.plan.tokens.resharding import output_runs, reader_runs, routes
from planner.plan.tokens.token_shards import token_runs
from planner.specs.base import Layers, Ranks
from planner.specs.layers import Decoder, Vit
from tests.meshes import meshed

LLM = Decoder(layers=1, hidden=8, heads=8, ffn=8, vocab=8)


def forward(module, ranks, items, degree, ring):
    parts = tuple(items.values())
    sizes, several = tuple(map(sum, parts)), any(len(each) > 1 for each in parts)
    return Task(
        module, Layers((0,)), "F", 0, "g", Ranks(ranks), sizes, tuple(items), degree, ring=ring,
        parts=parts if several else (),
    )  # fmt: skip


def cell(random, module, items):
    """Some ranks, and how they share out these items."""
    tp, ring, ulysses = random.choice((1, 1, 2)), random.choice((1, 2, 3)), random.choice((1, 2))
    first = random.randrange(4)
    ranks = range(first, first + tp * ring * ulysses)
    dims = [("dp", ring * ulysses), ("tp", tp)]
    random.shuffle(dims)
    return Layout(ranks=Ranks(ranks), **meshed(dict(dims))), forward(module, ranks, items, ring * ulysses, ring)


def case(seed):
    """Two cells of an encoder and two of a decoder; each of the encoder's items is read by one or two of these's. Where
    images have a class token, it is a token more in each of one to three parts.
    """
    random = Random(seed)
    merge = random.choice((1, 2))
    has_class = merge == 1 and random.choice((True, False))
    spec = Vit(layers=1, hidden=8, heads=8, ffn=8, patch=1, merge=merge, out=8, class_token=has_class)
    outputs = {item: [random.randrange(1, 9) for _ in range(random.choice((1, 1, 3)))] for item in range(4)}
    images = {item: tuple(merge**2 * each + has_class for each in parts) for item, parts in outputs.items()}
    reads = [(item, target) for item in images for target in random.sample(range(3), random.choice((1, 1, 2)))]
    taken, fed = Counter(), []
    for item, target in reads:
        fed.append((item, FedSpan(("llm", target), taken[target], sum(outputs[item]))))
        taken[target] += fed[-1][1].outputs
    texts = {target: taken[target] + random.randrange(4) for target in range(3)}
    texts = {target: (max(size, 1),) for target, size in texts.items()}
    writers = [cell(random, "vit", {i: images[i] for i in part}) for part in ((0, 2), (1, 3))]
    readers = [cell(random, "llm", {i: texts[i] for i in part}) for part in ((1,), (2, 0))]
    return spec, fed, writers, readers


def rows_of_outputs(spec, forward):
    """Each output of a pass, and the first of the tokens of its item that make it."""
    numbers, unit = Counter(), spec.merge**2
    for item, tokens, begin in forward.documents:
        for row in range(begin + spec.class_token, begin + tokens, unit):
            yield (item, numbers[item]), (item, row)
            numbers[item] += 1


def every_row(found):
    """Each row of runs: (rank, item, row, place in memory)."""
    return [(r.rank, r.item, r.first + i, r.row + i) for r in found for i in range(r.last - r.first)]


@pytest.mark.parametrize("seed", range(60))
def test_ranks_share_out_every_token_once_and_lie_it_down_without_gaps(seed):
    spec, _, writers, readers = case(seed)
    for module, cells in ((spec, writers), (LLM, readers)):
        for layout, task in cells:
            rows = every_row(token_runs(module, layout, task))
            wanted = Counter((i, row) for i, size in zip(task.items, task.sizes, strict=True) for row in range(size))
            assert Counter((item, row) for _, item, row, _ in rows) == wanted
            for rank in task.ranks:
                own = [place for at, _, _, place in rows if at == rank]
                assert own == [*range(len(own))]


@pytest.mark.parametrize("seed", range(60))
def test_routes_are_what_looking_at_every_row_finds(seed):
    spec, fed, writers, readers = case(seed)
    unit = spec.merge**2
    for writer_layout, writer in writers:
        held = token_runs(spec, writer_layout, writer)
        own = [(item, place) for item, place in fed if item in writer.items]
        # brute force: the row of outputs behind every `unit` tokens, and the token that stands for it
        lying = {(i, row): (rank, at // unit) for rank, i, row, at in every_row(held)}
        written = {output: lying[first] for output, first in rows_of_outputs(spec, writer)}
        for reader_layout, reader in readers:
            read = token_runs(LLM, reader_layout, reader)
            wanted = set()
            for rank, target, token, at in every_row(read):
                for item, place in own:
                    if place.target == ("llm", target) and place.first <= token < place.last:
                        row = token - place.first
                        source, there = written[item, row]
                        wanted.add((source, rank, item, row, there, at))
            found = [
                (r.source, r.target, r.item, r.first + i, r.source_row + i, r.target_row + i)
                for r in routes(output_runs(held, spec, writer), reader_runs(read, "llm", own))
                for i in range(r.rows)
            ]
            assert len(found) == len(set(found)) and set(found) == wanted


@pytest.mark.parametrize("seed", range(60))
def test_numbers_that_take_the_routes_end_where_they_are_read(seed):
    spec, fed, writers, readers = case(seed)
    came = {}
    for writer_layout, writer in writers:
        held = [*output_runs(token_runs(spec, writer_layout, writer), spec, writer)]
        memory = {
            (run.rank, run.row + i): (run.item, run.first + i) for run in held for i in range(run.last - run.first)
        }
        for number, (layout, reader) in enumerate(readers):
            read = reader_runs(
                token_runs(LLM, layout, reader), "llm", [each for each in fed if each[0] in writer.items]
            )
            for route in routes(held, read):
                for i in range(route.rows):
                    key = (number, route.target, route.target_row + i)
                    assert key not in came
                    came[key] = memory[route.source, route.source_row + i]
    of_target: dict[int, list[tuple[int, int]]] = {}
    for item, place in fed:
        of_target.setdefault(place.target[1], []).extend((item, row) for row in range(place.outputs))
    for number, (layout, reader) in enumerate(readers):
        for rank, target, token, at in every_row(token_runs(LLM, layout, reader)):
            made = of_target.get(target, [])
            assert came.pop((number, rank, at), None) == (made[token] if token < len(made) else None)
    assert not came


def test_places_follow_each_other():
    _, fed, *_ = case(3)
    for target in range(3):
        of_target = [place for _, place in fed if place.target[1] == target]
        assert [p.first for p in of_target] == [0, *accumulate(p.outputs for p in of_target)][:-1] or not of_target
