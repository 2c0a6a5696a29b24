"""Data loaders: shares against brute force; workers against a sweep; orders and caches of graphs against all pairs.

**Shares.** 500 random loaders of 2 to 8 stages on 64 cores, with exponential a, and a d of half of them: seconds of
the slowest stage against dynamic programming over all whole shares; milliseconds of processor time; an equal split.

**Workers** (measured). Samples of an image of COCO's sizes (`multimodal/coco_trainvalno5k_image_wh.csv.gz`) with
text, for the vision tower of the demo, read from the page cache. A sweep over 0 to 4 workers and 1 to 4 batches ready
each, twice in turn, the mean of both; then what planner profile --loader chooses from its timings of 0, 1 and 2
workers.

**Graphs.** 100,000 nodes and 640,000 drawn edges in 200 communities, power-law or even degrees, a mixing of 0.05 or
0.2, a tenth of the nodes trained, batches of 200, 10-5 neighbours, a cache of 10 %: rows moved by whole epochs of
every order and cache, and how much more the pair moves that was chosen on a tenth. PubMed and Cora, and graphs with
the degrees of three histograms: walks of two edges across parts against random parts, and imbalances.
"""

import csv
import gzip
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks.registry import Figures
from planner.costs import item_seconds
from planner.graphs import Graph, OrderQuestion, choose_order, graph_of
from planner.graphs.choose_order import LABELS, label_imbalance, tried_orders
from planner.graphs.feature_caches import CACHES, misses, static_score
from planner.graphs.node_batches import batch_reads
from planner.graphs.partition import cut_graph, metis, two_hop_across
from planner.profiling import items_per_second, loader_of_job, measure_loader
from planner.specs.inputs import JobOptions, load_job
from planner.strategies import divide_loader
from planner.workflows.toy_samples import ToySample, write_samples
from tests.graphs.made_graphs import community_graph, of_weights
from tests.strategies.test_loader_stages import brute, drawn

SIZES = "multimodal/coco_trainvalno5k_image_wh.csv.gz"
HISTOGRAMS = ("facebook_pages", "github_social", "wikipedia_crocodile")
IMAGES, SWEEP_S = 400, 4.0
JOB = """format: planner.job/1
name: coco
model: tiny-omni
cluster: cpu-4
workload: {lengths: {from: samples, path: data}, batch_rows: 16, module: llm}
"""


def run(data: Path | None) -> Iterator[Figures]:
    """All figures; those over public data where it is."""
    yield shares()
    for power in (True, False):
        for mixing in (0.05, 0.2):
            graph = community_graph(100_000, 640_000, power=power, mixing=mixing)
            yield {"graph": f"{'power law' if power else 'even'}, mixing {mixing}", **orders(graph)}
    if data:
        for name, graph in public_graphs(data):
            yield {"graph": name, **parts(graph)}
        yield from workers(data)


def shares() -> Figures:
    """Shares against brute force."""
    random, spent, gains, equal = np.random.default_rng(0), list[float](), list[float](), 0
    for _ in range(500):
        loader = drawn(random, cores=64)
        begun = time.process_time()
        found = divide_loader(loader).shares
        spent.append(time.process_time() - begun)
        equal += found.seconds == brute(loader)
        gains.append(found.equal_seconds / found.seconds)
    return {
        "instances": 500,
        "as_brute_force": equal,
        "most_ms": round(1e3 * max(spent), 2),
        "mean_ms": round(1e3 * fmean(spent), 2),
        "equal_split_over": round(fmean(gains), 3),
    }


# ----------------------------------------------------------------------------------------------------------- graphs


def orders(graph: Graph) -> Figures:
    """Rows of whole epochs, and of the pair that is chosen on a tenth of one."""
    asked = OrderQuestion()
    train = trained(graph)
    begun = time.process_time()
    found = choose_order(graph, train, None, asked)
    spent = time.process_time() - begun
    tried = tried_orders(graph, train, asked)
    presampled = [*batch_reads(graph, tried["random"][::-1], asked.batch, asked.fanouts, 10**6, found.sampled)]
    capacity, rows = int(asked.cache * graph.nodes), dict[tuple[str, str], int]()
    for name, order in tried.items():
        reads = [*batch_reads(graph, order, asked.batch, asked.fanouts, asked.seed)]
        for cache in CACHES:
            rows[name, cache] = sum(misses(cache, reads, capacity, static_score(cache, graph, presampled)))
    labels = metis(graph, LABELS)
    unlike = {name: label_imbalance(order, labels, asked.batch) for name, order in tried.items()}
    rival = min(rows["random", cache] for cache in CACHES)
    chosen, best = (found.chosen.order, found.chosen.cache), min(rows, key=lambda pair: rows[pair])
    near = {pair: moved for pair, moved in rows.items() if unlike[pair[0]] <= 1.5 * unlike["random"]}
    return {
        "chosen": " ".join(chosen),
        "times_fewer": round(rival / rows[chosen], 3),
        "imbalance": round(unlike[chosen[0]], 3),
        "random_imbalance": round(unlike["random"], 3),
        "best": " ".join(best),
        "above_best": round(rows[chosen] / rows[best] - 1, 4),
        "near_random_times_fewer": round(rival / min(near.values()), 3),
        "sampled": f"{found.sampled} of {found.batches}",
        "choose_s": round(spent, 1),
    }


def trained(graph: Graph) -> np.ndarray:
    return np.sort(np.random.default_rng(1).choice(graph.nodes, graph.nodes // 10, replace=False))


def public_graphs(data: Path) -> Iterator[tuple[str, Graph]]:
    """Citation graphs, and graphs of communities with the degrees of histograms."""
    for name in ("pubmed", "cora"):
        edges = table(data / f"gnn/{name}_edges.csv.gz")
        yield name, graph_of(edges[:, 0], edges[:, 1])
    for name in HISTOGRAMS:
        degrees = np.repeat(*table(data / f"gnn/degree_hist_{name}.csv").T)
        random = np.random.default_rng(0)
        yield f"degrees of {name}", of_weights(degrees, (int(degrees.sum() / 2), 20, 0.1), random)


def table(path: Path) -> np.ndarray:
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
        return np.array([[int(cell) for cell in row] for row in [*csv.reader(file)][1:]])


def parts(graph: Graph) -> Figures:
    """Parts against random ones."""
    train, figures = trained(graph), dict[str, object]()
    for count in (4, 8):
        begun = time.process_time()
        found = cut_graph(graph, count, train)
        spent = time.process_time() - begun
        random = np.random.default_rng(7).integers(count, size=graph.nodes)
        fewer = 1 - two_hop_across(graph, found.part, train)[0] / two_hop_across(graph, random, train)[0]
        figures |= {
            f"fewer_across_{count}": round(fewer, 3),
            f"imbalances_{count}": [round(found.imbalance, 3), round(found.train_imbalance, 3)],
            f"cut_s_{count}": round(spent, 2),
        }
    return {"nodes": graph.nodes, "edges": len(graph.neighbours) // 2, **figures}


# ---------------------------------------------------------------------------------------------------------- workers


def workers(data: Path) -> Iterator[Figures]:
    """A sweep against what profile chooses."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        write_coco(folder / "data", data / SIZES)
        (folder / "job.yaml").write_text(JOB)
        measured = loader_of_job(load_job(str(folder / "job.yaml"), JobOptions()))
        items_per_second(measured, 0, 2, SWEEP_S)  # the files are in the page cache then
        settings = [(0, 2), *((count, ready) for count in range(1, 5) for ready in range(1, 5))]
        begun = time.perf_counter()
        sweep: dict[tuple[int, int], list[float]] = {each: [] for each in settings}
        for _ in range(2):
            for each in settings:
                sweep[each].append(items_per_second(measured, *each, SWEEP_S / 2))
        swept = time.perf_counter() - begun
        begun = time.perf_counter()
        found = measure_loader(measured)
        profiled = time.perf_counter() - begun
        assert found.settings
        chosen, rates = (found.settings.workers, found.settings.prefetch), {k: fmean(v) for k, v in sweep.items()}
        best, predicted = max(rates, key=lambda each: rates[each]), 1 / item_seconds(found, chosen[0])
        taken = rates.get(chosen) or rates[0, 2]
        yield {
            "chosen": chosen,
            "best": best,
            "below_best": round(1 - taken / rates[best], 4),
            "predicted_over_measured": round(predicted / taken, 3),
            "share_of_sweep_time": round(profiled / swept, 3),
            "items_per_s": {f"{count}x{ready}": round(rate, 1) for (count, ready), rate in rates.items()},
            "stages_us": {stage.name: round(1e6 * (stage.seconds + stage.constant)) for stage in found.stages},
        }


def write_coco(folder: Path, sizes: Path) -> None:
    """Samples of an image of COCO's sizes, of random pixels, and a text of 3 to 60 words."""
    random = np.random.default_rng(0)
    chosen = random.choice(table(sizes), IMAGES)
    made = (random.integers(0, 256, (height, width, 3), dtype=np.uint8) for width, height in chosen)
    texts = (random.integers(0, 10, int(random.integers(3, 61))).tolist() for _ in range(IMAGES))
    write_samples(folder, [ToySample(text, [image], []) for text, image in zip(texts, made, strict=True)])
