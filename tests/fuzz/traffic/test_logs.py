"""Request logs: what is read of each form, and what is said of a file that cannot be read."""

import json
from pathlib import Path

import pytest
from blockproof.fuzz.traffic.driver import TrafficSetting
from blockproof.fuzz.traffic.fuzzing import ideal
from blockproof.fuzz.traffic.logs import MADE_UNIT, Log, Logged, read_log


def line(timestamp: float = 0, prompt: int = 600, output: int = 3, ids: object = (7, 8)) -> str:
    return json.dumps({"timestamp": timestamp, "input_length": prompt, "output_length": output, "hash_ids": ids})


def written(folder: Path, text: str, name: str = "log.jsonl") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_a_line_of_mooncake_is_a_request(tmp_path: Path) -> None:
    log = read_log(written(tmp_path, f"{line(2000)}\n\n{line(1500, 1, 0, [7])}\n"))
    assert log == Log(512, (Logged(0.0, 1, 1, (7,)), Logged(0.5, 600, 3, (7, 8))))
    assert log.longest == 603


def test_lengths_are_divided_and_prefixes_stay(tmp_path: Path) -> None:
    log = read_log(written(tmp_path, line())).shortened(32)
    assert log == Log(16, (Logged(0.0, 19, 1, (7, 8)),))
    with pytest.raises(ValueError, match="3 does not divide the 16 tokens"):
        log.shortened(3)


def test_a_cut_begins_at_once(tmp_path: Path) -> None:
    log = read_log(written(tmp_path, "\n".join(line(1000 * number) for number in range(5))))
    assert [one.arrival for one in log.cut(3, 1).requests] == [0.0]
    assert [one.arrival for one in log.cut(3, None).requests] == [0.0, 1.0]
    with pytest.raises(ValueError, match="there is no request 5; the log has 5"):
        log.cut(5, None)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "there is no request in it"),
        ("{", "line 1: this is no JSON"),
        (line() + "\n[]", "line 2: expected an object with timestamp"),
        (line(ids=["7", "8"]), "line 1: expected an object with"),
        (line(ids=[7]), "line 1: 600 tokens have 2 hash_ids, not 1"),
        (line(prompt=-1, ids=[]), "line 1: a time or a length is out of range"),
        (line(timestamp=float("inf")), "line 1: a time or a length is out of range"),
        (line(prompt=1 << 20, output=1, ids=[1]), "line 1: 1048577 tokens; a request may have 1,048,576"),
        ("[" * 100_000, "line 1: this is no JSON"),
    ],
)
def test_a_broken_log_is_refused_in_one_line(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=r"log\.jsonl") as error:
        read_log(written(tmp_path, text))
    assert problem in str(error.value)
    assert "\n" not in str(error.value)


def test_a_file_that_is_no_text_or_not_there(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    with pytest.raises(ValueError, match="No such file"):
        read_log(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match=r"this is no text in UTF-8 \(byte 0\)"):
        read_log(path)


AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:50.6805900,396,109
"""
BURST = """Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type
5,a,1.5,ChatGPT,40,18,58,Conversation log
9,b,1.5,ChatGPT,50,0,50,Conversation log
45,a,1.5,GPT-4,100,27,127,Conversation log
"""


def test_lengths_of_azure(tmp_path: Path) -> None:
    log = read_log(written(tmp_path, AZURE, "azure.csv"))
    assert [(one.arrival, one.prompt, one.output) for one in log.requests] == [(0.0, 374, 44), (4.0, 396, 109)]
    assert log.unit == MADE_UNIT
    assert [len(one.content) for one in log.requests] == [24, 25]


def test_the_prompts_of_a_session_begin_alike(tmp_path: Path) -> None:
    first, other, second = read_log(written(tmp_path, BURST, "burst.csv")).requests
    assert second.content[: len(first.content)] == first.content
    assert not {*other.content}.intersection(second.content)
    assert other.output == 1


def test_made_up_content_follows_seed_and_share(tmp_path: Path) -> None:
    rows = "".join(f"{number},200,5\n" for number in range(50))
    path = written(tmp_path, f"timestamp,input_length,output_length\n{rows}", "lengths.csv")
    assert read_log(path, seed=3) == read_log(path, seed=3) != read_log(path, seed=4)
    shares = [ideal(read_log(path, 1, shared), 16).ratio for shared in (0.0, 0.5, 1.0)]
    assert shares[0] == 0.0 < shares[1] < shares[2] == 49 * 192 / (50 * 200)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a,b\n1,2\n", "line 1: there is no column for arrival (timestamp or"),
        ("timestamp,input_length,output_length\n1,x,2\n", "line 2: expected a time and two lengths, got 1, x, 2"),
        ("timestamp,input_length,output_length\n", "there is no request in it"),
    ],
)
def test_a_broken_table_is_refused_in_one_line(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=r"log\.csv") as error:
        read_log(written(tmp_path, text, "log.csv"))
    assert problem in str(error.value)


def test_a_cache_without_end_by_hand() -> None:
    log = Log(
        4, (Logged(0, 10, 1, (1, 2, 3)), Logged(0, 12, 1, (1, 2, 3)), Logged(0, 8, 1, (1, 2)), Logged(0, 3, 1, (2,)))
    )
    best = ideal(log, 2)
    assert (best.asked, best.entries) == (33, 9)
    assert best.hit == 0 + 10 + 6 + 0  # of the third, the last token is computed again, so its last block is
    assert best.entries_hit == 0 + 3 + 2 + 0
    assert ideal(log, 4).hit == 0 + 8 + 4 + 0


def test_groups_of_a_setting_differ_and_the_pool_holds_the_longest() -> None:
    shape = TrafficSetting(("full", "sliding", "sliding"), 16, divisor=32).shape(1000)
    assert len({group.spec for group in shape.groups}) == 3
    assert shape.groups[1].window == 32
    assert shape.num_blocks > 63
    assert TrafficSetting(blocks=100).shape(1000).num_blocks == 101
