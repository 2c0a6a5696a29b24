"""Prices of embedding tables: bytes and seconds add up, and copies take what they must."""

from pathlib import Path

import numpy as np
import pytest

from planner.costs.tables import CUTS, ShardOptions, priced_cuts, shard_options, sharding_group, table_bound
from planner.specs.base import with_fields
from planner.specs.tables import Table, read_tables
from tests.sharded_tables import CLUSTER, DEVICE, drawn_tables

TABLES = drawn_tables(12, 3)


def options_in(groups: int, every: int = 1) -> ShardOptions:
    return shard_options(TABLES, sharding_group(CLUSTER, DEVICE, groups, "node", every), 64)


def test_shards_of_a_cut_have_all_bytes_of_their_table():
    options = options_in(1)
    cut = options.cut != CUTS.index("replicated")
    whole = np.array([table.bytes for table in TABLES.values()])[options.table]
    assert np.allclose((options.state_bytes * options.ranks)[cut], whole[cut])


def test_copies_add_their_share_to_a_rank_exactly():
    """S (M − 1) / T in the mean, of tables that are cut and not replicated."""
    size = sum(table.bytes for table in TABLES.values())
    for groups in (2, 4, 8):
        means = []
        for count in (1, groups):
            options = options_in(count)
            whole = [options.of(table)[0] for table in range(len(TABLES))]
            means.append(float((options.state_bytes * options.ranks)[whole].sum()) / (CLUSTER.size / count))
        assert means[1] - means[0] == pytest.approx(size * (groups - 1) / CLUSTER.size)


def test_averages_are_of_twice_the_bytes_that_other_copies_have():
    one, often, seldom = options_in(1), options_in(4), options_in(4, every=10)
    assert not one.average.any()
    assert np.allclose(often.average, 2 * 3 / 4 * often.state_bytes / (450e9))
    assert np.allclose(seldom.average * 10, often.average)


def test_a_cache_is_hit_more_often_the_more_skewed_the_rows_are_read():
    def cached_lookup(skew: float) -> float:
        table = {"t": Table(rows=10**7, dim=64, pooling=10, skew=skew)}
        options = shard_options(table, sharding_group(CLUSTER, DEVICE, 1, "node", 1), 64)
        return float(options.lookup[(options.cache > 0) & (options.cut == 0)].min())

    assert cached_lookup(0.0) > cached_lookup(0.8) > cached_lookup(1.0) > cached_lookup(1.2)


def test_hits_of_a_histogram_are_those_of_its_most_read_rows(tmp_path: Path):
    """In any order of its parts: 5 % of these rows have 60 % of the lookups, and 20 % of them 60 + 30 · 15 / 25."""
    parts = ["{rows: 70, lookups: 10}", "{rows: 5, lookups: 60}", "{rows: 25, lookups: 30}"]
    for number in range(3):
        text = f"format: planner.tables/1\nname: m\nreuse: [{', '.join(parts[number:] + parts[:number])}]\n"
        path = tmp_path / "tables.yaml"
        path.write_text(f"{text}tables: {{a: {{rows: 1000, dim: 64}}, b: {{rows: 9, dim: 8, hits: [0.1, 0.2]}}}}\n")
        tables = read_tables(path)
        assert tables["a"].hits == pytest.approx((0.6, 0.78))
        assert tables["b"].hits == (0.1, 0.2)
    group = sharding_group(CLUSTER, DEVICE, 1, "node", 1)
    options = shard_options(tables, group, 64)
    flat = shard_options({name: with_fields(table, hits=None) for name, table in tables.items()}, group, 64)
    cached = options.cache > 0
    assert (options.lookup[cached] < flat.lookup[cached])[: cached.sum() // 2].all()
    assert (options.lookup[~cached] == flat.lookup[~cached]).all()


TORCHREC = {  # milliseconds of a shard, of torchrec 1.8.0's estimator: 64 samples a rank, columns in parts of 32
    "wide": (0.030977987, 0.009813282, 0.022421308, 0.006997457, 0.001763119, 14.21612842),
    "narrow": (0.008804994, 0.003128549, 0.008224588, 0.00225724, 0.000754553, 0.088945232),
}


def test_prices_are_those_of_torchrec():
    wide, narrow = Table(rows=3_000_000, dim=128, pooling=20), Table(rows=50_000, dim=96, pooling=3.5, dtype="fp16")
    group = sharding_group(CLUSTER, DEVICE, 1, "node", 1)
    for (name, table), prices in zip({"wide": wide, "narrow": narrow}.items(), TORCHREC.values(), strict=True):
        cuts = [(cut, table.dim // 32 if cut in ("columns", "grid") else 1, 0.0) for cut in CUTS]
        options = priced_cuts({name: table}, [cuts], group, 64)
        assert options.seconds * 1e3 == pytest.approx(prices, rel=1e-6)


def test_no_room_has_no_bound():
    group = sharding_group(CLUSTER, DEVICE, 1, "node", 1)
    assert table_bound(shard_options(TABLES, group, 64), group, 1e3) == float("inf")
