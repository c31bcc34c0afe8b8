"""The pictures of `docs/concepts`: of each the core, what happens to it, and what is drawn."""

from blockproof.model.ops import (
    Advance,
    Allocate,
    Arrive,
    Free,
    Group,
    Lookup,
    MambaMode,
    Operation,
    Reject,
    Shape,
    StepStart,
    Submit,
)
from picture_states import Frame, Scene


def core(*groups: Group, blocks: int, max_model_len: int = 64, caching: bool = True, eagle: bool = False) -> Shape:
    """A core with these groups and so many blocks; block sizes are powers of two."""
    sizes = [group.block_size for group in groups]
    return Shape(groups, blocks, max_model_len, min(sizes), max(sizes), 16, caching=caching, eagle=eagle)


def prompt(length: int, shared: int | None = None) -> tuple[int, ...]:
    """Tokens: those of the shared prefix, then others."""
    alike = length if shared is None else shared
    return tuple(range(alike)) + tuple(range(100, 100 + length - alike))


def run(name: str, *steps: int) -> tuple[Operation, ...]:
    """Steps of a request, each so many tokens long and then run; behind the last one a token is sampled."""
    parts = [(Allocate(name, new_tokens), Advance(name)) for new_tokens in steps]
    return tuple(operation for part in parts for operation in part)


def known(name: str, length: int, *steps: int, shared: int | None = None) -> tuple[Operation, ...]:
    """A request that arrives and runs for these steps."""
    return (Submit(name, prompt(length, shared)), *run(name, *steps))


FULL = Group("full", 4)
WINDOW = Group("sliding", 4, window=6)
ALL = "tables pool queue"

BLOCKS = (
    Scene(
        "blocks",
        "A request of 10 tokens in blocks of 4",
        core(FULL, blocks=7),
        (
            Frame((Submit("a", prompt(10)), Allocate("a", 10)), ALL),
            Frame((Advance("a", sampled=(50,)),)),
        ),
    ),
    Scene(
        "groups",
        "Two groups, each with its table, draw from one pool",
        core(FULL, WINDOW, blocks=9),
        (
            Frame((Submit("a", prompt(10)), Allocate("a", 10)), "tables pool"),
            Frame((Advance("a", sampled=(50,)), Allocate("a", 1)), ALL),
        ),
    ),
)
HITS = (
    Scene(
        "hit",
        "A second request with the same beginning is served from the cache",
        core(FULL, blocks=8),
        (
            Frame(known("a", 10, 10), "tables"),
            Frame((Submit("b", prompt(11, 8)), Lookup("b"), Allocate("b", 3, hit=True)), "tables pool"),
        ),
    ),
    Scene(
        "whole-prompt",
        "The same prompt once more: its last token is computed again, and with it its last block",
        core(FULL, blocks=7),
        (
            Frame(known("a", 8, 8), "tables"),
            Frame((Submit("b", prompt(8)), Lookup("b"), Allocate("b", 4, hit=True)), "tables pool"),
        ),
    ),
)
WINDOWS = (
    Scene(
        "window",
        "A window moves on, and the entries behind it become null",
        core(WINDOW, blocks=7),
        (
            Frame((Submit("a", prompt(18)), Allocate("a", 8), Advance("a"))),
            Frame((Allocate("a", 4), Advance("a"))),
            Frame((Allocate("a", 4), Advance("a")), "tables queue"),
        ),
    ),
    Scene(
        "window-hit",
        "A hit in a window needs only what the next query reads",
        core(WINDOW, blocks=8),
        (
            Frame((*known("a", 18, 8, 4, 4, 2), Free("a")), "pool queue", brief=True),
            Frame((Submit("b", prompt(19, 17)), Lookup("b"), Allocate("b", 3, hit=True)), "tables pool"),
        ),
    ),
    Scene(
        "chunk",
        "At the end of a chunk everything before it is given up at once",
        core(Group("chunked", 4, chunk=8), blocks=7),
        (
            Frame((Submit("a", prompt(18)), Allocate("a", 6), Advance("a"))),
            Frame((Allocate("a", 2), Advance("a"))),
            Frame((Allocate("a", 4), Advance("a")), "tables queue"),
        ),
    ),
    Scene(
        "sinks",
        "The block of the sink is set aside before any request arrives",
        core(Group("sink", 4, sink_len=4), blocks=7),
        (Frame((), "pool queue"), Frame((Submit("a", prompt(6)), Allocate("a", 6)), "tables pool")),
    ),
)
EVICTION = (
    Scene(
        "free-but-findable",
        "Block 7 is free, and a lookup still finds it",
        core(FULL, blocks=10),
        (
            Frame((*known("a", 12, 12), *known("b", 17, 16, 1, shared=0)), "pool queue", brief=True),
            Frame((Free("b"),), "pool queue"),
            Frame((Submit("c", prompt(17, 0)), Lookup("c"), Allocate("c", 1, hit=True)), ALL),
        ),
    ),
    Scene(
        "eviction",
        "New blocks come from the front of the queue, and what they held is forgotten",
        core(FULL, blocks=10),
        (
            Frame((*known("a", 12, 12), *known("b", 17, 16, 1, shared=0), Free("b")), "pool queue", brief=True),
            Frame((Submit("c", tuple(range(200, 210))), Allocate("c", 10)), "pool queue"),
            Frame((Submit("d", prompt(17, 0)), Lookup("d")), ""),
        ),
    ),
    Scene(
        "to-the-front",
        "A block of a window that nobody can find goes to the front of the queue",
        core(WINDOW, blocks=7),
        (
            Frame(known("a", 10, 10), "tables queue"),
            Frame((Free("a"),), "pool queue"),
        ),
    ),
)
ADMISSION = (
    Scene(
        "gate",
        "A request waits although blocks are free: its whole prompt must fit",
        core(FULL, blocks=8),
        (
            Frame(known("a", 16, 16), "pool", brief=True),
            Frame((Submit("b", prompt(20, 0)), Allocate("b", 8, gate=True)), "queue"),
            Frame((Free("a"), Allocate("b", 8, gate=True)), ALL),
        ),
    ),
    Scene(
        "candidates",
        "A hit on free blocks makes no room: they leave the free queue, too",
        core(FULL, blocks=6),
        (
            Frame((*known("a", 13, 13), Free("a")), "pool queue", brief=True),
            Frame((Submit("b", prompt(21, 12)), Lookup("b"), Allocate("b", 9, hit=True)), "pool queue"),
        ),
    ),
)
DRAFTS = (
    Scene(
        "eagle",
        "Where a draft model reads on, a hit ends a block earlier",
        core(FULL, blocks=9, eagle=True),
        (
            Frame(known("a", 13, 13), "tables"),
            Frame((Submit("b", prompt(13)), Lookup("b"), Allocate("b", 5, hit=True)), "tables pool"),
        ),
    ),
    Scene(
        "drafts",
        "A window is cut by what cannot be taken back: drafts do not count",
        core(Group("sliding", 2, window=4), blocks=12),
        (
            Frame((Submit("a", prompt(8)), Allocate("a", 8), Advance("a", sampled=(50,)))),
            Frame((Allocate("a", 4), Advance("a"))),
            Frame((Allocate("a", 4),)),
            Frame((Reject("a", 3),)),
        ),
    ),
)


def states(mode: MambaMode, size: int, title: str) -> Scene:
    """A request of 14 tokens in three steps, with blocks of so many tokens."""
    shape = core(Group("mamba", size, mamba_mode=mode), blocks=6, max_model_len=16, caching=mode != "none")
    steps = (Submit("a", prompt(14)), Allocate("a", 8), Advance("a")), (Allocate("a", 4), Advance("a"))
    return Scene(f"states-{mode}", title, shape, (Frame(steps[0]), Frame(steps[1]), Frame((Allocate("a", 2),), ALL)))


STATES = (
    states("none", 16, "Mode none: one block for the whole request, written anew by every step"),
    states("all", 4, "Mode all: every block gets the state behind its last token"),
    states("align", 4, "Mode align: only the state behind the last token of a step is kept"),
    Scene(
        "same-step",
        "A state that is computed in this very step cannot be continued yet",
        core(Group("mamba", 4, mamba_mode="align"), blocks=7),
        (
            Frame((Submit("a", prompt(10)), Allocate("a", 8)), "tables"),
            Frame((Submit("b", prompt(10)), Lookup("b"), Allocate("b", 2, hit=True)), "queue"),
            Frame((Advance("a"), StepStart(), Lookup("b"), Allocate("b", 2, hit=True)), "tables pool"),
        ),
    ),
)
EXTERNAL = (
    Scene(
        "external",
        "Tokens from outside get blocks at once, and are registered when they have arrived",
        core(FULL, blocks=7),
        (
            Frame((Submit("a", prompt(14)), Allocate("a", 0, external=12, delay=True)), "tables pool"),
            Frame((Arrive("a"),), "tables"),
            Frame((Allocate("a", 2), Advance("a", sampled=(50,))), "tables"),
        ),
    ),
    Scene(
        "loaded-whole",
        "A prompt that is loaded whole: its last token is computed again and needs its window",
        core(Group("sliding", 4, window=5), blocks=7),
        (
            Frame((Submit("a", prompt(16)), Allocate("a", 0, external=16, delay=True)), "tables"),
            Frame((Arrive("a"),), "tables"),
            Frame((Allocate("a", 1),), "tables"),
        ),
    ),
)
HARNESS = (
    Scene(
        "finding",
        "Model and target behind the same operations: the target has not counted a second holder",
        core(Group("full", 2), blocks=5),
        (
            Frame((Submit("a", prompt(2)), Allocate("a", 2), Advance("a", sampled=(50,))), "pool", brief=True),
            Frame((Submit("b", prompt(3)), Lookup("b"), Allocate("b", 1, hit=True)), "pool"),
            Frame((Free("a"),), "pool queue"),
            Frame((Submit("c", tuple(range(200, 206))), Allocate("c", 6)), "pool"),
            Frame((Advance("b", sampled=(51,)), Allocate("b", 1)), "tables pool"),
        ),
        "fault:touch-ignores-used-blocks",
    ),
)
SCENES = (*BLOCKS, *HITS, *WINDOWS, *EVICTION, *ADMISSION, *DRAFTS, *STATES, *EXTERNAL, *HARNESS)
