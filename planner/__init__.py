"""Decides how to place a model on a cluster, proves the decision, launches it and checks it.

The functions of `planner.pipeline` are the API:

    from planner import follow, pipeline

    plan = pipeline.solve("demo-cpu-4").plan      # or pipeline.read_plan("plan.yaml")
    [score] = pipeline.verify(plan)               # raises where it is illegal; score.timeline, .memory, .bound
    for task in follow.Followed(plan).tasks(0):   # what a rank does, in order
        ...
"""

__version__ = "0.1.0"
