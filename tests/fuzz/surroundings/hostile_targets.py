"""Targets that do something to the process they run in: our core, which misbehaves at its fifth step."""

import asyncio
import os
import signal
import sys
import threading
import time

from blockproof.fuzz.opening.targets import open_here

AT = 5


class Panic(BaseException):
    """As a core in Rust raises it."""


class Target:
    def __init__(self, misbehave):
        self.core, self.name = open_here("impl"), "hostile"
        self.misbehave, self.steps = misbehave, 0

    def start(self, shape):
        return self.core.start(shape)

    def step(self, operation):
        self.steps += 1
        if self.steps >= AT:
            self.misbehave()
        return self.core.step(operation)

    def close(self):
        self.core.close()


def raises(error):
    def misbehave():
        raise error

    return lambda: Target(misbehave)


panics = raises(Panic("called `Option::unwrap()` on a `None` value"))
cancels = raises(asyncio.CancelledError())
is_left = raises(GeneratorExit())
exits_as_if_well = raises(SystemExit(0))
is_interrupted_by_itself = raises(KeyboardInterrupt())


def ends_the_process():
    return Target(lambda: os._exit(0))


def takes_the_streams():
    def take():
        sys.stdout = sys.stderr = None

    return Target(take)


def closes_the_streams():
    def close():
        sys.stdout.close()
        sys.__stdout__.close()

    return Target(close)


def allows_little_recursion():
    def allow():
        frame, depth = sys._getframe(), 0
        while frame is not None:
            frame, depth = frame.f_back, depth + 1
        sys.setrecursionlimit(depth + 60)

    return Target(allow)


def leaves_a_thread():
    threading.Thread(target=time.sleep, args=(600,)).start()
    return Target(lambda: None)


def leaves_the_folder():
    def leave():
        os.chdir("/")
        raise Panic("elsewhere")

    return Target(leave)


def hears_no_signal():
    return Target(lambda: signal.signal(signal.SIGINT, signal.SIG_IGN))


def panics_while_it_is_made():
    raise Panic("not today")
