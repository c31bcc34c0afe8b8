"""Runs the steps of a composite action as a runner of GitHub would: expressions, conditions, environment, outputs.

Of the actions of others (`uses:`) it only notes with what they were called; what they would have done is up to a test.
"""

import os
import re
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

EXPRESSION = re.compile(r"\$\{\{\s*(.*?)\s*\}\}")


def load(path: Path) -> dict[Any, Any]:
    """A file of YAML."""
    loaded: dict[Any, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return loaded


@dataclass
class Used:
    """A step that calls somebody else's action."""

    action: str
    given: dict[str, str]


@dataclass
class Job:
    """What came of the steps."""

    log: str = ""
    failed: bool = False
    seconds: float = 0.0
    used: list[Used] = field(default_factory=list)
    outputs: dict[str, dict[str, str]] = field(default_factory=dict)
    """Of each step with an id."""
    summary: str = ""

    @property
    def annotations(self) -> list[str]:
        """The workflow commands that show errors."""
        return [line for line in self.log.splitlines() if line.startswith("::error")]

    def call(self, action: str) -> dict[str, str] | None:
        """With what an action was called; None if it was not."""
        return next((one.given for one in self.used if one.action.startswith(f"{action}@")), None)


class Runner:
    """A machine with a workspace, on which one job is run."""

    def __init__(self, workspace: Path, scratch: Path, environ: Mapping[str, str]) -> None:
        """`environ` is what the image of the runner has."""
        self._workspace, self._scratch = workspace, scratch
        scratch.mkdir(parents=True, exist_ok=True)
        self._summary = scratch / "summary.md"
        commit = _git(workspace, "rev-parse", "HEAD")
        self._environ = {
            **environ,
            "CI": "true",
            "GITHUB_ACTIONS": "true",
            "GITHUB_WORKSPACE": str(workspace),
            "GITHUB_SHA": commit,
            "GITHUB_JOB": "kv-cache",
            "GITHUB_RUN_ATTEMPT": "1",
            "GITHUB_STEP_SUMMARY": str(self._summary),
            "RUNNER_OS": "Linux",
            "RUNNER_TEMP": str(scratch),
        }

    def run(self, action: Path, given: Mapping[str, str]) -> Job:
        """Run all steps of the action in this file with these inputs."""
        described = load(action)
        assert described["runs"]["using"] == "composite"
        declared = described["inputs"]
        assert set(given) <= set(declared), "the runner warns of unexpected inputs"
        missing = [name for name, one in declared.items() if one.get("required") and name not in given]
        assert not missing, missing
        inputs = {name: str(given.get(name, one.get("default", ""))) for name, one in declared.items()}
        job = Job()
        begin = time.monotonic()
        for number, step in enumerate(described["runs"]["steps"]):
            self._step(step, number, action, inputs, job)
        job.seconds = time.monotonic() - begin
        job.summary = self._summary.read_text(encoding="utf-8") if self._summary.exists() else ""
        return job

    def _step(self, step: dict[str, Any], number: int, action: Path, inputs: dict[str, str], job: Job) -> None:
        def filled(text: object) -> str:
            return EXPRESSION.sub(lambda match: str(_value(match[1], inputs, job, self._scratch)), str(text))

        condition = step.get("if", "success()")
        wanted = _value(EXPRESSION.sub(lambda match: match[1], str(condition)), inputs, job, self._scratch)
        if not wanted or (job.failed and not re.search(r"(cancelled|always|failure)\(\)", str(condition))):
            return
        if "uses" in step:
            job.used.append(Used(step["uses"], {name: filled(value) for name, value in step["with"].items()}))
            return
        assert step["shell"] == "bash", "a composite action names the shell of each step"
        output = self._scratch / f"output-{number}"
        output.touch()
        environ = {name: filled(value) for name, value in step.get("env", {}).items()}
        script = self._scratch / f"step-{number}.sh"
        script.write_text(filled(step["run"]), encoding="utf-8")
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)],
            cwd=self._workspace / filled(step.get("working-directory", ".")),
            env={
                **self._environ,
                **environ,
                "GITHUB_OUTPUT": str(output),
                "GITHUB_ACTION_PATH": str(action.parent),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        job.log += done.stdout
        job.failed |= done.returncode != 0
        if "id" in step:
            pairs = (line.split("=", 1) for line in output.read_text(encoding="utf-8").splitlines())
            job.outputs[step["id"]] = dict(pairs)


def _value(expression: str, inputs: Mapping[str, str], job: Job, temp: Path) -> object:
    """The value of an expression, for the few forms that our action uses. ValueError for any other."""
    if " && " in expression:
        return all(_value(part, inputs, job, temp) for part in expression.split(" && "))
    if match := re.fullmatch(r"(.+) != '(.*)'", expression):
        return _value(match[1], inputs, job, temp) != match[2]
    if match := re.fullmatch(r"inputs\.([\w-]+)", expression):
        return inputs[match[1]]
    if match := re.fullmatch(r"steps\.([\w-]+)\.outputs\.([\w-]+)", expression):
        return job.outputs.get(match[1], {}).get(match[2], "")
    if expression.startswith("hashFiles("):
        return "0123abcd"
    known = {"runner.os": "Linux", "runner.temp": str(temp), "!cancelled()": True, "success()": not job.failed}
    if expression not in known:
        raise ValueError(f"the runner of the tests does not know {expression!r}")
    return known[expression]


def _git(folder: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


def repository(folder: Path) -> None:
    """Put a folder under version control, as it is, in one commit that is the same wherever it is made."""
    who = {"GIT_AUTHOR_NAME": "A", "GIT_AUTHOR_EMAIL": "a@example.org", "GIT_AUTHOR_DATE": "2026-01-01T00:00:00Z"}
    who |= {name.replace("AUTHOR", "COMMITTER"): value for name, value in who.items()}
    commands = ([["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "All of it"]],)
    for words in commands[0]:
        subprocess.run(["git", *words], cwd=folder, check=True, env={**os.environ, **who})
