"""Checks before launch whether a plan's items are those of the folder that it is to train on. Imports torch."""

import math
from collections.abc import Iterator
from functools import partial

from planner.errors import InputError
from planner.plan.plan_file import Plan
from planner.runtime.run_options import RunOptions
from planner.specs.model import Model, ModelEdge
from planner.specs.workload.items import Size, item_grids, item_tokens, part_lengths
from planner.specs.workload.sample_folder import Media, SampleFolder, require_widths
from planner.specs.workload.sample_sizes import SampleReaders, SizedSample, sample_readers, sized_sample


def require_data(plan: Plan, options: RunOptions) -> None:
    """Raises InputError where the data lacks an item of the plan, or its size or contents do not fit."""
    from planner.models.inputs import SampleFolderSource, TokenFolder, sample_source

    source = sample_source(options.data, options.seed)
    if isinstance(source, SampleFolderSource):
        require_same_samples(plan, source.folder)
    for module, spec in plan.uses.models.items():
        items = [(item, item_tokens(size)) for item, size in plan.uses.items.get(module, {}).items()]
        source.check(spec, items)
        if isinstance(source, TokenFolder):
            source.check_vocab(spec, items)
        elif isinstance(source, SampleFolderSource):
            source.check_values(spec, items)


def require_same_samples(plan: Plan, folder: SampleFolder) -> None:
    """Raises InputError for the first item of the plan that a job on this folder would not have planned, and for the
    first image or clip of its samples that it lacks.
    """
    readers = plan_readers(plan, str(folder.path))
    for edge in plan.edges:
        if edge.by == "cross_attention" and edge.source in (readers.patches, readers.frames):
            what = f"`{edge.target}` attends to `{edge.source}`, and a folder's images and sound stand among its tokens"
            raise InputError(what, where=str(folder.path), fix="leave --data out: items are synthetic then")
    require_widths(folder, readers.model.modules)
    sizes = plan.uses.items.get(readers.loss, {})
    sized = {
        sample: sized_sample(readers, folder.sample(sample), f"{folder.path} (sample {sample})") for sample in sizes
    }
    for name, media in ((readers.patches, folder.images), (readers.frames, folder.clips)):
        for what in media_faults(plan, readers.loss, sized, name, media) if name else ():
            raise other_data(what, folder)
    for what in text_faults(sizes, sized):
        raise other_data(what, folder)


def plan_readers(plan: Plan, where: str) -> SampleReaders:
    """Who reads samples' images, sound and text in a plan. Raises InputError where that cannot be told."""
    edges = tuple(ModelEdge(source=edge.source, target=edge.target, by=edge.by) for edge in plan.edges)
    model = Model(format=Model.FORMAT, name=plan.name, source="the plan", modules=plan.uses.models, edges=edges)
    ends = [name for name, spec in model.modules.items() if spec.causal and not model.targets(name)]
    if len(ends) != 1:
        what = f"samples have one text, and {' and '.join(ends) or 'no module'} of the plan predicts the next word"
        raise InputError(what, where=where, fix="leave --data out: items are synthetic then")
    return sample_readers(model, ends[0], where)


def media_faults(plan: Plan, loss: str, sized: dict[int, SizedSample], name: str, media: Media | None) -> Iterator[str]:
    """Yield how the items of an encoder differ from the images or clips of the samples."""
    planned = plan.uses.items.get(name, {})
    feeds = [plan.feeds_of(edge) for edge in plan.edges if (edge.source, edge.target) == (name, loss)]
    found: set[int] = set()
    grids_of = partial(item_grids, plan.uses.models[name])
    for sample, of_sample in sized.items() if media else ():
        assert media is not None
        for item, size in zip(media.of_sample(sample), of_sample.items.get(name, ()), strict=True):
            found.add(item)
            called = f"{media.files.noun} {item} of sample {sample}"
            if item not in planned:
                yield f"{called} is no item of `{name}` in the plan"
                continue
            if part_lengths(planned[item]) != part_lengths(size):
                stated, has = (" + ".join(map(str, part_lengths(each))) for each in (planned[item], size))
                yield f"{called} is {has} tokens of `{name}`, and the plan's item {item} has {stated}"
            elif grids_of(planned[item]) != grids_of(size):
                stated, has = (
                    " + ".join(f"{height} x {width}" for _, height, width in grids_of(each))
                    for each in (planned[item], size)
                )
                yield f"{called} is {has} patches of `{name}`, and the plan's item {item} has {stated}"
            for of_edge in feeds:
                if of_edge.get(item, ()) != (sample,):
                    fed = " and ".join(map(str, of_edge.get(item, ()))) or "no item"
                    yield f"{called} stands in it, and the plan's item {item} of `{name}` feeds {fed}"
    for item in planned:
        if item not in found:
            yield f"item {item} of `{name}` is none of the plan's samples"


def text_faults(sizes: dict[int, Size], sized: dict[int, SizedSample]) -> Iterator[str]:
    """Yield how the samples' items differ: all were rounded up to multiples of some unit, so an item is longer than its
    sample by less than their greatest common divisor.
    """
    unit = math.gcd(*map(item_tokens, sizes.values()))
    for sample, size in sizes.items():
        tokens, length = item_tokens(size), sized[sample].tokens
        if not tokens - unit < length <= tokens:
            yield f"sample {sample} has {length} tokens with its images and sound, and the plan's item has {tokens}"


def other_data(what: str, folder: SampleFolder) -> InputError:
    fix = f"plan a job with lengths: {{from: samples, path: {folder.path}}}, or give the plan's own folder"
    return InputError(f"{what}: made from other data", where=str(folder.path), fix=fix)
