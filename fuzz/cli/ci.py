"""`blockproof ci`: what a job of continuous integration runs."""

from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from .completion import attention_lists, oracle_lists, target_names
from .engines import not_with_engine
from .options import usage


def _option(name: str, what: str = "As for `fuzz`.", **more: Any) -> Any:
    """An option that may be given as a variable, too, as jobs do; an empty one counts as not given."""
    return typer.Option(help=what, envvar=f"BLOCKPROOF_{name}", show_envvar=False, **more)


def ci(
    target: Annotated[str, _option("TARGET", autocompletion=target_names)],
    corpus: Annotated[
        Path | None, _option("CORPUS", "Folder of traces that must show nothing; replayed first.")
    ] = None,
    operations: Annotated[
        int | None,
        _option("OPERATIONS", "As for `fuzz`; 100000 if no limit is given. Of an engine: steps, 20000.", min=1),
    ] = None,
    seconds: Annotated[float | None, _option("SECONDS", min=0.0)] = None,
    seed: Annotated[int | None, _option("SEED", "As for `fuzz`; taken from the commit by default.")] = None,
    attention: Annotated[str | None, _option("ATTENTION", autocompletion=attention_lists)] = None,
    oracle: Annotated[str | None, _option("ORACLE", autocompletion=oracle_lists)] = None,
    known: Annotated[Path | None, _option("KNOWN")] = None,
    floors: Annotated[Path | None, _option("FLOORS")] = None,
    report: Annotated[Path, _option("REPORT", "Folder for JUnit files, summary and findings.")] = Path(
        "blockproof-report"
    ),
    isolate: Annotated[bool, _option("ISOLATE", "Run the target in a process of its own.")] = True,
    engine: Annotated[bool, _option("ENGINE", "The target is an engine: it is simulated.")] = False,
) -> None:
    """Replay a corpus of traces, then fuzz; tell the runner what was found.

    Each option may be given as a variable, --target as BLOCKPROOF_TARGET, --patch as BLOCKPROOF_PATCH. GitHub gets
    annotations, outputs and the summary of the job. Exit codes are those of `fuzz`; 1 also if a trace of the corpus
    shows something: then nothing is fuzzed.
    """
    from ..opening.engines import is_engine
    from ..testing.ci import CiJob, run

    with suppress(ValueError):  # a name of no known form: the job tells its runner, too
        engine = is_engine(target, engine)
    if engine:
        not_with_engine(oracle=oracle, known=known, floors=floors)
    job = CiJob(target, corpus, report, operations, seconds, seed, attention, oracle, known, floors, isolate, engine)
    with usage():
        code = run(job)
    raise typer.Exit(code)
