"""The schema of traces and their loader, held against each other in both directions, and what finds a wrong schema."""

import copy
import json
import re
from dataclasses import MISSING, fields
from typing import Any

import pytest
from blockproof.fuzz.cli.main import main
from blockproof.fuzz.findings.ops_json import to_json
from blockproof.fuzz.findings.reading import MAX_FILE_BYTES
from blockproof.fuzz.traces import trace_file
from blockproof.fuzz.traces.files import TraceError
from blockproof.fuzz.traces.schema import BEYOND, trace_schema
from blockproof.fuzz.traces.trace_file import Envelope, load_trace
from blockproof.model.ops import OPERATIONS
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from ...docs.pages import DOCS, ROOT

SCHEMA = trace_schema()
VALIDATOR = Draft202012Validator(SCHEMA)

# Traces that have every field.

GROUPS = (
    {"kind": "full", "block_size": 2, "window": 0, "chunk": 0, "sink_len": 1, "num_heads": 2, "eagle": True},
    {"kind": "sliding", "block_size": 2, "window": 3},
    {"kind": "sliding_mla", "block_size": 2, "window": 1},
    {"kind": "chunked", "block_size": 2, "chunk": 4},
    {"kind": "mamba", "block_size": 2, "mamba_mode": "align", "speculative_blocks": 1},
)
PLAIN: dict[str, Any] = {
    "groups": [], "num_blocks": 4, "max_model_len": 8, "hash_block_size": 2, "scheduler_block_size": 2,
    "max_num_batched_tokens": 4, "caching": False, "eagle": True, "events": True, "stats": True,
    "retention_interval": 2,
}  # fmt: skip
PARALLEL = {**PLAIN, "groups": [GROUPS[0]], "decode_parallel": 2, "prefill_parallel": 1}
VALUES: dict[str, Any] = {
    "prompt": [1, 2], "adapter": "x", "salt": "s", "items": [{"identifier": "i", "offset": 0, "length": 1}],
    "embeds": [None, 3], "sampled": [0], "blocks": [1], "requests": ["a", "b"],
}  # fmt: skip
"""What a field of an operation holds that is neither a number, a switch nor a plain text."""
FINDING: dict[str, Any] = {
    "observable": "S8", "operation": "Allocate", "text": "t", "identity": ["contract"],
    "cause": {
        "type": "ValueError", "message": "m",
        "frames": [{"file": "f.py", "line": 1, "function": "f", "adapter": True}],
    },
}  # fmt: skip
OUTER: dict[str, Any] = {
    **dict.fromkeys(Envelope.__struct_fields__, "a"),
    "schema": 1, "target": "impl", "oracles": ["shadow", "strict"], "tensors": "cpu",
    "found_by": {"engine": "random", "seed": 1, "version": "0.1.0"}, "finding": FINDING,
    "shape": PLAIN, "operations": [],
}  # fmt: skip


def trace(*operations, **shape):
    """A trace with nothing but these operations and fields of its shape."""
    return {"schema": 1, "shape": {**PLAIN, **shape}, "operations": [*operations]}


def full_operation(name):
    """An operation with every field that its kind has."""
    kinds: dict[object, Any] = {int: 1, str: "a", bool: True, int | None: 1, tuple[int, ...]: [0]}
    values = {field.name: VALUES[field.name] if field.name in VALUES else kinds[field.type] for field in
              fields(OPERATIONS[name])}  # fmt: skip
    return {"op": name, **values}


DOCUMENTS = {
    "envelope": OUTER,
    "shape": trace(**PARALLEL),
    **{f"group {group['kind']}": trace(groups=[group]) for group in GROUPS},
    **{name: trace(full_operation(name)) for name in OPERATIONS},
}

# The comparison.

LIMITS = {
    "part-bytes": r"\d+ bytes, more than the \d+ that a part may have",
    "block-operations": r"\d+ blocks times operations, more than",
    "pool-tokens": r"has room for \d+ tokens, more than",
}
"""How the loader says the limits that are products or sizes."""


def refusal(text):
    """What the loader says of a trace; empty if it reads it."""
    try:
        load_trace(text)
    except TraceError as error:
        return str(error)
    return ""


def plainly_written(value):
    """The same document as the writer of a trace would write it: integers without a fraction, whole characters."""
    if isinstance(value, dict):
        return {plainly_written(name): plainly_written(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [plainly_written(inner) for inner in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return re.sub(r"[\ud800-\udfff]", "?", value) if isinstance(value, str) else value


def disagreement(document, validator=VALIDATOR):
    """What the schema and the loader say of a document if they do not agree and no declared limit explains it."""
    accepted, said = validator.is_valid(document), refusal(json.dumps(document))
    if accepted and said:
        said = refusal(json.dumps(plainly_written(document)))
        if any(re.search(words, said) for words in LIMITS.values()):
            said = ""
        return said and f"only the loader refuses it: {said}"
    return "only the schema refuses it" if not accepted and not said else ""


# Documents at every edge.

STRANGE = (
    None, True, 0, -1, 1, 1.0, 1.5, 2**31, 2**31 + 1, -(2**31), -(2**31) - 1, "", "a", "\ud800", [], [0], [None], ["a"],
    [[]], {}, {"a": 1},
)  # fmt: skip
"""Values of every kind, and numbers at the limits of all numbers."""
SPECIAL = (
    2, 3, 1024, 1025, 2**20, 2**20 + 1, 2**64, "full", "sink", "mamba", "cross", "align", "no-S14", "shadow ",
    "x" * 1_000, "x" * 1_001, ["shadow"] * 100, ["shadow"] * 101,
    *([{"kind": "full", "block_size": 1}] * count for count in (1, 2, 32, 33)),
)  # fmt: skip
"""Values at the limits of what stands around the operations."""


def places(value, path=()):
    """The path of every value in a document."""
    yield path
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from places(value[key], (*path, key))


def changed(document, path, change):
    """A copy of the document in which `change` was made to the value at this path in what holds it."""
    root = [copy.deepcopy(document)]
    holder = root
    for key in (0, *path)[:-1]:
        holder = holder[key]
    change(holder, (0, *path)[-1])
    return root[0]


def edges(document, values, apart_from):
    """The document, and with each value of it but of those fields replaced, left out, or with a field too many."""
    yield document
    for path in places(document):
        if path[:1] and path[0] in apart_from:
            continue
        for strange in values:
            yield changed(document, path, lambda holder, key, it=strange: holder.__setitem__(key, copy.deepcopy(it)))
        if path:
            yield changed(document, path, lambda holder, key: holder.__delitem__(key))
        if isinstance(value_at(document, path), dict):
            yield changed(document, path, lambda holder, key: holder[key].__setitem__("unknown", 1))


def value_at(document, path):
    for key in path:
        document = document[key]
    return document


def edges_of(name):
    """Edges of one of `DOCUMENTS`; of an operation only where that operation is."""
    if name in OPERATIONS:
        return edges(DOCUMENTS[name], STRANGE, {"schema", "shape"})
    return edges(DOCUMENTS[name], STRANGE + SPECIAL, {"schema", "operations"} if name != "envelope" else {"shape"})


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_schema_takes_what_the_loader_takes_at_every_edge(name):
    assert disagreement(DOCUMENTS[name]) == ""
    assert VALIDATOR.is_valid(DOCUMENTS[name])
    assert [(document, said) for document in edges_of(name) if (said := disagreement(document))] == []


def traces_of_the_repository():
    """Every trace file in the folders of documents, examples and tests."""
    for folder in ("docs", "examples", "tests"):
        for path in sorted((ROOT / folder).rglob("*.json")):
            document = json.loads(path.read_text(encoding="utf-8"))
            if isinstance(document, dict) and {"schema", "operations"} <= document.keys():
                yield path, document


def test_every_trace_of_the_repository_is_what_the_schema_says():
    found = list(traces_of_the_repository())
    assert len(found) > 50
    assert [str(path) for path, document in found if disagreement(document) or not VALIDATOR.is_valid(document)] == []


@settings(derandomize=True, max_examples=100, deadline=None)
@given(st.data())
def test_the_two_agree_on_traces_that_are_changed_in_several_places(data):
    document = data.draw(st.sampled_from(REAL))
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from(list(places(document))))
        other = data.draw(st.sampled_from(REAL))
        taken = value_at(other, data.draw(st.sampled_from(list(places(other)))))
        value = data.draw(
            st.one_of(st.just(taken), st.sampled_from(STRANGE + SPECIAL), st.integers(), st.text(max_size=5))
        )
        if path and data.draw(st.booleans()):
            document = changed(document, path, lambda holder, key, it=value: holder.__setitem__(key, it))
        elif path:
            document = changed(document, path, lambda holder, key: holder.__delitem__(key))
    assert disagreement(document) == ""


REAL = [*DOCUMENTS.values(), *(document for _, document in traces_of_the_repository() if len(str(document)) < 4_000)]

# What a schema cannot say.

BEYOND_EXAMPLES = {
    "part-bytes": trace({"op": "Submit", "request": "a" * 2**20, "prompt": []}),
    "block-operations": trace(*[{"op": "Reset"}] * 257, num_blocks=2**20),
    "pool-tokens": trace(num_blocks=2**10, groups=[{"kind": "full", "block_size": 2**17}]),
    "written-whole": trace({"op": "Take", "count": 1.0}),
    "characters": trace({"op": "Lookup", "request": "\ud800"}),
}
SAID = {**LIMITS, "written-whole": "expected int, got float", "characters": "the file is broken"}


def test_every_limit_beyond_the_schema_is_declared_and_met(tmp_path):
    for name, document in BEYOND_EXAMPLES.items():
        assert VALIDATOR.is_valid(document), name
        assert re.search(SAID[name], refusal(json.dumps(document))), name
        assert disagreement(document) == "", name

    # Those which this test cannot write as a document: Python reads no such number, and the file would be too large.
    text = json.dumps(OUTER).replace('"seed": 1', f'"seed": {"9" * 4_300}')
    assert refusal(text) == ""
    assert "out of range" in refusal(text.replace("9" * 4_300, "9" * 4_301))
    assert VALIDATOR.is_valid({**OUTER, "found_by": {**OUTER["found_by"], "seed": 10**4_300}})
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(OUTER))
    with pytest.raises(TraceError, match="more than the 100 a trace may have"):
        trace_file.read_trace(path, 100)
    assert str(MAX_FILE_BYTES) in BEYOND["file-bytes"]

    assert BEYOND_EXAMPLES.keys() | {"digits", "file-bytes"} == BEYOND.keys()
    assert all(sentence in SCHEMA["$comment"] for sentence in BEYOND.values())


# The documents and the command.


def test_the_schema_is_a_schema_and_the_file_and_the_command_are_it(capsys):
    Draft202012Validator.check_schema(SCHEMA)
    assert main(["schema"]) == 0
    printed = capsys.readouterr().out
    kept = (DOCS / "reference" / "trace.schema.json").read_text(encoding="utf-8")
    assert printed == kept, "write it again: blockproof schema > docs/reference/trace.schema.json"
    assert json.loads(printed) == json.loads(json.dumps(SCHEMA))
    assert main(["schema", "of-what"]) == 2


def test_the_schema_has_the_defaults_of_the_types():
    for name, kind in OPERATIONS.items():
        said = SCHEMA["$defs"][name]["properties"]
        for field in fields(kind):
            if field.default is not MISSING:
                assert said[field.name]["default"] in (field.default, to_json(field.default)), (name, field.name)


# Who checks the checker: a schema that is wrong in one place.

GONE = object()


@pytest.mark.parametrize(
    ("path", "value", "name"),
    [
        # a field too few, or a limit too narrow: the loader takes what the schema refuses
        (("$defs", "Allocate", "properties", "gate"), GONE, "Allocate"),
        (("$defs", "Shape", "properties", "stats"), GONE, "shape"),
        (("$defs", "Frame", "properties", "adapter"), GONE, "envelope"),
        (("$defs", "Group", "properties", "kind", "enum"), ["full", "mla"], "group mamba"),
        (("$defs", "Group", "properties", "sink_len", "maximum"), 2**31 - 1, "group full"),
        (("properties", "operations", "items", "anyOf"), [{"$ref": "#/$defs/Free"}], "Take"),
        (("required",), ["schema", "shape", "operations", "target"], "shape"),
        # too loose: the schema takes what the loader refuses
        (("$defs", "Cause", "additionalProperties"), GONE, "envelope"),
        (("$defs", "Take", "additionalProperties"), GONE, "Take"),
        (("$defs", "Take", "properties", "count", "maximum"), GONE, "Take"),
        (("$defs", "Submit", "properties", "prompt", "items"), GONE, "Submit"),
        (("$defs", "Group", "allOf"), GONE, "group sliding"),
        (("$defs", "Group", "properties", "mamba_mode", "enum"), GONE, "group mamba"),
        (("$defs", "Shape", "required"), ["groups"], "shape"),
        (("$defs", "Shape", "allOf"), GONE, "shape"),
        (("$defs", "Shape", "properties", "groups", "maxItems"), 33, "group full"),
        (("$defs", "Shape", "properties", "num_blocks", "maximum"), 2**20 + 1, "shape"),
        (("properties", "target", "maxLength"), GONE, "envelope"),
        (("properties", "schema"), {}, "envelope"),
    ],
    ids=lambda value: ".".join(map(str, value)) if isinstance(value, tuple) else "",
)
def test_a_schema_that_is_wrong_in_one_place_is_noticed(path, value, name):
    def spoil(holder, key):
        holder[key] = value
        if value is GONE:
            del holder[key]

    validator = Draft202012Validator(changed(SCHEMA, path, spoil))
    assert any(disagreement(document, validator) for document in edges_of(name))
