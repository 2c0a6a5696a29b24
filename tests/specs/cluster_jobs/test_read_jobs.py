"""Jobs as people have them, and every way in which a file of them can be wrong: located, with a fix."""

import json

import pytest

from planner.errors import Infeasible, InputError
from planner.specs.cluster_jobs.job_records import JobStep, Speeds, cluster_job
from planner.specs.cluster_jobs.job_tables import read_throughputs
from planner.specs.cluster_jobs.read_jobs import read_fleet, read_jobs

FLEET = read_fleet("", "8xv100,16xp100")
SQUEUED = {
    "job_id": 7,
    "job_state": ["PENDING"],
    "user_name": "ann",
    "submit_time": {"set": True, "infinite": False, "number": 1700000000},
    "start_time": {"set": False, "infinite": False, "number": 0},
    "time_limit": {"set": True, "infinite": False, "number": 60},
    "node_count": {"set": True, "infinite": False, "number": 2},
    "tres_req_str": "cpu=16,mem=64G,node=2,billing=16,gres/gpu=16,gres/gpu:v100=16",
    "array_task_id": {"set": False, "infinite": False, "number": 0},
    "array_task_string": "",
}
ENDED = {
    "job_id": 8,
    "state": {"current": ["COMPLETED"], "reason": "None"},
    "user": "bob",
    "time": {"submission": 100, "start": 160, "end": 460, "elapsed": 300, "limit": {"set": True, "number": 10}},
    "tres": {"requested": [{"type": "cpu", "name": "", "count": 8}, {"type": "gres", "name": "gpu", "count": 4}]},
    "array": {"job_id": 0, "task_id": {"set": False}, "task": ""},
}
WORKLOAD = {
    "metadata": {"name": "train-1", "namespace": "team", "creationTimestamp": "2026-01-02T03:04:05Z"},
    "spec": {
        "queueName": "main",
        "maximumExecutionTimeSeconds": 7200,
        "podSets": [
            {
                "count": 2,
                "template": {
                    "spec": {
                        "nodeSelector": {"nvidia.com/gpu.product": "p100"},
                        "containers": [{"resources": {"requests": {"cpu": "8", "nvidia.com/gpu": "8"}}}],
                    }
                },
            }
        ],
    },
    "status": {
        "conditions": [
            {"type": "Admitted", "status": "True", "lastTransitionTime": "2026-01-02T03:05:05Z"},
            {"type": "Finished", "status": "False", "lastTransitionTime": "2026-01-02T03:05:05Z"},
        ]
    },
}


def written(tmp_path, text, name="jobs.csv"):
    path = tmp_path / name
    path.write_text(text if isinstance(text, str) else json.dumps(text))
    return path


def test_a_table_of_durations(tmp_path):
    path = written(tmp_path, "id,submit_s,gpus,duration_s,kind,user\nx,5,2,60,,ann\n,7,16,30,p100,\n")
    one, two = (cluster_job(each, FLEET, Speeds(), 5.0) for each in read_jobs(path).records)
    assert (one.id, one.submit_s, one.user) == ("x", 0.0, "ann")
    assert one.seconds == {"p100": {2: 60.0}, "v100": {2: 60.0}}
    assert (two.id, two.submit_s, two.seconds) == ("1", 2.0, {"p100": {16: 30.0}})


def test_columns_and_throughputs_of_gavel(tmp_path):
    """Steps over steps a second, and shares of them beside another on one GPU; rates of 0 are not known."""
    jobs = written(tmp_path, "job_type,steps,gpus,priority_weight,slo,arrival_s\nLM (batch size 5),100,1,1,-1,0\n")
    job = "\"('LM (batch size 5)', {})\""
    lines = [f"v100,{job.format(1)},null,4.0,", f"v100,{job.format(2)},null,8.0,", f"p100,{job.format(1)},null,0.0,"]
    lines += [f"p100,{job.format(1)},{job.format(1)},2.0,2.0", f"k80,{job.format(1)},null,1.0,"]
    other = "\"('A3C', {})\""
    lines += [f"v100,{other.format(1)},{job.format(1)},2.0,3.0", f"v100,{job.format(2)},{other.format(2)},2.0,3.0"]
    table = read_throughputs(written(tmp_path, "\n".join(["gpu,job,other,thr_job,thr_other", *lines]), "rates.csv"))
    (record,) = read_jobs(jobs).records
    job = cluster_job(record, FLEET, Speeds(table), 0.0)
    assert job.seconds == {"v100": {1: 25.0, 2: 12.5}}
    assert job.beside == {"v100": {"A3C": 0.75}}
    own = written(tmp_path, "model,kind,gpus,steps_per_s,other\nLM,v100,1,4,\nLM,v100,1,3,GAN\n", "own.csv")
    assert read_throughputs(own) == ({"LM": {"v100": {1: 4.0}}}, {"LM": {"v100": {"GAN": 3.0}}})


def test_steps_of_a_model_are_priced_by_a_search(tmp_path):
    (record,) = read_jobs(written(tmp_path, "submit_s,gpus,steps,model\n0,4,10,llama\n")).records
    asked = []

    def search(which, kind, count):
        asked.append((which.model, kind, count))
        return {"v100": JobStep(8.0 / count, f"tp {count}")}.get(kind)

    assert cluster_job(record, FLEET, Speeds(None, search), 0.0).seconds == {"v100": {4: 20.0}}
    assert asked == [("llama", "p100", 4), ("llama", "v100", 4)]
    elastic = cluster_job(record, FLEET, Speeds(None, search, elastic=True), 0.0)
    counts = [2**power for power in range(FLEET.counts["v100"].bit_length())]
    assert elastic.seconds == {"v100": {count: 80.0 / count for count in counts}}
    assert elastic.layouts["v100"][2] == "tp 2"
    with pytest.raises(Infeasible, match="`llama` fits on 4 GPUs of no kind"):
        cluster_job(record, FLEET, Speeds(None, lambda *_: None), 0.0)


def test_slurm_and_kueue(tmp_path):
    running = {
        **SQUEUED,
        "job_id": 9,
        "job_state": "RUNNING",
        "start_time": 1700000060,
        "array_task_id": {"set": True, "number": 3},
        "array_job_id": {"set": True, "number": 4},
    }
    no_gpus = {**SQUEUED, "job_id": 10, "tres_req_str": "cpu=16,mem=64G"}
    per_node = {**SQUEUED, "job_id": 11, "tres_req_str": "", "tres_per_node": "gres/gpu:8"}
    answer = {"jobs": [SQUEUED, running, no_gpus, per_node], "errors": []}
    squeued, ran, each_node = read_jobs(written(tmp_path, answer, "squeue.json")).records
    assert (squeued.id, squeued.gpus, squeued.kind, squeued.duration_s, squeued.state) == (
        "7",
        16,
        "v100",
        3600,
        "waiting",
    )
    assert (ran.id, ran.start_s, ran.state) == ("4_3", 1700000060, "running")
    assert (each_node.gpus, each_node.kind) == (16, "")
    (ended,) = read_jobs(written(tmp_path, {"jobs": [ENDED]}, "sacct.json")).records
    assert (ended.gpus, ended.duration_s, ended.submit_s, ended.user, ended.state) == (4, 300, 100, "bob", "ended")
    (pods,) = read_jobs(written(tmp_path, {"items": [WORKLOAD]}, "kueue.json")).records
    assert (pods.id, pods.gpus, pods.kind, pods.duration_s, pods.user) == ("team/train-1", 16, "p100", 7200, "main")
    assert (pods.state, pods.start_s - pods.submit_s) == ("running", 60.0)


def test_a_running_job_has_the_kind_that_it_was_given(tmp_path):
    """An untyped request that was given v100 has v100, in Slurm's words and by Kueue's flavors."""
    untyped = {**SQUEUED, "job_state": ["RUNNING"], "tres_req_str": "gres/gpu=8"}
    given = {**untyped, "tres_alloc_str": "cpu=8,gres/gpu=8,gres/gpu:v100=8"}
    (record,) = read_jobs(
        written(tmp_path, {"jobs": [given], "last_update": {"set": True, "number": 1800000000}})
    ).records
    assert (record.gpus, record.kind, record.state) == (8, "v100", "running")
    assigned = {"podSetAssignments": [{"name": "main", "flavors": {"cpu": "any", "nvidia.com/gpu": "v100"}}]}
    admitted = {**WORKLOAD, "status": {**WORKLOAD["status"], "admission": assigned}}
    assert read_jobs(written(tmp_path, {"items": [admitted]})).records[0].kind == "v100"


@pytest.mark.parametrize(
    "fields",
    [
        {"hold": True},
        {"priority": {"set": True, "infinite": False, "number": 0}},
        {"state_reason": "JobHeldUser"},
        {"state_reason": "Dependency"},
        {"job_state": ["REQUEUE_HOLD"]},
    ],
)
def test_a_job_that_is_held_says_so(tmp_path, fields):
    held, free = read_jobs(written(tmp_path, {"jobs": [{**SQUEUED, **fields}, {**SQUEUED, "job_id": 8}]})).records
    assert held.held and not free.held


def test_a_workload_that_is_deactivated_is_held(tmp_path):
    off = {**WORKLOAD, "spec": {**WORKLOAD["spec"], "active": False}, "status": {}}
    assert "deactivated" in read_jobs(written(tmp_path, {"items": [off]})).records[0].held


def test_what_is_not_read_is_told(tmp_path):
    never = {**ENDED, "job_id": 9, "time": {**ENDED["time"], "start": 0, "elapsed": 0}}
    read = read_jobs(written(tmp_path, {"jobs": [ENDED, never]}))
    assert [each.id for each in read.records] == ["8"]
    assert read.notes == ["1 job left out, ended before they started: 9"]
    table = "submit_s,gpus,duration_s,steps,model,gpu_type,kind\n0,2,60,5,m,a,V100\n1,0,60,,,a,\n"
    read = read_jobs(written(tmp_path, table))
    assert read.notes == ["columns that are not read: gpu_type", "duration_s counts, and steps do not, of 0"]
    assert [[*cluster_job(each, FLEET, Speeds(), 0.0).seconds] for each in read.records] == [["v100"]]


HEAD = "submit_s,gpus,duration_s\n"
WRONG_TABLES = {
    "the table is empty": "",
    "there is no column gpus": "submit_s,duration_s\n1,2\n",
    "no job of this file asks for GPUs": HEAD,
    "it has 2 cells, and the header has 3": f"{HEAD}1,2\n",
    "submit_s is `soon`": f"{HEAD}soon,1,5\n",
    "submit_s is `nan`": f"{HEAD}nan,1,5\n",
    "submit_s goes back, from 9 to 5": f"{HEAD}9,1,5\n5,1,5\n",
    "gpus is `-1`": f"{HEAD}0,-1,5\n",
    "steps is `0.5`": "submit_s,gpus,steps,model\n0,1,0.5,m\n",
    "columns gpus and num_gpus say the same": "submit_s,gpus,num_gpus,duration_s\n0,1,1,5\n",
    "gpus is `1.5`": f"{HEAD}0,1.5,5\n",
    "duration_s is `-1`": f"{HEAD}0,1,-1\n",
    "job `x` is there twice": "id,submit_s,gpus,duration_s\nx,0,1,5\nx,0,1,5\n",
}
WRONG_ANSWERS = {
    "it has neither `jobs` nor `items`": {"errors": []},
    "this is no job of Slurm": {"jobs": [5]},
    "Slurm has no state `LOST`": {"jobs": [{**SQUEUED, "job_state": ["LOST"]}]},
    "job 7 has GPUs of a100 and h100": {
        "jobs": [{**SQUEUED, "job_state": "RUNNING", "tres_alloc_str": "gres/gpu:a100=2,gres/gpu:h100=4"}]
    },
    "no job of this file asks for GPUs, 1 job left out, GPUs of several kinds": {
        "jobs": [{**SQUEUED, "tres_req_str": "gres/gpu=6,gres/gpu:a100=2,gres/gpu:h100=4"}]
    },
    "job 7 is a job array, tasks 1-10%2": {"jobs": [{**SQUEUED, "array_task_string": "1-10%2"}]},
    "job 8 ends before it starts": {"jobs": [{**ENDED, "time": {**ENDED["time"], "end": 90 + 60}}]},
    "job 8 starts before it is submitted": {"jobs": [{**ENDED, "time": {**ENDED["time"], "start": 50}}]},
    "job 7 has no time of submission": {"jobs": [{**SQUEUED, "submit_time": {"set": False, "number": 0}}]},
    "this is no workload of Kueue": {"items": [{"metadata": {}}]},
    "Kueue has no condition `Lost`": {
        "items": [{**WORKLOAD, "status": {"conditions": [{"type": "Lost", "status": "True"}]}}]
    },
}


@pytest.mark.parametrize("message", [*WRONG_TABLES, *WRONG_ANSWERS])
def test_a_file_that_is_wrong_is_located(tmp_path, message):
    wrong = WRONG_TABLES.get(message, WRONG_ANSWERS.get(message))
    path = written(tmp_path, wrong, "jobs.csv" if isinstance(wrong, str) else "jobs.json")
    with pytest.raises(InputError) as error:
        read_jobs(path)
    assert error.value.message.startswith(message) and error.value.fix and str(path) in error.value.where


@pytest.mark.parametrize(
    ("line", "kind", "message"),
    [
        ("0,1,,,", InputError, "job `0` has no duration and no steps"),
        ("0,1,,5,", InputError, "how long a step of job `0` takes is not known"),
        ("0,1,5,,k80", InputError, "no kind of this cluster is called `k80`"),
        ("0,24,5,,", Infeasible, "job `0` asks for 24 GPUs, and there are 16 of p100"),
    ],
)
def test_a_job_that_cannot_run_is_located(tmp_path, line, kind, message):
    path = written(tmp_path, f"submit_s,gpus,duration_s,steps,kind\n{line}\n")
    (record,) = read_jobs(path).records
    with pytest.raises(kind) as error:
        cluster_job(record, FLEET, Speeds(), 0.0)
    assert (error.value.message, error.value.where) == (message, f"{path}:2") and error.value.fix


@pytest.mark.parametrize(
    ("cluster", "gpus", "message"),
    [
        ("", "", "one of --cluster and --gpus"),
        ("h100x64", "8xh100", "one of --cluster and --gpus"),
        ("", "8 v100", "`8 v100` is no count of GPUs"),
        ("", "0xv100", "`0xv100` is no count of GPUs"),
        ("", "8xv100,8xv100", "a kind of GPU is there twice"),
    ],
)
def test_gpus_that_are_not_clear_are_refused(cluster, gpus, message):
    with pytest.raises(InputError, match=message):
        read_fleet(cluster, gpus)


def test_a_cluster_is_a_file_of_planner():
    fleet = read_fleet("h100x64", "")
    assert fleet.size == 64 and len(fleet.nodes) == 8
