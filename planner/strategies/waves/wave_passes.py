"""Passes of towers as the placer finds them."""

from planner.strategies.waves.wave_plan import TowerPass


def wave_passes(inputs, towers, replicas):
    from planner.strategies.waves.wave_baselines import sequential

    yield sequential(towers, replicas)
    yield greedy(towers, replicas)


def malleable_optimum(towers, replicas):
    from planner.scoring.bounds.wave_bound import least_seconds

    return least_seconds(towers.values(), replicas)


def greedy(towers, replicas):
    T = malleable_optimum(towers, replicas) * 1.02
    load = [0.0] * replicas
    out = []
    for t in sorted(towers.values(), key=lambda t: -t.by_count[-1]):
        rows = list(t.longest_first)
        while rows:
            r = min(range(replicas), key=lambda r: load[r])
            room = T - load[r]
            k = max(
                [c for c, s in enumerate(t.by_count) if c and s <= room and c <= len(rows)], default=min(len(rows), 4)
            )
            out.append(TowerPass(t.name, tuple(rows[:k]), (r,), load[r]))
            load[r] += t.by_count[k]
            rows = rows[k:]
    return out
