"""Whose mistake a wrong answer may be: a target passes on what its engine does, so most of them can be either's.

Telling an author to change his target where the engine is wrong would hide what he has come for.
"""

from collections.abc import Mapping

FORM = frozenset({
    "types", "per-group", "lists", "not-per-group", "allocate-value", "lookup-value", "labels-order", "ref-cnt-length",
    "labels-length", "earliest-length", "hit-in-blocks",
})  # fmt: skip
"""Mistakes in the form of an answer, which the target makes alone: types, units, how labels are numbered."""
ENGINE: Mapping[str, str] = {
    "ids": "it uses a block that it does not have (S4): its kernels would read or write other memory",
    "null-block": "it frees or hands out the block that it keeps for nothing (S4)",
    "pool-size": "it builds a pool of another size than it is asked for",
    "free-twice": "a block stands twice in its free list, so two requests will get it (S1, S2)",
    "free-list": "it has freed a block that is still held: a use after free (S1), and whoever gets it writes there",
    "num-free": "its count of free blocks is not right (S1)",
    "free-without-cached": "it has lost blocks: nobody holds them, and they are never free again (S1)",
    "free-too-many": "it has freed blocks that are held, or that it does not have (S1)",
    "references": "it counts references wrongly, so that a block is given back too early or never (S1)",
    "changed-when-refused": "its refusal leaves something behind (S8)",
    "changed-when-answered": "a call that only asks changes what it holds or finds",
    "raised-for-no-room": "it fails where it has to refuse (S8); a scheduler would lose its requests",
    "raised": "it fails at a call that makes sense (S8)",
    "not-refused": "it admits more than it has room for, so that blocks of others are used (S2) or too few (S15)",
    "refused-with-room": "it refuses although there is room: it counts what is cached or held as taken (L1)",
    "refused": "it refuses what it has to do",
    "free-unknown": "it fails when somebody frees what it does not know (S12), as happens when a client hangs up",
    "lookup-refused": "its lookup gives up where it finds nothing, or has no room",
    "hash-blocks": "it does not know the tokens that it was told, or hashes another number of blocks",
    "no-hit": "it loses what was computed, or does not find it (S14)",
    "hit-of-all": "it hits the last token, too, so that nothing is left to compute (S7)",
    "hit-too-long": "it finds what is not the same content, or not there any more (S7): others' tokens would be read",
    "hit-blocks": "its hit has more or fewer blocks than tokens (S7)",
    "new-blocks": "it gives too few blocks, so that tokens have no place (S15), or more than are needed",
    "pieces": "it gives too few blocks, so that tokens have no place (S15), or more than are needed",
    "not-only-new": "it hands out blocks that the request holds already (S2)",
    "table": "what it answers is not what it holds: who is told the answer writes elsewhere (S5)",
    "external-room": "it gives no room to tokens that come from outside (S15)",
    "table-left": "it keeps blocks of a request that has gone (S12)",
    "builds-nothing": "it fails to build what it is asked for",
    "crash": "it ends its process: that is a finding",
    "hang": "it does not come back: that is a finding",
    "memory": "it takes more and more memory: that is a finding",
    "protocol": "it raises where nothing is wrong with the call: then `failed(error)` shows it as what it is",
}
"""By mistake: what the engine does wrong, if the target shows it as it is."""


def engine_does(mistake: str) -> str:
    """What the engine does wrong if it is not the target that does, after "or the engine: "; empty if only the target
    can be wrong."""
    if mistake in FORM:
        return ""
    if mistake.startswith("value-of-"):
        return f"it does something else at {mistake.removeprefix('value-of-')} than a scheduler relies on"
    violated = f"it violates {mistake}, and the target shows it as it is: keep it as a finding"
    return ENGINE.get(mistake, violated)


WHICH = (
    "whose it is: look at what the engine itself has at that call (its free list, its counts, its table). If it has "
    "what is shown, the engine is wrong: leave the target as it is, and go on with blockproof fuzz"
)
"""How to tell them apart."""
