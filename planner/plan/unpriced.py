"""What stands for the outcome and the prediction of a plan that has not been simulated."""

from planner.plan.plan_file import Breakdown, Outcome, Prediction

NO_OUTCOME = Outcome(status="feasible", value=0.0, bound=0.0, gap=0.0, bound_by="")
NO_PREDICTION = Prediction(
    step_seconds=0.0,
    spread=0.0,
    peak_memory_gib=0.0,
    breakdown=Breakdown(compute=0.0, exposed_comm=0.0, idle=0.0),
    measured_share=0.0,
)
