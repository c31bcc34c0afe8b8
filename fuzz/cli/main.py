"""The command line `blockproof`: its commands and its exit codes.

0: nothing was found. 1: a finding, or a floor that was not reached. 2: wrong usage or bad input. 3: a target could not
be started, a run tested nothing, or not all of it ran. 70: a bug of blockproof itself. 130: Ctrl-C, SIGTERM or SIGHUP
ended it and nothing was found until then. 141: whoever read the output has closed the pipe.

What a command needs is imported when it runs, so that `blockproof -h` answers at once.
"""

import atexit
import faulthandler
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from functools import cache
from typing import Annotated

import typer

from ..adapters import example
from ..findings.interruption import listen
from ..findings.visible import one_line, visible
from ..planning.fields import ModelError
from ..reports.floors import FloorsError
from ..reports.screen import guarded
from ..targets.base import TargetUnavailableError
from ..targets.memory import enough_memory
from ..targets.unharmed import really_exit, unharmed
from ..traces.files import TraceError
from .bench import bench
from .bisect import bisect
from .campaign import app as campaign_app
from .campaign_store import export, minimise, status
from .ci import ci
from .compat import app as compat_app
from .completion import rejoin_bash_words
from .configurations import fuzz_config
from .deviations import deviations
from .diff import diff
from .explore import explore
from .fast import fast
from .findings import findings
from .fuzz import fuzz
from .mutants import mutants
from .patches import patchable
from .plan import plan
from .prove import prove
from .renamed import as_called_now, what_became_of
from .report import report
from .simulation import simulate
from .targets import app as targets_app
from .traces import replay, schema, shrink
from .traffic import fuzz_traffic
from .verify import verify
from .watch import watch

NO_COMMAND = "no command; see blockproof -h"
HELP = "Hold a KV-cache core against its specification, operation by operation."
RELEASE = example()
FAMILY = RELEASE.partition("==")[0]
CONTEXT = {"help_option_names": ["-h", "--help"]}

app = typer.Typer(no_args_is_help=True, context_settings=CONTEXT, pretty_exceptions_enable=False)
app.command(epilog="Example: blockproof fuzz --target impl --seconds 30")(patchable(fuzz))
app.command("fuzz-config", epilog=f"Example: blockproof fuzz-config --target {RELEASE} --cases 20000")(
    patchable(fuzz_config)
)
app.command(epilog=f"Example: blockproof simulate --target {RELEASE} --steps 20000 --seed 1")(patchable(simulate))
app.command("fuzz-traffic", epilog="Example: blockproof fuzz-traffic requests.jsonl --requests 1000 --block-size 512")(
    fuzz_traffic
)
app.command(epilog="Example: blockproof replay findings/free_free_1a2b3c4d.json --show")(patchable(replay))
app.command(epilog="Example: blockproof report findings/free_free_1a2b3c4d.json --open")(report)
app.command(epilog=f"Example: blockproof shrink trace.json --target {RELEASE}")(patchable(shrink))
app.command(epilog="Example: blockproof schema > trace.schema.json")(schema)
app.command(epilog="Example: blockproof bisect trace.json --releases 0.20.2..0.33.0")(patchable(bisect, handed=True))
app.command(epilog="Example: blockproof ci --target my_target:make_target --corpus tests/regressions")(
    patchable(ci, variables=True)
)
app.command(epilog="Example: blockproof mutants --only free-order-reversed")(mutants)
app.command(epilog=f"Example: blockproof deviations --target {RELEASE} --check docs/evidence/deviations")(deviations)
app.command(epilog="Example: blockproof plan examples/gemma-3-27b.json --memory 60GiB --max-model-len 131072")(plan)
app.command(epilog=f"Example: blockproof prove T4 T5 --target {RELEASE}")(patchable(prove))
app.command(epilog="Example: blockproof explore sliding full+mamba --jobs 2")(explore)
app.command(epilog="Example: blockproof fast && blockproof fuzz --target impl-compiled --seconds 30")(fast)
app.command(epilog=f"Example: blockproof diff --target {RELEASE} --target impl")(patchable(diff, beside=True))
app.command(epilog="Example: blockproof verify --git main..HEAD --target my_target.py:make_target")(
    patchable(verify, beside=True)
)
app.command(epilog=f"Example: blockproof watch {FAMILY} --write page.md")(watch)
app.command(epilog=f"Example: blockproof bench --against {RELEASE} --only 'decode*'")(patchable(bench))
app.command(epilog=f"Example: blockproof findings docs/evidence/findings --releases {FAMILY}")(findings)
campaign_app.command(epilog="Example: blockproof campaign status campaign.sqlite --watch")(status)
campaign_app.command(epilog="Example: blockproof campaign minimise campaign.sqlite")(minimise)
campaign_app.command(epilog="Example: blockproof campaign export campaign.sqlite --out findings")(export)
app.add_typer(campaign_app, name="campaign")
app.add_typer(targets_app, name="targets")
app.add_typer(compat_app, name="compat")


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"blockproof {version('blockproof')}")
        raise typer.Exit


@app.callback(help=HELP)
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """The options of `blockproof` itself."""


THREADS_S = 0.5
"""How long threads that a target has left behind are waited for."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line. Returns the exit code; what was wrong goes to stderr.

    Without arguments this is the program, and they are `sys.argv`: then it listens to the signals that end one, and
    threads that a target has left running do not keep it from its end.
    """
    if arguments is not None:
        return _run(arguments)
    _open_streams()
    if not enough_memory():
        return _give_up("numpy cannot be loaded in the memory that is allowed (ulimit -v); allow more", 3)
    listen()
    with unharmed():
        code = _run(None)
    _leave_threads(code)
    return code


def _open_streams() -> None:
    """Where whoever started the program has closed a stream, what goes there goes nowhere: else the next file that is
    opened would be taken for it."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # which takes the first number that is free
        if getattr(sys, name) is None:
            stream = open(number, "r" if number == 0 else "w", closefd=False)  # noqa: SIM115 - for good
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)


def _leave_threads(code: int) -> None:
    """End the program at once if threads that are no daemons go on: Python would wait for them."""
    end = time.monotonic() + THREADS_S
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join(max(0.0, end - time.monotonic()))
            if thread.is_alive():
                atexit._run_exitfuncs()
                for stream in filter(None, (sys.stdout, sys.stderr)):
                    stream.flush()
                really_exit(code)


@cache
def command() -> Callable[..., object]:
    """Made once, since it takes a tenth of a second; tests run thousands of commands in one process."""
    return typer.main.get_command(app)


def _run(arguments: Sequence[str] | None) -> int:
    if os.environ.get("_BLOCKPROOF_COMPLETE") == "complete_bash":
        rejoin_bash_words()
    if sys.__stderr__ is not None and not faulthandler.is_enabled():
        faulthandler.enable(sys.__stderr__)  # a target in this process that crashes ends it, but not without a word
    arguments = as_called_now(sys.argv[1:] if arguments is None else arguments)
    try:
        with guarded() as screen, unharmed():
            code = command()(arguments, standalone_mode=False)
            sys.stdout.flush()
        code = code if isinstance(code, int) else 0
        return code if screen.problem is None else _not_printed(screen.problem, code)
    except SystemExit as end:  # the command line's parser and rich end so where a pipe is closed
        if not isinstance(end.__context__, BrokenPipeError):
            raise
        return _pipe_closed()
    except (typer.Abort, KeyboardInterrupt):
        return _give_up("interrupted", 130)
    except (TraceError, FloorsError, ModelError) as error:
        return _give_up(str(error), 2)
    except TargetUnavailableError as error:
        return _give_up(str(error), 3)
    except BrokenPipeError:
        return _pipe_closed()
    except OSError as error:
        return _give_up(f"{error.filename or 'a file'}: {error.strerror}; check the path and its permissions", 2)
    except MemoryError:
        return _give_up("there is not enough memory; run it with less, or allow more", 3)
    except Exception as error:
        if hasattr(error, "format_message"):  # of the command line's parser
            return _give_up(what_became_of(error, arguments) or error.format_message() or NO_COMMAND, 2)
        print(visible(traceback.format_exc()), end="", file=sys.stderr)
        return _give_up("this is a bug of blockproof: please report the lines above and the command", 70)


def _not_printed(problem: OSError, code: int) -> int:
    """The exit code of a command whose output has not all arrived: its own, unless that would be a success."""
    _give_up(f"the output: {problem.strerror}; not all of it was printed", code)
    _drop_output()
    return code or 2


def _pipe_closed() -> int:
    """Whoever read our output has gone, which is not a finding: the exit code of a shell for that (128 + SIGPIPE).

    Python would complain when it flushes at exit.
    """
    _drop_output()
    return 141


def _drop_output() -> None:
    """What is still to be printed goes nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in filter(None, (sys.__stdout__, sys.__stderr__)):
        try:
            stream.flush()
        except OSError:
            os.dup2(nowhere, stream.fileno())
        except ValueError:  # it is closed
            continue


def _give_up(problem: str, code: int) -> int:
    print(f"blockproof: {one_line(problem)}", file=sys.stderr)
    return code
