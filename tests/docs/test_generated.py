"""Pages that are written by machine, or that list what the code has, are what the code says today.

Those of findings, deviations, releases and exploration are compared next to the code that writes them.
"""

import json
import re
import subprocess
import sys
from dataclasses import MISSING, fields

from blockproof.fuzz.findings.cause import Cause, Frame
from blockproof.fuzz.findings.reading import MAX_FILE_BYTES
from blockproof.fuzz.findings.starved import EVERY_OPERATION
from blockproof.fuzz.releases.versions import releases_between
from blockproof.fuzz.traces import trace_file
from blockproof.fuzz.traces.schema import BEYOND, trace_schema
from blockproof.fuzz.workload.shapes import ATTENTION
from blockproof.model import ops
from blockproof.model.ops import Group, Shape
from blockproof.proofs.theorems import THEOREMS

from .pages import DOCS, PAGES, ROOT

TRACE_FORMAT = (DOCS / "reference" / "trace-format.md").read_text(encoding="utf-8")
CAMPAIGN = (DOCS / "evidence" / "campaign.md").read_text(encoding="utf-8")


def section(text, heading):
    """What stands below a heading, up to the next one."""
    return re.split(r"^#+ ", text.split(f"# {heading}\n", 1)[1], maxsplit=1, flags=re.MULTILINE)[0]


def rows(text):
    """The cells of the tables in a text, without heads and rules."""
    tables = re.findall(r"^\|.*\|\n\|[ :|-]+\|\n((?:\|.*\|\n)+)", text, re.MULTILINE)
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for table in tables for line in table.splitlines()]


# The command line.


def test_the_page_of_the_command_line_is_what_help_says():
    words = [sys.executable, "docs/command_line.py"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=120, check=True)
    kept = (DOCS / "reference" / "command-line.md").read_text(encoding="utf-8")
    assert done.stdout == kept, "write it again: python docs/command_line.py --write docs/reference/command-line.md"


def test_the_page_of_declarations_is_what_is_checked():
    words = [sys.executable, "docs/declarations.py"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=120, check=True)
    kept = (DOCS / "reference" / "declarations.md").read_text(encoding="utf-8")
    assert done.stdout == kept, "write it again: python docs/declarations.py --write docs/reference/declarations.md"


# The trace format.


def fields_in(heading):
    """Fields that a section lists, each with the type and default that it says."""
    text = section(TRACE_FORMAT, heading)
    return {name.strip("`"): kind for name, kind, *_ in rows(text) if re.fullmatch(r"`[a-z_.]+`", name)}


def said_default(field):
    """How the page writes the default of a field."""
    if field.default is MISSING:
        return "required"
    default = field.default
    return f'`"{default}"`' if isinstance(default, str) else json.dumps(default)


def test_the_trace_format_has_every_field_of_a_shape_and_of_a_group():
    listed = fields_in("The shape")
    for record in (Shape, Group):
        for field in fields(record):
            kind = listed.pop(field.name) if field.name != "eagle" else listed["eagle"]
            assert kind.endswith(f", {said_default(field)}"), field.name
    assert listed.keys() <= {"eagle"}


def test_the_trace_format_has_every_field_of_the_envelope():
    listed = fields_in("The envelope")
    inner = {"finding": trace_file.FoundWhat, "found_by": trace_file.FoundBy}
    expected = {"schema", "shape", "operations", "target", "oracles", "tensors", "compared_with", *inner}
    expected |= {f"{name}.{field}" for name, record in inner.items() for field in record.__struct_fields__}
    expected |= {f"finding.cause.{field.name}" for field in fields(Cause)}
    expected |= {f"finding.cause.frames.{field.name}" for field in fields(Frame)}
    assert listed.keys() == expected
    assert f"| `schema` | integer, required | {trace_file.SCHEMA};" in TRACE_FORMAT


def test_the_trace_format_has_every_operation_with_its_fields():
    listed = {}
    for names, mentioned, *_ in rows(section(TRACE_FORMAT, "The operations")):
        listed |= {name: re.findall(r"`(\w+)`", mentioned) for name in re.findall(r"`(\w+)`", names)}
    assert listed == {name: [field.name for field in fields(kind)] for name, kind in EVERY_OPERATION.items()}
    assert all(f"`{field.name}`" in section(TRACE_FORMAT, "The operations") for field in fields(ops.Item))


def test_the_trace_format_has_the_limits():
    said = {what: int(most.replace(",", "")) for what, most in rows(section(TRACE_FORMAT, "Limits"))}
    assert said == {
        "bytes of a file": MAX_FILE_BYTES,
        "bytes of the shape, or of one operation": trace_file.MAX_PART_BYTES,
        "operations": trace_file.MAX_OPERATIONS,
        "a number of the shape or of an operation, either way": trace_file.MAX_NUMBER,
        "`num_blocks`": trace_file.MAX_NUM_BLOCKS,
        "`max_model_len`": trace_file.MAX_MODEL_LEN,
        "groups": trace_file.MAX_GROUPS,
        "ranks of either parallelism": 1024,
        "`num_blocks` times operations": trace_file.MAX_BLOCK_OPERATIONS,
        "`num_blocks` times the largest `block_size`, times the ranks": trace_file.MAX_POOL_TOKENS,
        "items of a prompt": trace_file.MAX_ITEMS,
        "tokens of all items, as far as the prompts reach": trace_file.MAX_ITEM_TOKENS,
    }


def fields_of(definition, definitions):
    """Fields of a record of the schema; those of records in it behind a dot."""
    for name, about in definition["properties"].items():
        yield name
        inner = re.search(r"#/\$defs/(\w+)", json.dumps(about))
        if inner and name != "operations":
            yield from (f"{name}.{field}" for field in fields_of(definitions[inner[1]], definitions))


def test_the_trace_format_and_the_schema_have_the_same_fields():
    schema = trace_schema()
    definitions = schema["$defs"]
    outside = [name for name in fields_of(schema, definitions) if not name.startswith("shape.")]
    assert sorted(fields_in("The envelope")) == sorted(outside)
    shape = set(definitions["Shape"]["properties"]) | set(definitions["Group"]["properties"])
    assert fields_in("The shape").keys() == shape
    for names, mentioned, *_ in rows(section(TRACE_FORMAT, "The operations")):
        for name in re.findall(r"`(\w+)`", names):
            assert ["op", *re.findall(r"`(\w+)`", mentioned)] == list(definitions[name]["properties"])
    assert [name.strip("`") for name, _ in rows(section(TRACE_FORMAT, "As JSON Schema"))] == list(BEYOND)


# The campaign: a record of one run, whose tables must fit each other.


def campaign_tables():
    """The tables by attention type, by their headings."""
    names = re.findall(r"^### (.*by attention type)$", CAMPAIGN, re.MULTILINE)
    return {name: {row[0]: row[1:] for row in rows(section(CAMPAIGN, name))} for name in names}


def test_the_campaign_has_every_release_and_every_attention_type():
    run = [row[0] for row in rows(section(CAMPAIGN, "Releases"))]
    assert [name for name in run if name.startswith("vllm==")] == list(releases_between("vllm==0.19.1..0.33.0"))
    tables = campaign_tables()
    assert len(tables) == 4
    for table in tables.values():
        assert list(table) == list(ATTENTION)
        assert {len(cells) for cells in table.values()} == {len(run) - 1}


def test_the_operations_of_the_campaign_add_up():
    total = {row[0]: int(row[2].replace(",", "")) for row in rows(section(CAMPAIGN, "Releases"))}
    table = campaign_tables()["Operations and seconds by attention type"]
    columns = zip(*table.values(), strict=True)
    for name, column in zip(total, columns, strict=False):
        assert sum(int(cell.partition(" / ")[0].replace(",", "")) for cell in column) == total[name], name


def test_the_findings_of_the_campaign_add_up():
    """A cell has kinds of findings; the table of releases counts each kind in each attention type once."""
    counted = {row[0]: int(row[3]) for row in rows(section(CAMPAIGN, "Releases"))}
    found = [table for name, table in campaign_tables().items() if name.startswith("Findings")]
    for column, name in enumerate(name for name in counted if name.startswith("vllm==")):
        cells = [cells[column] for table in found for cells in table.values()]
        assert sum(len(cell.split()) for cell in cells if cell not in ("-", "not built")) <= counted[name], name


# Ids in the documents.


def test_every_theorem_that_a_document_names_is_there():
    known = {theorem.id for theorem in THEOREMS}
    families = {id.partition(".")[0] for id in known}
    for page in PAGES:
        named = set(re.findall(r"\bT\d+(?:\.\w[\w-]*)?\b(?!\.[a-z])", page.read_text(encoding="utf-8")))
        assert {id for id in named if id not in known and id not in families} == set(), page
