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
    "nothing": 'NO=(); A=(x y); unset A\nshow "${NO[@]}" "$@" $* a "${A[@]}" "x${NO[@]}"; show "$*"',
    "empty": 'A=; B=(1 2)\nshow ${A:-8} "${A-8}" ${A:+x} ${B:+y} ${C:=3} $C "$A" $B "${B[*]}"',
    "appended": 'A="--a 1"; A+=" --b"; A+="c 2"; B=(1); B+=(2 3); C="$A ${B[@]}"\nshow $A "$A" "${B[@]}" "$C"',
    "documents": "A=4; cat > /dev/null <<'END'; show 1\nA=8; show 2\nEND\n: <<-X\n\tA=9\n\tX\nshow $A",
    "functions": 'A=4; f() { local B=2; show $A $1 "$@"; A=6; }\nfunction g {\nA=9\n}\nA=5; f "x y" z\nshow $A ${B-no}',
    "set": 'set -e\nset -- --a "b c"; show "$@" $2; shift; show "$*"',
    "apart": "A=4\n(cd /; A=8; show $A)\nA=9 true\nA=7 B=8 show $A\nshow $A",
    "declared": 'declare -i A=8; export B C=2; readonly -a D=(1 "2 3"); typeset "E=x y"\nshow $A $C "${D[@]}" "$E"',
    "quotes": 'show \'$A\' "\\$A" "a\'b" x',
}


def words_of(text: str) -> list[list[str]]:
    """The words of each command `show`."""
    shell = Shell("script.sh", {})
    return [[word.text for word in words[1:]] for words in commands(text, shell) if words[0].text == "show"]


@pytest.mark.parametrize("name", SCRIPTS)
def test_literals_are_expanded_as_bash_expands_them(name, tmp_path):
    script = 'show() { printf "%s\\0" "$@" END >&3; }\n' + SCRIPTS[name] + "\n"
    with (tmp_path / "seen").open("w") as seen:
        command = ["bash", "-c", f"exec 3>&{seen.fileno()}\n{script}"]
        subprocess.run(command, pass_fds=[seen.fileno()], check=True, stdout=subprocess.DEVNULL)
    runs = (tmp_path / "seen").read_text().split("END\0")[:-1]
    told = [run.split("\0")[:-1] for run in runs]
    assert words_of(SCRIPTS[name]) == told


UNKNOWN = {
    "N=$(nvidia-smi -L | wc -l)": "is what a command prints at line 1",
    "N=$1": "is an argument of the script",
    "if [ -n x ]; then N=2; else N=4; fi": "is decided by a branch at line 1",
    "N=2; for N in 1 2; do echo $N; done": "is decided by a branch at line 1",
    "f() { N=2; }": "is set nowhere in the file",
    "f() { [ x ] && return; N=2; }; N=1; f": "is decided by a branch at line 1",
    "if x; then f() { N=2; }; fi; N=1; f": "is decided by a branch at line 1",
    'N=1; [ "$BIG" = 1 ] && N=2': "is decided by a branch at line 1",
    "N=1; x || { N=2; }": "is decided by a branch at line 1",
    "N=1; [[ -n $X ]] && N+=(--fp8)": "is decided by a branch at line 1",
    "N=1; x | N=2": "is decided by a branch at line 1",
    "N=1; read -r N < f": "is read or computed at line 1",
    "N=1; while read N; do x; done": "is read or computed at line 1",
    "N=1; printf -v N %d 2": "is read or computed at line 1",
    "N=1; ((N *= 2))": "is computed at line 1",
    "N=1; echo $((N += 2))": "is computed at line 1",
    "N=1; eval N=2": "may be set by `eval` at line 1",
    "N=1; . ./env.sh": "may be set by `.` at line 1",
    "N=(1 2); N[0]=3": "is set in part at line 1",
    "N=([1]=3)": "is set in part at line 1",
    "unset N": "no value",
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
    ("words", "asked"),
    [
        ("--lr 1e-4 $MORE", "MORE"),
        ('--lr 1e-4 "${MORE[@]}"', "MORE"),
        ("--lr 1e-4 ${MORE:+--fp8 hybrid}", "MORE"),
        ("--lr=1e-4 $(cat more.txt)", "a word"),
        ('--bf16 "${@:2}"', "a word"),
        ("--bf16 $1", "1"),
        ("--$MORE 8", "MORE"),
    ],
)
def test_nothing_that_may_be_arguments_is_left_out(words, asked):
    with pytest.raises(InputError, match="says which arguments are given") as refused:
        read_launch(f"torchrun pretrain_gpt.py {words}\n", "a.sh", {}, {"--bf16"})
    assert refused.value.message.startswith(f"{asked} ")


def test_a_single_word_that_is_unknown_is_a_value():
    text = 'torchrun pretrain_gpt.py --lr $LR --data-path "$DATA" 1 $DIR/a --save ${A}/${B} --bf16 "$@"\n'
    values = read_launch(text, "a.sh", {}, {"--bf16"}).stated.values
    assert [*values] == ["--lr", "--data-path", "--save", "--bf16"] and values["--bf16"] == ()
    assert [len(values[each]) for each in values] == [1, 3, 1, 0]


@pytest.mark.parametrize(
    "text",
    [
        "run() { torchrun pretrain_gpt.py --x $TP $@; }\nTP=8\nrun --y 1",
        "TP=8\nsrun bash -s <<'END'\ntorchrun pretrain_gpt.py --x 8 --y 1\nEND",
        "python tools/preprocess_data.py --input x\ntorchrun pretrain_gpt.py --x 8 --y 1",
        "TP=8; bash -c 'TP=4'\ntorchrun pretrain_gpt.py --x $TP --y 1",
    ],
)
def test_what_starts_training_is_found(text):
    assert read_launch(text, "a.sh", {}, ()).stated.values == {"--x": ("8",), "--y": ("1",)}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("f() { torchrun a.py --x 1; }\n", "launches nothing"),
        ("f() { f; }\nf\n", "calls functions too often"),
        ("f() (torchrun a.py)\nf\n", "has no braces"),
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
