"""The properties of the safety contract (properties.md §2), and what each needs to observe."""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from ...targets.declarations import EVICTS_MORE

PROPERTIES: Mapping[str, str] = {
    "S1": "Every block but the null block is either free or held (by a table, by an outside holder, or set aside for "
    "sinks), never both; the free count is the number of free blocks; references are the holders; so with no "
    "request left everything is free.",
    "S2": "A block that stands in two table entries holds the same content of the same group for both, and nobody is "
    "given a block that another still holds.",
    "S4": "Every block that an answer, a table or a list names is one of the pool's; the null block is never free, "
    "never handed out and never registered.",
    "S5": "Tables only grow: an entry changes from a block to null at most (the states of drafts of Mamba's align mode "
    "move to the end), and no operation touches the table of a request that it does not name.",
    "S6": "Every token that the next query of a request attends to is in a real block of its table.",
    "S7": "A hit ends where a block ends in every group (or, where a hash block is smaller, where one ends), is at "
    "most num_tokens - 1 long, real wherever the next query reads, and each of its blocks holds exactly the content "
    "of the request's prefix; the table begins with it.",
    "S8": "No operation that makes sense fails; a refusal changes nothing but that skipped blocks of that request are "
    "given back.",
    "S9": "A block is reused only after every free block that stands before it in the queue, and free blocks keep "
    "their order among themselves.",
    "S10": "Registered content stays until its block is reused, evicted or the cache is reset, and not longer; nothing "
    "is registered before its tokens are in the block.",
    "S11": "The events, applied to an empty mirror, give what is registered.",
    "S12": "Freeing an unknown request changes nothing; after a free or a preemption the request holds nothing.",
    "S13": "Entries are given up only behind tokens that cannot be taken back: what the query behind the known tokens "
    "but one reads, and what steps still running write from there on, stays in the table unless the request is freed "
    "or preempted; nobody beside the device's queue is given a block that a step uses which has not landed, "
    "and nobody at all one into which tokens of a request that has gone are still loaded.",
    "S14": "A hit is as long as the longest of which every group has registered what the query behind it reads and, "
    "where drafts need it, the block behind it; a prompt that was computed as a whole hits up to its replay boundary "
    "as long as the blocks are still there.",
    "S15": "Every position that a step may write, lookahead included, is in a real block when the step is allocated; "
    "where another request holds it, the step writes what is there already.",
    "S16": "What a core tells of blocks is what its tables show: the answer of an allocation has the entries that were "
    "added, new ids are those that were handed out since they were last asked for, a table that is read is the table, "
    "and a common prefix is held by as many as have tables.",
    "S17": "There is room: an allocation that takes no more than is free is not refused, what is reserved stays free, "
    "nobody is admitted whom the free blocks cannot hold, and what no query reads any more is given back in the course "
    "of the next steps.",
    "S18": "A full block that a later hit can need is registered, or its content is under another block, in the course "
    "of the next steps of its request, or when that ends.",
    "S19": "The share of the pool in use and the statistics of the prefix cache are those of what has happened.",
}
"""Id to sentence. S3, the data plane, is checked by the shadow memory (`shadow`)."""


class Violation(NamedTuple):
    """A property that does not hold."""

    id: str
    what: str
    """The equation that is violated, with its operands."""
    kind: str = ""
    """Which of the property's sentences this is: the same for all operands. Two findings of two kinds have two causes
    (`Finding.manner`), and how bad one is may depend on it (`findings.severity`)."""


class Break(Exception):
    """Raised by a check where its property does not hold."""

    def __init__(self, id: str, what: str, kind: str = "") -> None:
        super().__init__(f"{id}: {what}")
        self.violation = Violation(id, what, kind)


_NEEDS: Mapping[str, tuple[tuple[str, ...], str]] = {
    "S9": (("free", "free_order"), "the order of the free blocks is not shown"),
    "S10": (("labels",), "which blocks are registered is not shown"),
    "S11": (("labels", "events"), "registered blocks or pending events are not shown"),
    "S18": (("labels",), "which blocks are registered is not shown"),
}
"""Properties that cannot be judged if the target hides one of these fields, with the reason. The other properties need
only tables and outcomes."""

_BY_ANSWERS = ("S1", "S4", "S7", "S8", "S12", "S14")
"""Properties of which something can be judged without tables (`answered`)."""


def unobserved(hides: Collection[str], designs: Collection[str] = ()) -> dict[str, str]:
    """Properties that cannot be judged on a target that hides these fields of a snapshot, each with the reason.

    `designs`: what it does otherwise than most (`declarations.DESIGNS`).
    """
    hidden = set(hides)
    found = {id: reason for id, (names, reason) in _NEEDS.items() if not hidden.isdisjoint(names)}
    if {"free", "num_free"} <= hidden:
        found["S1"] = "neither the free blocks nor their number is shown"
    if {"free", "num_free"} <= hidden:
        found["S17"] = "neither the free blocks nor their number is shown"
    if {"usage", "stats"} <= hidden:
        found["S19"] = "neither usage nor statistics are shown"
    if {"free", "labels"} <= hidden:
        found["S4"] = "neither the free blocks nor the registered ones are shown"
    if EVICTS_MORE in designs and "labels" in hidden:
        found.setdefault("S9", "what was evicted besides is not shown, nor what is registered")
    if "tables" in hidden:
        found |= {id: "the block tables are not shown" for id in PROPERTIES if id not in _BY_ANSWERS}
    return {id: found[id] for id in PROPERTIES if id in found}
