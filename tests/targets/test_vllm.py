"""Arguments of vLLM: what is written is read back, and a script is a shell script that names every GPU once."""

import re
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import InputError
from planner.targets import Served, vllm_arguments, vllm_fields, vllm_script
from tests.examples import examples

FIELDS = st.fixed_dictionaries(
    {
        "tp": st.sampled_from([1, 2, 8]),
        "answers": st.integers(1, 4096),
        "tokens": st.integers(1, 10**5),
        "memory": st.sampled_from([0.5, 0.94]),
        "chunked": st.booleans(),
        "prefixes": st.booleans(),
        "order": st.sampled_from(["fifo", "shortest"]),
        "encoder_only": st.booleans(),
    },
    optional={
        "features": st.sampled_from(["producer", "consumer"]),
        "keys": st.sampled_from(["producer", "consumer"]),
    },
)


@given(FIELDS)
@examples(100)
def test_what_is_written_is_read_back(fields):
    assert vllm_fields(vllm_arguments(fields)) == fields


def test_what_excludes_itself_is_refused():
    with pytest.raises(InputError):
        vllm_fields({"--enable-chunked-prefill": (), "--no-enable-chunked-prefill": (), "--max-num-seqs": ("4",)})


def test_a_script_is_one_of_the_shell(tmp_path):
    fields = dict(
        tp=1, answers=8, tokens=512, memory=0.9, chunked=True, prefixes=False, order="fifo", encoder_only=True
    )
    served = [Served(f"encode {n}", n // 2, (n % 2,), fields | {"features": "producer"}) for n in range(4)]
    script = tmp_path / "serve.sh"
    script.write_text(vllm_script(served, ["what it is"]))
    assert subprocess.run(["bash", "-n", script], check=False).returncode == 0
    assert re.findall(r"CUDA_VISIBLE_DEVICES=(\S+) .* --port (\d+)", script.read_text()) == [
        ("0", "8100"), ("1", "8101"), ("0", "8102"), ("1", "8103"),
    ]  # fmt: skip
