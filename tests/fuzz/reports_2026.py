"""Public reports of 2025 and 2026 on blocks under transfer, lower tiers, counters, epochs and forks: what went wrong in
each, in our own words, and which planted mistake does the same. docs/evidence/reports.md is written from this
(`benchmarks/reports.py`).
"""

from collections.abc import Mapping
from typing import NamedTuple

REPOSITORIES: Mapping[str, str] = {
    "vllm": "vllm-project/vllm",
    "ascend": "vllm-project/vllm-ascend",
    "omni": "vllm-project/vllm-omni",
    "sglang": "sgl-project/sglang",
    "TRT": "NVIDIA/TensorRT-LLM",
    "LMCache": "LMCache/LMCache",
    "Mooncake": "kvcache-ai/Mooncake",
    "dynamo": "ai-dynamo/dynamo",
    "llama.cpp": "ggml-org/llama.cpp",
    "lmdeploy": "InternLM/lmdeploy",
    "llm-d": "llm-d/llm-d",
    "transformers": "huggingface/transformers",
}
"""By the name that a report has here."""
CLASSES: Mapping[int, str] = {
    1: "Blocks under transfer",
    2: "The lower tier's own books",
    3: "Completion protocol",
    4: "Where workers put states",
    5: "Asynchronous counters of schedulers",
    8: "Epochs of weights",
    9: "Tokens of a live request that change; forks",
}


class Report(NamedTuple):
    """One public report."""

    name: str
    mechanism: str
    mistakes: tuple[str, ...] = ()
    """Of the same mechanism: a mistake of the engines among the examples, or a fault of our core."""
    why: str = ""
    """Why it is not planted."""


UNKNOWN = "its thread was not found in stored copies, so that its mechanism is not known here"
KERNEL = "it lies in a kernel or its launch, of which no scheduler says anything"
FEATURE = "it adds the feature, and tells no mistake"


def _all(*rows: tuple[str, str, str]) -> tuple[Report, ...]:
    """Reports that are planted; mistakes are divided by blanks."""
    return tuple(Report(name, mechanism, tuple(mistakes.split())) for name, mechanism, mistakes in rows)


REPORTS: Mapping[int, tuple[Report, ...]] = {
    1: (
        *_all(
            (
                "vllm#46278",
                "A store reads blocks that a step in flight still writes, and keeps what is half written.",
                "tier-stores-what-is-in-flight",
            ),
            (
                "vllm#46951",
                "Blocks that another connector's load gets are not counted as taken, while a store still reads them.",
                "tier-source-not-held",
            ),
            (
                "vllm#32255",
                "Who leaves while he is loaded gives his blocks back, and the load writes into the next owner's.",
                "freed-while-loading",
            ),
            (
                "vllm#48596",
                "The last whole block is stored when its request ends, and is given to somebody else meanwhile.",
                "tier-source-not-held",
            ),
            (
                "vllm#52372",
                "Preemption frees blocks that a queued store has yet to read; the store keeps another's under the key.",
                "tier-source-not-held",
            ),
            (
                "LMCache#4955",
                "Preemption frees blocks that a store still reads; what is stored belongs to another request.",
                "tier-source-not-held",
            ),
            (
                "sglang#31427",
                "Host pages are not protected until the load from them has been acknowledged.",
                "tier-load-is-not-pinned",
            ),
            (
                "sglang#27444",
                "Host pages may be evicted and used again while they are loaded from.",
                "tier-load-is-not-pinned tier-evicts-pinned",
            ),
            (
                "sglang#35769",
                "What is being loaded is entered into the tree, and found by others, before the load has ended.",
                "tier-loaded-is-found-at-once",
            ),
            (
                "sglang#27631",
                "Making room for a load evicts the very host pages that it is about to load from.",
                "tier-load-is-not-pinned",
            ),
            (
                "sglang#28468",
                "A host page is given to another store while a store to it is under way.",
                "tier-place-of-a-store-is-given-away",
            ),
            (
                "sglang#30986",
                "A state's slot is published before it is loaded, and stays published when the load is given up.",
                "tier-failed-load-stays-published",
            ),
            (
                "sglang#27108",
                "A store for which there was no room on the host counts as done, and the device's copy goes.",
                "tier-failed-store-counts",
            ),
            (
                "TRT#12540",
                "Prefill ends a request and unpins its blocks while they are still sent to decode.",
                "pair-freed-as-soon-as-computed",
            ),
            (
                "Mooncake#850",
                "A read that takes longer than its lease brings what was written there since, and counts.",
                "pair-load-ends-behind-the-lease",
            ),
            (
                "Mooncake#4239",
                "Of several ways to read, one does not look whether the lease has ended.",
                "pair-load-ends-behind-the-lease",
            ),
        ),
        Report("TRT#14565", "–", why=UNKNOWN),
    ),
    2: (
        *_all(
            (
                "vllm#36052",
                "The count of stored blocks passes blocks for which there was no room; they never are stored.",
                "tier-counter-passes-what-was-not-stored",
            ),
            (
                "vllm#46972",
                "The count of stored blocks passes blocks whose store did not happen.",
                "tier-counter-passes-what-was-not-stored",
            ),
            (
                "vllm#56795",
                "The count of stored blocks passes blocks that were left out.",
                "tier-counter-passes-what-was-not-stored",
            ),
            (
                "vllm#53498",
                "What is stored is not entered into the index, so that no lookup finds it; what is left is not stored.",
                "tier-loses-keys tier-drops-keys-unstored",
            ),
            (
                "vllm#41777",
                "A block that became whole in the step with which its request ends is not stored.",
                "tier-last-block-is-not-stored",
            ),
            (
                "vllm#52170",
                "Keys and block ids of a store are counted apart, and do not agree any more.",
                "tier-keys-and-blocks-apart",
            ),
            (
                "vllm#55503",
                "With drafts and a second tier there are more keys than blocks in a store, and the engine ends.",
                "tier-keys-and-blocks-apart",
            ),
            (
                "vllm#46014",
                "Who is set back comes again while he is still stored; that he is loaded then is not expected.",
                "report-of-a-store-is-not-expected-by-a-load",
            ),
            (
                "vllm#56709",
                "A load brings blocks back that the lookup has not asked for, and that may not be there.",
                "tier-loads-what-was-not-looked-for",
            ),
            (
                "vllm#54288",
                "The block with the last sampled token, which nobody has written, is stored.",
                "tier-stores-the-unwritten",
            ),
            (
                "vllm#52771",
                "With drafts, a last block that does not count takes the whole hit with it.",
                "tier-gives-up-the-whole-hit",
            ),
            (
                "sglang#40712",
                "Blocks in the middle of a prefix leave the device without being stored.",
                "tier-drops-keys-unstored",
            ),
        ),
        Report("vllm#56486", "Something with the sliding windows of what is offloaded.", why=UNKNOWN),
        Report("vllm#53324", "–", why=FEATURE),
        Report(
            "vllm#55027",
            "Groups of layers whose blocks no prefix names are stored and looked for as if one did.",
            why="the tier of the example has one group of layers",
        ),
        Report("sglang#29204", "–", why=UNKNOWN),
    ),
    3: (
        *_all(
            (
                "vllm#46283",
                "Blocks of who left while he was loaded wait for a report that never comes.",
                "report-that-is-lost-is-waited-for",
            ),
            (
                "vllm#56089",
                "The first transfer to end frees all that a request held that has left; the second ends the engine.",
                "report-ends-all-of-a-request",
            ),
            (
                "vllm#51786",
                "A report of a transfer comes a second time, and ends the engine.",
                "report-of-nobody-raises",
            ),
            ("vllm#53049", "A report comes after its request is gone, and ends the engine.", "report-of-nobody-raises"),
            (
                "vllm#50297",
                "Prefill is set back in its last step, answers all the same, and names blocks it has given back.",
                "pair-freed-as-soon-as-computed",
            ),
            (
                "vllm#52234",
                "A load has failed for some of the layers; the request goes on, with wrong tokens.",
                "pair-failed-load-counts failed-load-counts",
            ),
            (
                "vllm#44100",
                "What a lookup has locked stays locked if its request leaves before it gets room.",
                "tier-pins-before-there-is-room",
            ),
            (
                "dynamo#3730",
                "Whether all has been reported is asked so that it never is true; no block comes back.",
                "report-of-one-worker-more",
            ),
        ),
        Report(
            "vllm#29987",
            "Who cancels in his last step is told to the connector as served, so that his blocks wait for a timeout.",
            why="the lease ends, and nothing but time is lost",
        ),
        Report(
            "vllm#46008",
            "If the first token ends the request, prefill does not hand its blocks over, and decode waits.",
            why="in our pair the router, and nobody else, knows of stop tokens",
        ),
        Report("vllm#43509", "–", why=UNKNOWN),
        Report(
            "vllm#45138",
            "When a load fails and is computed again, what was promised for its step stays counted; it never ends.",
            why="no load of our engines fails within a step; a release shows it, below",
        ),
        Report("ascend#16662", "–", why=UNKNOWN),
        Report("LMCache#3770", "–", why=UNKNOWN),
    ),
    4: (
        *_all(
            (
                "vllm#51113",
                "A step ends inside a block, and the state there is registered as that of the block's end.",
                "unwritten-state-registered",
            ),
            (
                "vllm#34587",
                "A block of states is registered though the step that should have written its end passed it by.",
                "unwritten-state-registered",
            ),
            (
                "vllm#55601",
                "Behind a hit the entry of the state is computed with the block size of another group.",
                "states-in-least-block-size",
            ),
            (
                "vllm#54076",
                "States are counted in the least block size of all groups.",
                "states-in-least-block-size",
            ),
        ),
        Report("vllm#56196", "A chunk shorter than the convolution writes its state into the hit's block.", why=KERNEL),
        Report("vllm#50021", "The number of accepted drafts is used as an index without bound.", why=KERNEL),
        Report("vllm#57266", "A slice of the states to be written is out of range, and the engine ends.", why=KERNEL),
        Report("sglang#29633", "A piece of one token behind a hit gives a wrong first token.", why=KERNEL),
        Report(
            "llama.cpp#23121",
            "Checkpoints of states are not taken or not kept, so that prompts are computed again.",
            why="one slot with checkpoints, no blocks; only hits are lost",
        ),
        Report("vllm#50409", "A prompt that ends where a block ends finds no state.", why="only hits are lost"),
        Report("vllm#51763", "–", why=UNKNOWN),
        Report("ascend#16013", "–", why=UNKNOWN),
        Report("llama.cpp#24797", "–", why=UNKNOWN),
        Report("llama.cpp#26557", "–", why=UNKNOWN),
    ),
    5: (
        *_all(
            (
                "vllm#53130",
                "Deferred requests count as running, and are admitted below the limit only: with enough, nobody is.",
                "deferred-count-as-running",
            ),
            (
                "vllm#49860",
                "Results that are dropped leave their placeholders counted, and the request is held back.",
                "pending-survives",
            ),
            (
                "vllm#42117",
                "After a reset the first result is dropped, though nothing was in flight.",
                "first-result-behind-a-preemption-is-dropped",
            ),
            (
                "vllm#47900",
                "What is in flight of a request that is set back is counted off it later, below zero.",
                "pending-survives results-of-an-earlier-life",
            ),
            (
                "vllm#49620",
                "A frame of drafts that returns behind a preemption is taken for one of the new life.",
                "results-of-an-earlier-life",
            ),
            (
                "vllm#42492",
                "The result of a cancelled request goes to a new one of the same name.",
                "results-for-whoever-has-the-name",
            ),
            (
                "TRT#12682",
                "A piece of a prompt counts less its hit, though the hit shifts the piece and does not shorten it.",
                "hit-is-deducted-from-the-step",
            ),
            (
                "TRT#13351",
                "Who is admitted is charged less his hit, and the step has more tokens than are allowed.",
                "hit-is-deducted-from-the-step",
            ),
            (
                "TRT#13592",
                "What a request held in its last step stays with it when it is set back, and is believed later.",
                "landed-survives-a-preemption",
            ),
        ),
        Report("sglang#26248", "–", why=UNKNOWN),
    ),
    8: (
        *_all(
            ("lmdeploy#4917", "New weights leave the prefix cache as it was.", "new-weights-old-cache"),
            (
                "vllm#57727",
                "A reset clears the device's prefix cache, and the host's tier goes on serving the same blocks.",
                "tier-new-weights-old-keys",
            ),
        ),
        Report("llm-d#563", "–", why=UNKNOWN),
    ),
    9: (
        *_all(
            (
                "sglang#35470",
                "A block whose tokens may still change is entered into the tree.",
                "changed-tokens-old-blocks",
            ),
            (
                "sglang#27716",
                "A fork for which there is no room waits, and nothing makes room.",
                "fork-without-room-is-lost",
            ),
            (
                "transformers#46117",
                "A fork takes blocks of which there are none, and the engine ends.",
                "fork-takes-blocks-without-asking",
            ),
        ),
        Report("sglang#20476", "–", why=FEATURE),
        Report("vllm#43372", "–", why=FEATURE),
        Report("transformers#42921", "–", why=FEATURE),
    ),
}
"""Those of the list that this began with, by class."""

BESIDE: Mapping[int, tuple[Report, ...]] = {
    1: _all(
        (
            "vllm#45357",
            "Blocks are free while a step in flight still writes them, and are loaded into.",
            "load-into-what-a-step-writes",
        ),
        (
            "vllm#39702",
            "What a lookup has found is evicted before it is loaded.",
            "tier-load-is-not-pinned",
        ),
        (
            "sglang#24527",
            "Decode frees a request's blocks when it is aborted, and prefill still writes them.",
            "pair-blocks-back-while-loading",
        ),
        ("LMCache#4991", "A store that failed stays visible to lookups.", "tier-failed-store-counts"),
    ),
    2: _all(
        (
            "vllm#35846",
            "Room for the rest of a store evicts blocks of the same prefix that are there already.",
            "tier-evicts-pinned",
        ),
    ),
    3: _all(
        (
            "vllm#43226",
            "A report of a transfer of who has left ends the engine.",
            "report-of-nobody-raises",
        ),
        (
            "vllm#51637",
            "Transfers are counted by the name of their request, so that an old one is taken for a new one.",
            "report-by-the-name-of-a-request report-by-one-name-for-all-stores",
        ),
        (
            "vllm#35943",
            "Who waits for a load that has failed elsewhere waits for ever.",
            "report-that-is-lost-is-waited-for",
        ),
    ),
    4: _all(
        (
            "vllm#53142",
            "The entry of a state is computed with the block size of another group.",
            "states-in-least-block-size",
        ),
        (
            "vllm#47861",
            "With drafts, pieces of a prompt end inside blocks; states are registered as those of block ends.",
            "unwritten-state-registered",
        ),
    ),
    5: _all(
        (
            "vllm#48245",
            "What is in flight of a preempted request is counted off it when it returns.",
            "pending-survives",
        ),
    ),
    8: _all(
        (
            "vllm#42695",
            "A pause for new weights clears the device's cache, and not the store beyond it.",
            "tier-new-weights-old-keys",
        ),
        ("omni#6739", "Resets behind new weights are accepted, and do nothing.", "new-weights-old-cache"),
    ),
    9: _all(
        (
            "vllm#49377",
            "A request whose tokens are replaced keeps the hashes of the old ones.",
            "changed-tokens-old-keys",
        ),
    ),
}
"""Others of the same classes."""

_SEED_7, _MORIIO = "vllm==0.26.0 --seed 7 --steps 20000", "vllm==0.33.0/moriio --seed 2 --steps 50000"
SHOWN: Mapping[str, tuple[str, str, str]] = {
    "vllm#51113": ("states-by-scheduler", "checks", _SEED_7),
    "vllm#42117": ("vllm#42043", "tokens", _SEED_7),
    "vllm#45138": ("vllm#49250", "tokens", _MORIIO),
}
"""By report, under which name a release shows it, a deviation or a report, to which judge, and in which run."""


def named_mistakes() -> list[str]:
    """All mistakes that stand for a report, each once."""
    every = [report for part in (REPORTS, BESIDE) for reports in part.values() for report in reports]
    return list(dict.fromkeys(name for report in every for name in report.mistakes))
