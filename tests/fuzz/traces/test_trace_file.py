"""Trace files: an exact round trip, and one clear line for whatever is no trace."""

import json
import os
from unittest.mock import Mock

import pytest
from blockproof.fuzz.findings.finding import Trace
from blockproof.fuzz.traces.files import TraceError
from blockproof.fuzz.traces.trace_file import (
    MAX_NUM_BLOCKS,
    FoundBy,
    FoundWhat,
    TraceFile,
    dump_trace,
    load_trace,
    read_trace,
    write_trace,
)
from blockproof.fuzz.workload.draw import SeededDraw
from blockproof.fuzz.workload.operations import Workload
from blockproof.fuzz.workload.shapes import ATTENTION, draw_shape
from blockproof.model.core import Model
from blockproof.model.ops import Allocate, Group, Item, Shape, Submit

SHAPE = Shape((Group("full", 2),), 4, 8, hash_block_size=2, scheduler_block_size=2, max_num_batched_tokens=8)
SMALL = TraceFile(
    Trace(SHAPE, (Submit("a", (0, 1)), Allocate("a", 2))),
    "impl",
    FoundWhat("free", "Allocate", 'says "so"\nand ü'),
    FoundBy("random", 7, "0.1.0"),
)


def drawn_trace(seed: int, attention: str) -> Trace:
    draw = SeededDraw(seed)
    shape = draw_shape(draw, ATTENTION[attention])
    model = Model(shape)
    workload = Workload(draw, shape, chaos=True)
    operations = []
    for _ in range(60):
        operations.append(workload.next(model))
        model.step(operations[-1])
    return Trace(shape, tuple(operations))


@pytest.mark.parametrize("attention", ATTENTION)
def test_whatever_the_workload_draws_survives_the_round_trip(attention):
    file = TraceFile(drawn_trace(11, attention), "vllm==0.23.0")
    assert load_trace(dump_trace(file)) == file


def test_all_fields_survive_a_file(tmp_path):
    items = (Item("p", 0, 1),)
    submit = Submit("ä", (0, 0), adapter="x", salt="", items=items, embeds=(3, 4), skip_lookup=True)
    file = TraceFile(Trace(SHAPE, (submit,)), SMALL.target, SMALL.finding, SMALL.found_by)
    write_trace(file, tmp_path / "new" / "t.json")
    assert read_trace(tmp_path / "new" / "t.json") == file
    assert os.listdir(tmp_path / "new") == ["t.json"]


def test_the_same_trace_gives_the_same_text_with_an_operation_a_line():
    text = dump_trace(SMALL)
    assert text == dump_trace(load_trace(text))
    assert text.isascii()
    assert '    {"op": "Allocate", "request": "a", "new_tokens": 2}\n' in text
    assert json.loads(text)["schema"] == 1


def _changed(**parts):
    return json.dumps({**json.loads(dump_trace(SMALL)), **parts})


def _shape(**parts):
    return _changed(shape={**json.loads(dump_trace(SMALL))["shape"], **parts})


SOUND = dump_trace(SMALL)
FOUND = {"observable": "S8", "operation": "Take", "text": "t"}
BAD = {
    "empty": ("", "is empty"),
    "blank": ("\n \n", "is empty"),
    "binary": (b"\x00\x01\xff\xfe" * 100, "is no trace: it does not hold a JSON object; name a file that"),
    "not UTF-8": (SOUND.encode().replace(b"random", b"r\xffndom"), "UTF-8"),
    "truncated": (SOUND[: len(SOUND) // 2], "cut off"),
    "last brace missing": (SOUND.rstrip()[:-1], "cut off"),
    "two documents": (SOUND + SOUND, "line 12"),
    "no object": ("[1, 2]", "is no trace: it does not hold a JSON object"),
    "text": ("# Notes\n\nNothing here.\n", "is no trace: it does not hold a JSON object"),
    "no schema": ("{}", "is no trace: it has no field `schema`; name a file that `blockproof fuzz`"),
    "another kind of file": ('{"blockproof_configuration": 1, "op": "x"}', "is no trace: it has no field `schema`"),
    "future schema": (_changed(schema=2), "schema: is 2, this blockproof reads 1"),
    "schema of another type": (_changed(schema="1"), "schema: Expected `int | null`, got `str`"),
    "unknown part": (_changed(extra=1), "unknown field `extra`"),
    "no shape": (json.dumps({"schema": 1, "operations": []}), "missing required field `shape`"),
    "operations no array": (_changed(operations={}), "operations: Expected `array`, got `object`"),
    "operation no object": (_changed(operations=[3]), "operations[0]: expected an object"),
    "unknown operation": (_changed(operations=[{"op": "System"}]), "operations[0].op: expected one of"),
    "operation of wrong type": (
        _changed(operations=[{"op": "Take", "count": 1}, {"op": "Take", "count": "2"}]),
        "operations[1].count: expected int, got str",
    ),
    "bool for a number": (_changed(operations=[{"op": "Take", "count": True}]), "operations[0].count: expected int"),
    "number beyond measure": (_changed(operations=[{"op": "Take", "count": 2**40}]), "operations[0].count"),
    "number beyond any type": (_changed(operations=[{"op": "Take", "count": 10**400}]), "operations[0]"),
    "field missing": (_changed(operations=[{"op": "Take"}]), "operations[0]: field 'count' of Take is missing"),
    "unknown field": (_changed(operations=[{"op": "Reset", "x": 1}]), "operations[0]: unknown field 'x'"),
    "part too long": (_changed(operations=[{"op": "Evict", "blocks": [1] * 600_000}]), "operations[0]"),
    "finding mistyped": (_changed(finding={"observable": 1}), "finding"),
    "unknown field of a cause": (
        _changed(finding={**FOUND, "cause": {"type": "E", "message": "m", "x": 1}}),
        "finding.cause: unknown field 'x'",
    ),
    "cause mistyped": (
        _changed(finding={**FOUND, "cause": {"type": "E", "message": "m", "frames": [{"file": 1}]}}),
        "finding.cause.frames[0]",
    ),
    "huge pool": (_shape(num_blocks=MAX_NUM_BLOCKS + 1), "shape.num_blocks"),
    "no pool": (_shape(num_blocks=0), "shape.num_blocks: is 0, must be from 1"),
    "huge model": (_shape(max_model_len=2**30), "shape.max_model_len"),
    "hash block of nothing": (_shape(hash_block_size=0), "shape.hash_block_size"),
    "negative block": (_shape(groups=[{"kind": "full", "block_size": -1}]), "shape.groups[0].block_size"),
    "no window": (_shape(groups=[{"kind": "sliding", "block_size": 1}]), "shape.groups[0].window"),
    "no chunk": (_shape(groups=[{"kind": "chunked", "block_size": 1}]), "shape.groups[0].chunk"),
    "unknown kind": (_shape(groups=[{"kind": "linear", "block_size": 1}]), "shape.groups[0].kind: expected one of"),
    "too many groups": (_shape(groups=[{"kind": "full", "block_size": 1}] * 33), "shape.groups"),
    "deep arrays": ("[" * 10**6, "is no trace"),
    "deep objects": ('{"a":' * 10**6, "nested too deeply"),
    "deep arrays in an operation": (SOUND.replace('"new_tokens": 2', '"new_tokens": ' + "[" * 10**6), "too deeply"),
    "closed deep arrays": (_changed(operations=[]).replace("[]", "[" * 10**5 + "]" * 10**5), "nested too deeply"),
    "a name without end": (_changed(operations=[{"op": "x" * 10**6}]), "operations[0].op"),
    "control characters": (_changed(operations=[{"op": "\x1b[31m\n"}]), "operations[0].op"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_trace_is_refused_in_one_line_that_names_the_place(name, tmp_path):
    content, part = BAD[name]
    path = tmp_path / "t.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(TraceError) as caught:
        read_trace(path)
    text = str(caught.value)
    assert text.startswith(f"{path}: ")
    assert part in text
    assert text.isprintable()
    assert len(text) < 1000


def test_a_missing_file_a_directory_and_a_pipe_are_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path, part in (
        (tmp_path / "none.json", "no such file"),
        (tmp_path, "is a directory"),
        (tmp_path / "pipe", "no regular file"),
    ):
        with pytest.raises(TraceError, match=part):
            read_trace(path)


def test_a_file_over_the_limit_is_not_even_read(tmp_path):
    path = tmp_path / "huge.json"
    with path.open("wb") as file:
        file.truncate(2**40)  # sparse: reading it would not end
    with pytest.raises(TraceError, match="1099511627776 bytes, more than"):
        read_trace(path)


def test_a_failed_write_leaves_the_old_trace(tmp_path, monkeypatch):
    path = tmp_path / "t.json"
    write_trace(SMALL, path)
    monkeypatch.setattr(os, "fsync", Mock(side_effect=OSError("no space left")))
    with pytest.raises(OSError, match="no space left"):
        write_trace(SMALL, path)
    assert read_trace(path) == SMALL
    assert os.listdir(tmp_path) == ["t.json"]
