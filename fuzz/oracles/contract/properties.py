"""The properties of the safety contract (properties.md §2), what each needs to observe, and its known violations."""

from collections.abc import Collection, Mapping
from typing import NamedTuple

PROPERTIES: Mapping[str, str] = {
    "S1": "Every block but the null block is either free or held (by a table, by an outside holder, or set aside for "
    "sinks), never both; the free count is the number of free blocks; references are the holders; so with no "
    "request left everything is free.",
    "S2": "A block that stands in two table entries holds the same content of the same group for both, and nobody is "
    "given a block that another still holds.",
    "S4": "The null block is never free, never handed out and never registered.",
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
    "S13": "While a step is on the device, nothing that it reads or writes leaves the tables, unless its request is "
    "freed or preempted: entries are given up for finished tokens only.",
    "S14": "A hit is as long as the longest that all groups have registered; a prompt that was computed as a whole "
    "hits up to its replay boundary as long as the blocks are still there.",
    "S15": "Every position that a step may write, lookahead included, is in a real block that no other request holds "
    "when the step is allocated.",
}
"""Id to sentence. S3, the data plane, is checked by the shadow memory (`shadow`)."""

KNOWN_LOSSES: Mapping[str, str] = {
    "computed-taken-back": "S6, S13, S15: tokens that count as computed no more (drafts rejected late; the last token "
    "of a prompt that was loaded as a whole) did count when entries were given up, so the next query reads, and its "
    "step writes, behind the cut (docs/reference/core.md, vllm-project/vllm#47728)",
    "chunk-astride-block": "S6, S7: where a block lies astride two chunks, a hit begins at the chunk of the "
    "longest possible hit, and can end before it, behind null entries that the next query reads "
    "(docs/reference/core.md)",
    "running-state-moved-on": "S15: in Mamba's align mode the running state stands in the entry where the longest step "
    "would have ended; where its drafts are rejected and the next step ends in an earlier entry, that one is null "
    "(docs/reference/core.md)",
    "skipped-on-optimistic-count": "S13: entries are given up for tokens whose step may still be running "
    "(vllm-project/vllm#47728); one device queue hides it, a second reader or a rejected draft does not",
    "last-token-computed-again": "S15: the last token of a prompt that was loaded from outside as a whole is computed "
    "again, into a block that may be shared by then; it is written with what it holds",
    "window-of-one": "S14: a window of one token reaches no block, yet one registered block is needed "
    "(docs/reference/core.md)",
    "eagle-cut-twice": "S14: an eagle window in smaller blocks than the alignment is cut before and after the drop "
    "where it reaches back to the start, and loses one alignment (docs/reference/theorems, T9.loss)",
    "eagle-asked-in-turn": "S14: where one of several eagle types shrinks the length, a window among them is asked "
    "again without the block that it may give up, and then wants another one before it "
    "(docs/reference/theorems, T14.always)",
    "boundary-without-eagle": "S14: with a retention interval the boundary that is kept is that of a search without "
    "eagle, one alignment behind the one at which an eagle search lands (T11.lost)",
    "window-kept-for-scheduler": "S14: a single window group registers by the scheduler's block size, but looks up by "
    "its own: only the boundary by the former is there (docs/reference/core.md)",
}
"""Violations that core.md, our core and the reference have in common. They are counted, not reported as findings."""


class Violation(NamedTuple):
    """A property that does not hold."""

    id: str
    what: str
    """The equation that is violated, with its operands."""


class Break(Exception):
    """Raised by a check where its property does not hold."""

    def __init__(self, id: str, what: str) -> None:
        super().__init__(f"{id}: {what}")
        self.violation = Violation(id, what)


_NEEDS: Mapping[str, tuple[tuple[str, ...], str]] = {
    "S9": (("free", "free_order"), "the order of the free blocks is not shown"),
    "S10": (("labels",), "which blocks are registered is not shown"),
    "S11": (("labels", "events"), "registered blocks or pending events are not shown"),
}
"""Properties that cannot be judged if the target hides one of these fields, with the reason. The other properties need
only tables and outcomes."""


def unobserved(hides: Collection[str]) -> dict[str, str]:
    """Properties that cannot be judged on a target that hides these fields of a snapshot, each with the reason."""
    hidden = set(hides)
    found = {id: reason for id, (names, reason) in _NEEDS.items() if not hidden.isdisjoint(names)}
    if {"free", "num_free"} <= hidden:
        found["S1"] = "neither the free blocks nor their number is shown"
    if {"free", "labels"} <= hidden:
        found["S4"] = "neither the free blocks nor the registered ones are shown"
    if "tables" in hidden:
        found |= {id: "the block tables are not shown" for id in PROPERTIES if id not in ("S4", "S9", "S11")}
    return {id: found[id] for id in PROPERTIES if id in found}
