"""Fills groups of ranks with sequences, and packs with samples: the packing core that strategies share."""

from planner.packing.balanced import best_balanced, one_item_per_micro_batch
from planner.packing.even_loads import exchange_loads, longest_first
from planner.packing.even_packs import PackedLoads, even_packs, mean_shares
from planner.packing.long_short import LongShort, SplitProblem, rank_seconds, split_long
from planner.packing.makespan_search import best_of_each_pool, search_makespans
from planner.packing.packed_groups import PackedGroup, Packing, canonical_order, longest_work_last, packing_seconds
from planner.packing.rank_placement import place_packing
from planner.packing.sample_packs import pack_samples
from planner.packing.stream_search import stream_search
