"""Files of requests: what each format says, one located error for what is none, and ServeGen's clients drawn again."""

import json

import pytest

from planner.errors import InputError
from planner.specs.workload.requests.read_requests import Reading, read_requests
from planner.specs.workload.requests.request import Request, at_rate, rate_of
from planner.specs.workload.requests.servegen import Window

READING = Reading(lambda width, height: width * height // 1000)
TABLE = "arrival_s,text_tokens,output_tokens,image_tokens,image_hashes\n"


def read(tmp_path, text, name="requests.csv", reading=READING):
    path = tmp_path / name
    path.write_text(text)
    return read_requests(path, reading)


def test_a_table_and_json_lines_say_the_same(tmp_path):
    table = read(tmp_path, TABLE + "5,100,7,256+300,a+b\n7.5,20,1,,\n")
    lines = [
        {
            "arrival_s": 5,
            "text_tokens": 100,
            "output_tokens": 7,
            "image_tokens": [256, 300],
            "image_hashes": ["a", "b"],
        },
        {"arrival_s": 7.5, "text_tokens": 20, "output_tokens": 1},
    ]
    assert table == read(tmp_path, "\n".join(map(json.dumps, lines)), "r.jsonl")
    assert table == (Request("0", 0.0, 100, 7, (256, 300), ("a", "b")), Request("1", 2.5, 20, 1))
    assert table[0].prompt_tokens == 656 and rate_of(table) == 0.4 and rate_of(at_rate(table, 5.0)) == 2.0


def test_images_in_pixels_are_as_many_tokens_as_the_model_makes_of_them(tmp_path):
    (one,) = read(tmp_path, "arrival_s,text_tokens,output_tokens,images\n0,5,5,100x50+200x10\n")
    assert one.images == (5, 2)


def test_formats_of_others(tmp_path):
    rows = ("TIMESTAMP,ContextTokens,GeneratedTokens", "2023-11-16 18:15:46.6805900,374,44")
    azure = read(tmp_path, "\n".join([*rows, "2023-11-16 18:15:50.9951690,396,109", ""]))
    assert [each.text_tokens for each in azure] == [374, 396] and azure[1].arrival_s == pytest.approx(4.314579)
    lines = [{"timestamp": 27000, "input_length": 1100, "output_length": 5, "hash_ids": [1, 2, 3]}] * 2
    (one, _) = read(tmp_path, "\n".join(map(json.dumps, lines)), "m.jsonl")
    assert one.prefix == ("1", "2") and one.arrival_s == 0.0  # the third block is not whole
    bench = {"start_times": [3.0, 1.0, 2.0], "input_lens": [30, 10, 20], "output_lens": [3, 1, 0]}
    first, second = read(tmp_path, json.dumps(bench), "bench.json")
    assert (first.text_tokens, second.text_tokens, second.arrival_s) == (10, 30, 2.0)


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        ("1,10,5,,\n0,10,5,,\n", ":3", "arrivals go back, from 1 s to 0 s"),
        ("1,10,0,,\n", ":2", "0 tokens answer it"),
        ("1,0,5,,\n", ":2", "asks with 0 tokens"),
        ("1,ten,5,,\n", ":2 (text_tokens)", "`ten` is no whole number"),
        ("1,10,5,3+4,a\n", ":2", "1 hashes of 2 images"),
        ("nan,10,5,,\n", ":2", "arrives at nan s"),
        ("x,10,5,,\n", ":2 (arrival_s)", "`x` is no time"),
        ("1,10,,,\n", ":2 (output_tokens)", "there is no output_tokens"),
        ("", "--requests", "no requests"),
    ],
)
def test_what_is_no_request_is_located(tmp_path, text, where, what):
    with pytest.raises(InputError) as raised:
        read(tmp_path, TABLE + text)
    assert what in raised.value.message and raised.value.where.endswith(where) and raised.value.fix


ARRIVALS = "client,window_start_s,rate_rps,iat_cv,iat_dist,p1,p2\n"
LENGTHS = "client,window_start_s,field,value,prob\n"


def clients(tmp_path, window):
    (tmp_path / "x_lengths.csv").write_text(
        LENGTHS
        + "".join(f"{c},0,{f},{v},{p}\n" for c in (0, 1) for f, v, p in (
            ("text_tokens", 100, 0.5), ("text_tokens", 300, 0.5), ("output_tokens", 20, 1.0),
            ("image_count", 2, 0.5), ("image_count", 0, 0.5), ("image_tokens", 400, 1.0),
        ))
    )  # fmt: skip
    rates = "0,0,2,1,Gamma,1.5,0\n0,600,8,1,Weibull,0.8,0\n1,0,0,0,,0,0\n1,600,1,1,Gamma,1,0\n"
    return read(tmp_path, ARRIVALS + rates, "x_arrivals.csv", Reading(READING.image_tokens, window))


def test_servegens_clients_are_drawn_by_window_and_seed(tmp_path):
    both = clients(tmp_path, Window(0.0, 1200.0))
    assert both == clients(tmp_path, Window(0.0, 1200.0)) != clients(tmp_path, Window(0.0, 1200.0, seed=1))
    early, late = (clients(tmp_path, Window(start, 600.0, ("0",))) for start in (0.0, 600.0))
    assert len(early) == pytest.approx(1200, rel=0.15) and len(late) == pytest.approx(4800, rel=0.1)
    assert sum(each.text_tokens for each in late) / len(late) == pytest.approx(200, rel=0.05)
    assert sum(bool(each.images) for each in late) / len(late) == pytest.approx(0.5, rel=0.1)
    images = [image for each in clients(tmp_path, Window(600.0, 600.0, repeated=0.3)) for image in each.image_hashes]
    assert 1.0 - len({*images}) / len(images) == pytest.approx(0.3, abs=0.03)
    with pytest.raises(InputError, match="nobody asks"):
        clients(tmp_path, Window(0.0, 600.0, ("1",)))
