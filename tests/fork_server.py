"""The program of a `forked.Server`: imports once what takes long, then forks a process for each command that comes.

It runs in the interpreter of a release, and imports nothing of ours by itself, or in ours. `python fork_server.py
SOCKET SPACE MODULE...`: first it says whether it can fork, where it looks for modules, and which it has. A command
comes over the socket with the descriptors that it gets; the answer is the number of its process, 0 if it cannot be run
here. What asks becomes the parent of the process: it is the nearest that collects orphans.

A process of ours has a server of its own, forked before it begins, which ends with it.
"""

import atexit
import ctypes
import fcntl
import gc
import importlib
import io
import json
import os
import runpy
import signal
import socket
import sys
import threading
import types
from contextlib import suppress
from typing import Any

FREE = 512
"""Descriptors from this number on are in use by nobody."""
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PATH: list[str] = []
"""Where the server finds modules."""


def main(number: int, modules: list[str]) -> None:
    """Import what there is of the modules; a process that is forked returns from `serve` and runs its command."""
    printed, sys.stdout = sys.stdout, sys.stderr  # an engine may print
    gc.disable()  # all that is imported stays
    for module in modules:
        with suppress(ImportError):  # another release has it elsewhere
            importlib.import_module(module)
    sys.stdout = printed
    if not sys.flags.safe_path:  # it is our interpreter, and finds this folder first
        importlib.import_module("forked")
        del sys.path[0]
    PATH[:] = sys.path
    gc.enable()
    gc.collect()
    gc.freeze()  # the collector would write to, and so copy, all of it in each process
    server = socket.socket(fileno=apart(number))
    while (asked := serve(server)) is not None and asked["below"]:
        ours, theirs = socket.socketpair()
        if os.fork():
            theirs.close()
            importlib.import_module("forked").fork_below(socket.socket(fileno=apart(ours.detach())))
            break
        ours.close()
        server = socket.socket(fileno=apart(theirs.detach()))
        for descriptor in range(3):
            os.dup2(os.open(os.devnull, os.O_RDWR), descriptor)
        os.closerange(3, FREE)
    if asked is None:
        return
    try:
        run(asked)
    except SystemExit as end:
        if not asked["below"] or not isinstance(end.code, int | None):
            raise
        leave(end.code or 0)
    else:
        if asked["below"]:
            leave(0)


def apart(number: int) -> int:
    """What has this descriptor gets one that is in nobody's way."""
    moved = fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, FREE)
    os.close(number)
    return moved


def serve(server: socket.socket) -> dict[str, Any] | None:
    """Fork until nobody asks any more. In a process that was forked: what it was asked."""
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)  # they are for what is forked
    alone = len(os.listdir("/proc/self/task")) == 1  # a fork has no other threads
    said = json.dumps([alone, PATH, sorted({name.partition(".")[0] for name in sys.modules})]).encode()
    server.sendall(b"%8d" % len(said) + said)
    while True:
        size, given, _, _ = socket.recv_fds(server, 8, 64)
        if not size:
            return None
        text = b""
        while len(text) < int(size):
            text += server.recv(int(size) - len(text))
        asked: dict[str, Any] = json.loads(text)
        if any(map(is_open, {*asked["numbers"]} - {0, 1, 2, *given})):
            server.sendall(b"%10d" % 0)
        else:
            told, tell = os.pipe()
            between = os.fork()
            if not between:
                os.close(told)
                if os.fork():
                    os._exit(0)  # so that the process is an orphan
                server.close()
                tell = apart(tell)
                begin(asked, given)
                os.write(tell, b"%10d" % os.getpid())
                os.close(tell)
                return asked
            os.close(tell)
            os.waitpid(between, 0)
            with os.fdopen(told, "rb") as begun:
                server.sendall(begun.read() or b"%10d" % 0)
        for descriptor in given:
            os.close(descriptor)


def is_open(descriptor: int) -> bool:
    """Whether something that was imported has this descriptor."""
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def begin(asked: dict[str, Any], given: list[int]) -> None:
    """Make the process what a new one would be: its session, folder, environment, import path, descriptors, signals."""
    if asked["session"]:
        os.setsid()
    os.chdir(asked["folder"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    own = os.environ["PYTHONPATH"].split(os.pathsep) if os.environ.get("PYTHONPATH") else []
    sys.path[:] = [*([] if asked["first"] is None else [asked["first"]]), *own, *PATH[asked["path"] :]]
    high = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, FREE) for descriptor in given]
    for descriptor in given:
        os.close(descriptor)
    for descriptor, number in zip(high, asked["numbers"], strict=True):
        os.dup2(descriptor, number)
        os.close(descriptor)
    if not asked["below"] and os.path.exists(os.path.join(own[0], "sitecustomize.py")):  # of a patch
        sys.modules.pop("sitecustomize", None)
        importlib.import_module("sitecustomize")
    ignored, blocked = asked["signals"]
    for number in ENDING:
        usual = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        signal.signal(number, signal.SIG_IGN if number in ignored else usual)
    signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def run(asked: dict[str, Any]) -> None:
    """What the interpreter does with `-u -P -m MODULE ARGUMENT...`, or with `-c PROGRAM` in place of the module."""
    words: list[str] = asked["words"]
    if asked["below"]:
        show([sys.executable, *words])
        if "COVERAGE_PROCESS_CONFIG" in os.environ:
            importlib.import_module("coverage").process_startup()
        sys.dont_write_bytecode = bool(os.environ.get("PYTHONDONTWRITEBYTECODE"))
    options = 0
    while words[options] in ("-u", "-P"):
        options += 1
    if "-u" in words[:options] or (asked["below"] and os.environ.get("PYTHONUNBUFFERED")):
        sys.stdout = io.TextIOWrapper(io.FileIO(1, "w", closefd=False), write_through=True)
    elif os.isatty(1):
        sys.stdout.reconfigure(line_buffering=True)
    kind, what, *arguments = words[options:]
    if kind == "-m":
        sys.argv = [what, *arguments]
        if not hasattr(sys.modules.get(what), "__path__"):
            sys.modules.pop(what, None)  # else it would be said that it was imported before
        runpy.run_module(what, run_name="__main__", alter_sys=True)
        return
    sys.argv = [kind, *arguments]
    module = sys.modules["__main__"] = types.ModuleType("__main__")
    exec(compile(what, "<string>", "exec"), module.__dict__)


def leave(status: int) -> None:
    """End as an interpreter does, but for what it takes apart: all that the server has imported."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    with suppress(OSError, ValueError, AttributeError):  # else the interpreter says what is wrong with its output
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status & 0xFF)


def show(words: list[str]) -> None:
    """Let lists of processes show this command, in the place of that of the server, which leaves room for it."""
    with open("/proc/self/stat", "rb") as stat:
        start, end = map(int, stat.read().rpartition(b")")[2].split()[45:47])
    text = b"".join(os.fsencode(word) + b"\0" for word in words)
    ctypes.memmove(start, text[: end - start - 1].ljust(end - start, b"\0"), end - start)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[3:])
