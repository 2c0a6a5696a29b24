"""Random activities for property tests: lanes with shares and sharers, queues, zeros and ties."""

from hypothesis import strategies as st

from planner.simulate.activities import NO_ACTIVITY, Activities, ActivityBuilder

SHARES = (1.0, 1.0, 0.5, 0.3, 0.1, 0.0)


@st.composite
def activity_sets(draw, most: int = 24, circles: bool = True) -> Activities:
    """With `circles` some may wait for what never ends. Without, all end: those in the first lanes wait for earlier
    ones only, those that are queued into the others wait for nothing else.
    """
    built, count = ActivityBuilder(), draw(st.integers(0, most))
    lanes = [built.add_lane() for _ in range(draw(st.integers(0, 5)))]
    for i in range(count):
        others = st.integers(0, count - 1) if circles else st.integers(0, max(0, i - 1))
        queued = draw(st.booleans()) and (circles or i > 0)
        usable = lanes if circles else lanes[2:] if queued else lanes[:2]
        waits = circles or (i > 0 and not queued)
        built.add(
            draw(st.integers(0, 6)) / 4,
            draw(st.lists(st.sampled_from(usable), max_size=3, unique=True)) if usable else (),
            draw(st.lists(others, max_size=3)) if waits else (),
            queued_by=draw(others) if queued else NO_ACTIVITY,
            share=draw(st.sampled_from(SHARES)),
            sharer=draw(st.integers(NO_ACTIVITY, 2)),
        )
    return built.build()


def lane_of(activities: Activities, lane: int) -> list[int]:
    return [i for i in range(activities.count) if lane in activities.lanes[i]]
