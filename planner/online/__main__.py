"""Plans steps for a run that another launcher starts: `python -m planner.online plan.yaml`, on one of its machines.

It ends when the run does. If it is stopped and started again, it resumes from the state of the step folder.
"""

import argparse
import sys
from pathlib import Path

from planner import files
from planner.errors import InputError, PlannerError
from planner.online.plan_inputs import inputs_beside_run
from planner.online.planner_process import plan_beside_run
from planner.plan.legal.plan_laws import require_legal
from planner.plan.plan_file import Plan
from planner.plan.step_files import step_folder


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m planner.online", description=__doc__)
    parser.add_argument("plan", type=Path, help="a plan file whose steps come from a folder")
    parser.add_argument("--job", help="its job, if not shipped and not beside it")
    parser.add_argument(
        "--steps", type=int, help="number of steps of the run; if left out, planning continues until the run ends"
    )
    arguments = parser.parse_args()
    try:
        serve(arguments.plan, arguments.job, arguments.steps)
    except PlannerError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    return 0


def serve(path: Path, job: str | None, steps: int | None) -> None:
    """Plans steps into the plan's folder until the run ends. Raises InputError where the plan has no such folder."""
    plan = files.read(path, Plan)
    require_legal(plan, str(path))
    folder = step_folder(plan, path.parent, str(path))
    if folder is None:
        raise InputError(
            "all steps of this plan are in it", where=f"{path} (then)", fix="solve a job with planning: per_batch"
        )
    plan_beside_run(inputs_beside_run(plan, path.parent, job), plan, folder, steps)


if __name__ == "__main__":
    sys.exit(main())
