"""What is made before the first step is not looked through again."""

import gc

from planner.runtime.execute.warmup import keep_from_collector


def test_collections_look_at_what_is_made_afterwards():
    class Node:
        pass

    made, first = [Node() for _ in range(1000)], Node()
    first.self = first
    try:
        keep_from_collector()
        frozen = gc.get_freeze_count()
        assert frozen > len(made)
        del first
        gc.collect()
        assert gc.get_freeze_count() == frozen  # a cycle among it is not found
        keep_from_collector()
        assert gc.get_freeze_count() < frozen  # but before the next run in this process
    finally:
        gc.unfreeze()
