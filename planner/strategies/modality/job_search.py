"""The search of a job: candidates by the closed form, plans as trainers have them today, and changes of the best."""

from planner.specs.inputs import Inputs
from planner.strategies.modality.baselines import baseline_trials
from planner.strategies.modality.joint_candidates import JointSpace, joint_candidates
from planner.strategies.modality.joint_errors import nothing_fits
from planner.strategies.modality.joint_search import (
    JointSearch,
    JointTrials,
    Limits,
    improve,
    most_simulated,
    place_passes,
    simulate_quickest,
)

LLM_SHARE = 4  # simulations for each layout of the LLM that is a candidate


def search_job(inputs: Inputs) -> JointSearch:
    """What was simulated for a job. Raises Infeasible where no module, or not all of them, fit by the closed form."""
    space, most = JointSpace(inputs), most_simulated(inputs)
    candidates = joint_candidates(space, llm_layouts=most // LLM_SHARE)
    done = JointSearch(trials=JointTrials(inputs), most=most, priced=len(candidates))
    simulate_quickest(done, candidates)
    done.starts = baseline_trials(done.trials, space, Limits(done.far_slower, done.hopeless))
    if not candidates and not done.best:
        raise nothing_fits(space)
    improve(done)
    place_passes(done)
    return done
