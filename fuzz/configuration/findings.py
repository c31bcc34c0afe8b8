"""A disagreement about a configuration: as a value, as a file, and as text that shows what differs.

The file is JSON and holds all that is needed to ask again:

    {"blockproof_configuration": 1, "oracle": "lockstep", "op": "num_blocks", "inputs": {...},
     "expected": {"output": [3]}, "actual": {"output": [4]}, "sides": ["Rules", "fault:one-block-more"], "seed": "1/7"}
"""

import difflib
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..findings.writing import told_if_lost, write_file
from ..traces.files import QUESTION, Form, envelope, read_file

FORM = Form("finding", "`blockproof fuzz-config`", QUESTION, 1)
LOCKSTEP, LOST, MODELS = "lockstep", "lost", "models"
CONTEXT_LINES = 3
SHOWN_LINES = 60


@dataclass(frozen=True)
class ConfigurationFinding:
    """One disagreement."""

    oracle: str
    """`lockstep`; `lost` if the target was; `models` if two models differ unexplained; or the name of an invariant."""
    op: str
    """The op of the question. For an invariant it is `configs`, whose inputs are a whole configuration."""
    inputs: Mapping[str, Any]
    expected: Any
    """The model's answer; for an invariant, what it says."""
    actual: Any
    """The target's answer, or a sentence that says what is wrong with it."""
    sides: tuple[str, str]
    """Names of those who gave the expected and the actual answer."""
    seed: str = ""
    """Which configuration of which run it came up in."""

    @property
    def target(self) -> str:
        """The target, as the user named it."""
        return self.sides[1]

    @property
    def kind(self) -> tuple[str, ...]:
        """Findings of one kind count as one, and shrinking stays within it."""
        if isinstance(self.actual, str):
            return (self.oracle, self.op)
        return (self.oracle, self.op, manner(self.expected), manner(self.actual))


def manner(answer: object) -> str:
    """How an answer ends: `output`, or the name of the exception."""
    return "output" if isinstance(answer, Mapping) and "output" in answer else str(_raised(answer))


def _raised(answer: object) -> object:
    return answer.get("raises") if isinstance(answer, Mapping) else None


def as_document(finding: ConfigurationFinding) -> dict[str, object]:
    """The finding as its file has it."""
    return {FORM.version_field: FORM.version, **vars(finding)}


def write_finding(finding: ConfigurationFinding, folder: Path) -> Path:
    """The finding as a file of its own in this folder, which is made."""
    text = json.dumps(as_document(finding), indent=1)
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    path = folder / f"configuration_{finding.oracle}_{finding.op}_{digest}.json"
    with told_if_lost():
        write_file(path, text + "\n")
    return path


def read_finding(path: Path) -> ConfigurationFinding:
    """The finding in a file. TraceError, in one line, if there is none."""
    return envelope(read_file(path, FORM), ConfigurationFinding, FORM, str(path))


def finding_text(finding: ConfigurationFinding) -> str:
    """The question in short lines, then what the two sides say of it."""
    lines = [f"{finding.oracle}: {finding.op}"]
    for name, value in finding.inputs.items():
        lines += _input_lines(name, value)
    model, target = finding.sides
    if finding.oracle != LOCKSTEP:
        return "\n".join([*lines, f"{model}: {finding.expected}", f"{target}: {finding.actual}"])
    before, after = _pretty(finding.expected), _pretty(finding.actual)
    diff = list(difflib.unified_diff(before, after, model, target, n=CONTEXT_LINES, lineterm=""))
    left_out = [f"... {len(diff) - SHOWN_LINES} more lines"] if len(diff) > SHOWN_LINES else []
    return "\n".join([*lines, *diff[:SHOWN_LINES], *left_out])


def _input_lines(name: str, value: object) -> list[str]:
    if name == "specs" and isinstance(value, dict):
        return [f"  {label} = {json.dumps(spec)}" for label, spec in value.items()]
    return [f"  {name}: {json.dumps(value)}"]


def _pretty(answer: object) -> list[str]:
    return json.dumps(answer, indent=1).splitlines()
