"""The program of a `forked.Server`: imports an engine once, then forks a process for each command that comes.

It runs in the interpreter of a release, and so imports nothing of ours. `python -P fork_server.py SOCKET MODULE...`: a
command comes over the socket with the descriptors that it gets; the answer is the number of its process, 0 if it
cannot be run here. What asks becomes the parent of the process: it is the nearest that collects orphans.
"""

import fcntl
import gc
import importlib
import io
import json
import os
import runpy
import socket
import sys
import types

FREE = 512
"""Descriptors from this number on are in use by nobody."""


def main(number: int, modules: list[str]) -> None:
    """Import what there is of the modules; a process that is forked returns from `serve` and runs its command."""
    printed, sys.stdout = sys.stdout, sys.stderr  # an engine may print
    for module in modules:
        try:
            importlib.import_module(module)
        except ImportError:  # another release has it elsewhere
            continue
    sys.stdout = printed
    gc.collect()
    gc.freeze()  # the collector would write to, and so copy, all of it in each process
    server = socket.socket(fileno=fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, FREE))
    os.close(number)
    alone = len(os.listdir("/proc/self/task")) == 1  # a fork has no other threads
    server.sendall(b"1" if alone else b"0")
    command = serve(server) if alone else None
    if command is not None:
        run(command)


def serve(server: socket.socket) -> list[str] | None:
    """Fork until nobody asks any more. In a process that was forked: the words of its command."""
    while True:
        size, given, _, _ = socket.recv_fds(server, 8, 16)
        if not size:
            return None
        text = b""
        while len(text) < int(size):
            text += server.recv(int(size) - len(text))
        asked = json.loads(text)
        if any(map(is_open, asked["numbers"][3:])):
            server.sendall(b"%10d" % 0)
        else:
            told, tell = os.pipe()
            between = os.fork()
            if not between:
                os.close(told)
                if os.fork():
                    os._exit(0)  # so that the process is an orphan
                server.close()
                begin(asked, given)
                os.write(tell, b"%10d" % os.getpid())
                os.close(tell)
                words: list[str] = asked["words"]
                return words
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


def begin(asked: dict[str, object], given: list[int]) -> None:
    """Make the process what a new one would be: its session, folder, environment, import path and descriptors."""
    if asked["session"]:
        os.setsid()
    os.chdir(str(asked["folder"]))
    os.environ.clear()
    os.environ.update(asked["environment"])  # type: ignore[call-overload]
    own = os.environ["PYTHONPATH"].split(os.pathsep)
    sys.path[: int(str(asked["path"]))] = own
    high = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, FREE) for descriptor in given]
    for descriptor in given:
        os.close(descriptor)
    for descriptor, number in zip(high, asked["numbers"], strict=True):  # type: ignore[call-overload]
        os.dup2(descriptor, number)
        os.close(descriptor)
    if os.path.exists(os.path.join(own[0], "sitecustomize.py")):  # of a patch
        sys.modules.pop("sitecustomize", None)
        importlib.import_module("sitecustomize")


def run(words: list[str]) -> None:
    """What the interpreter does with `-u -P -m MODULE ARGUMENT...`, or with `-c PROGRAM` in place of the module."""
    while words[0] in ("-u", "-P"):
        if words.pop(0) == "-u":
            sys.stdout = io.TextIOWrapper(io.FileIO(1, "w", closefd=False), write_through=True)
    kind, what, *arguments = words
    if kind == "-m":
        sys.argv = [what, *arguments]
        runpy.run_module(what, run_name="__main__", alter_sys=True)
        return
    sys.argv = [kind, *arguments]
    module = sys.modules["__main__"] = types.ModuleType("__main__")
    exec(compile(what, "<string>", "exec"), module.__dict__)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
