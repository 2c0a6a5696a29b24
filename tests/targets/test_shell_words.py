"""Words of shell scripts: literals are expanded as a shell does, and what is computed is known to be unknown."""

import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import InputError
from planner.targets.launch_command import read_launch
from planner.targets.shell_words import Shell, commands
from tests.examples import examples

SCRIPTS = {
    "plain": "show a 'b c' \"d e\" f\\ g",
    "variables": 'A=1; B="two words"; C=$A$B\nshow $A "$B" $B ${A}x "$C" --n=$A',
    "arrays": 'A=(one "two three"\n  four) # comment\nA+=(five)\nshow ${A[@]} "${A[@]}"',
    "defaults": 'show ${NONE:-8} "${OTHER:-a b}" ${THIRD-x}',
    "continued": "show a \\\n  b \\\n  c",
    "sums": "A=4\nB=$(($A*2+1))\nshow $B $((B / 2)) $(( (A + B) % 3 ))",
    "switches": 'OPTIONS=" --a 1 \\\n  --b 2"\nshow ${OPTIONS} --c',
    "exported": "export A=3 B=4\nshow $A $B",
    "redirected": "show a b > /dev/null; show c 2>&1; show d | cat; show e && show f",
    "quotes": 'show \'$A\' "\\$A" "a\'b" x',
}


def words_of(text: str) -> list[list[str]]:
    """The words of each command `show`."""
    shell = Shell("script.sh", {})
    return [[word.text for word in words[1:]] for words in commands(text, shell) if words[0].text == "show"]


@pytest.mark.parametrize("name", SCRIPTS)
def test_literals_are_expanded_as_bash_expands_them(name, tmp_path):
    script = 'show() { printf "%s\\0" "$@" >&3; printf "\\0" >&3; }\n' + SCRIPTS[name] + "\n"
    with (tmp_path / "seen").open("w") as seen:
        command = ["bash", "-c", f"exec 3>&{seen.fileno()}\n{script}"]
        subprocess.run(command, pass_fds=[seen.fileno()], check=True, stdout=subprocess.DEVNULL)
    runs = (tmp_path / "seen").read_text().split("\0\0")[:-1]
    told = [run.split("\0") for run in runs]
    assert words_of(SCRIPTS[name]) == told


UNKNOWN = {
    "N=$(nvidia-smi -L | wc -l)": "is what a command prints at line 1",
    "N=$1": "is an argument of the script",
    "if [ -n x ]; then N=2; else N=4; fi": "is decided by a branch at line 1",
    "for N in 1 2; do echo $N; done": "is set nowhere in the file",
    "f() { N=2; }": "is decided by a branch at line 1",
    "N=${M%.x}": "is computed at line 1",
    "": "is set nowhere in the file",
}


@pytest.mark.parametrize("first", UNKNOWN)
def test_what_is_computed_is_asked_for_by_name(first):
    text = f"{first}\ntorchrun pretrain_gpt.py --num-layers $N --bf16\n"
    stated = read_launch(text, "a.sh", {}, {"--bf16"}).stated
    with pytest.raises(InputError) as refused:
        stated.integer("--num-layers")
    assert UNKNOWN[first] in refused.value.message and refused.value.where == "a.sh:2 (--num-layers)"
    assert read_launch(text, "a.sh", {"N": "12"}, {"--bf16"}).stated.integer("--num-layers") == 12


def test_what_may_be_arguments_is_asked_for_too():
    """Behind a switch, or at the start, an unknown word may be any number of arguments."""
    text = "if true; then MORE=(--fp16); fi\ntorchrun pretrain_gpt.py --bf16 ${MORE[@]}\n"
    with pytest.raises(InputError) as refused:
        read_launch(text, "a.sh", {}, {"--bf16"})
    assert "MORE is decided by a branch at line 1" in refused.value.message
    assert refused.value.fix == "--set MORE=VALUE"
    assert "--fp16" in read_launch(text, "a.sh", {"MORE": "--fp16"}, {"--bf16"}).stated


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("echo hello\n", "launches nothing"),
        ("torchrun a.py --x 1\ntorchrun a.py --x 2\n", "2 commands"),
        ("torchrun a.py stray --x 1\n", "which arguments"),
        ('torchrun "a.py\n', "a quote does not end"),
        ("torchrun $(cat a\n", "is missing"),
        ("torchrun $PROGRAM --x 1\n", "which program"),
    ],
)
def test_a_script_that_cannot_be_read_is_refused_at_its_line(text, message):
    with pytest.raises(InputError, match=message) as refused:
        read_launch(text, "a.sh", {}, ())
    assert refused.value.where.startswith("a.sh")


DOUBLED = "A=xxxxxxxxxxxxxxxx\n" + "A=$A$A\n" * 40
NESTED = "A=" + "${B:-" * 3000 + "}" * 3000


@pytest.mark.parametrize("text", [DOUBLED, NESTED, "A=$((" + "(" * 150 + "))\n"], ids=["doubled", "nested", "sums"])
def test_what_would_take_too_much_is_refused(text):
    with pytest.raises(InputError):
        read_launch(f"{text}\ntorchrun pretrain_gpt.py --x $A", "a.sh", {}, ()).stated.one("--x")


@pytest.mark.parametrize(
    ("launcher", "ranks"),
    [
        ("torchrun --nproc_per_node 8", 8),
        ("torchrun --nnodes=4 --nproc-per-node=8", 32),
        ("python -m torch.distributed.run --nproc_per_node 8 --nnodes 2", 16),
        ("torchrun --nproc_per_node auto", None),
        ("N=4\nsrun torchrun --nproc_per_node $N", 4),
        ("srun bash -c 'torchrun --nproc_per_node 2", 2),
    ],
)
def test_ranks_of_a_launcher(launcher, ranks):
    end = "'" if "'" in launcher else ""
    command = read_launch(f"{launcher} pretrain_gpt.py --x 1{end}\n", "a.sh", {}, ())
    assert (command.ranks, command.program, command.stated.one("--x")) == (ranks, "pretrain_gpt.py", "1")


@examples(200)
@given(st.text(st.sampled_from("a$({[\"'`\\ \n;|&>#=+-)}]@:1NX"), max_size=40))
def test_any_text_is_read_or_refused(text):
    try:
        read_launch(text, "a.sh", {}, ())
    except InputError as error:
        assert error.where.startswith("a.sh")
