"""Mistakes that authors of a pair of engines make, each a small change of the source of examples/my-pair."""

from collections.abc import Mapping

from .radix_mistakes import Mistake

PAIRED: Mapping[str, Mistake] = {
    # The lease.
    "pair-freed-as-soon-as-computed": Mistake(
        "prefill frees a prompt's blocks as soon as it has told of them",
        "                (token,), blocks = sampled[one.id], tuple(one.blocks)\n",
        "                (token,), blocks = sampled[one.id], tuple(one.blocks)\n"
        "                self.release(one.id, one.attempt)\n",
    ),
    "pair-lease-never-ends": Mistake(
        "a lease whose acknowledgement is lost never ends", "if one.until <= self.port.now:", "if False:"
    ),
    "pair-lease-ends-too-early": Mistake(
        "prefill frees some rounds before the end of the lease that it has told",
        "if one.until <= self.port.now:",
        "if one.until - BEAT <= self.port.now:",
    ),
    "pair-lease-from-the-wrong-end": Mistake(
        "the lease is counted from when the router hears of it",
        "job.end, job.stop, message, life))",
        "job.end, job.stop, "
        "Computed(job.id, job.attempt, 0, message.blocks, message.life, self.port.now + LEASE), life))",
    ),
    "pair-load-ends-behind-the-lease": Mistake(
        "the lease is looked at when a load begins, not when it ends",
        "in_time = self.port.now < one.asked.source.until",
        "in_time = well or self.port.now < one.asked.source.until",
    ),
    "pair-acknowledgement-of-another-attempt": Mistake(
        "the acknowledgement of one attempt frees the blocks of a newer one, too",
        "        one = self.leased.pop((id, attempt), None)\n",
        "        for key in [key for key in self.leased if key[0] == id and key[1] > attempt]:\n"
        "            self.free += self.leased.pop(key).blocks\n"
        "        one = self.leased.pop((id, attempt), None)\n",
    ),
    "pair-freed-twice": Mistake(
        "what was acknowledged is freed again when its lease ends",
        "one = self.leased.pop((id, attempt), None)",
        "one = self.leased.get((id, attempt))",
    ),
    "pair-acknowledged-when-begun": Mistake(
        "decode acknowledges when its loads begin",
        "            self.waiting.remove(one)\n            one.blocks = [",
        "            self.waiting.remove(one)\n            self.acknowledge(one)\n            one.blocks = [",
    ),
    "pair-drop-at-prefill-while-loading": Mistake(
        "who cancels is dropped at prefill, though decode may load",
        "self.port.send(job.where, Drop(id, job.attempt))",
        'self.port.send("prefill", Drop(id, job.attempt))',
    ),
    "pair-drop-with-each-attempt": Mistake(
        "with a new attempt the blocks of the old one are dropped at prefill, though decode may load",
        "        job.attempt += 1\n",
        '        self.port.send("prefill", Drop(job.id, job.attempt))\n        job.attempt += 1\n',
    ),
    # Prefill.
    "pair-prompt-twice-in-the-queue": Mistake(
        "a message that comes twice puts the prompt into the queue twice",
        "            if queued is not None and queued.attempt >= message.attempt:\n                return\n"
        "            if queued is not None:\n                self.leave(queued)\n",
        "",
    ),
    "pair-prompt-dropped-keeps-blocks": Mistake(
        "a prompt that is dropped while it is computed keeps its blocks",
        "        self.queue.remove(one)\n        self.free += one.blocks\n",
        "        self.queue.remove(one)\n",
    ),
    "pair-result-of-who-was-dropped": Mistake(
        "the result of a step is taken for a prompt that was dropped meanwhile",
        "            if one not in self.queue:\n                continue\n",
        "",
    ),
    # Decode.
    "pair-message-of-an-earlier-life": Mistake(
        "decode obeys a message to its life before a crash", "if message.life != self.port.life:", "if False:"
    ),
    "pair-loaded-twice": Mistake(
        "a message that comes twice is obeyed again after its acknowledgement",
        "(message.id, message.attempt) in self.over or message",
        "message",
    ),
    "pair-allocates-twice": Mistake(
        "a message that comes twice allocates twice",
        "        if held is not None and held.asked.attempt >= message.attempt:\n            return\n",
        "",
    ),
    "pair-newer-attempt-beside-the-older": Mistake(
        "a newer attempt takes the place of the older one, which keeps its blocks",
        "        if held is not None:\n            self.leave(held)\n",
        "",
    ),
    "pair-blocks-back-while-loading": Mistake(
        "who leaves gives blocks back into which loads still write", "if one.gone and not one.loading:", "if one.gone:"
    ),
    "pair-left-while-loading-keeps-blocks": Mistake(
        "who leaves while he is loaded never gives his blocks back",
        "            self.acknowledge(one)\n            self.reap(one)\n",
        "            self.acknowledge(one)\n",
    ),
    "pair-answer-of-who-left": Mistake(
        "what a step computed is taken for who left meanwhile, in place of a newer attempt",
        "            if one.gone:\n                continue\n            one.tokens",
        "            one.tokens",
    ),
    "pair-partial-load": Mistake(
        "the first block that is there is taken for the whole prompt",
        "        if one.loading:\n            return\n",
        "",
    ),
    "pair-failed-load-counts": Mistake(
        "a load that failed counts", "if not well and in_time and not one.gone:", "if False:"
    ),
    "pair-room-for-the-prompt-only": Mistake(
        "decode takes blocks for the prompt, and none for the answer",
        "needed = -(-one.asked.end // self.size)",
        "needed = len(one.asked.source.blocks)",
    ),
    # The router.
    "pair-lost-is-not-noticed": Mistake(
        "the router waits for ever for what is lost", "self.port.now - job.heard > PATIENCE", "False"
    ),
    "pair-crash-is-forgotten": Mistake(
        "a crash of decode ends what it worked on, and the router does not begin it anew",
        "                    self.begin(lost)\n",
        "                    del self.jobs[lost.id]\n",
    ),
    "pair-lapsed-is-forgotten": Mistake(
        "the router forgets a request whose blocks could not be loaded",
        "        if isinstance(message, Lapsed):\n            self.begin(job)\n",
        "        if isinstance(message, Lapsed):\n            del self.jobs[job.id]\n",
    ),
    "pair-first-token-twice": Mistake(
        "a message that comes twice delivers the first token twice",
        'isinstance(message, Computed) and job.where == "prefill"',
        "isinstance(message, Computed)",
    ),
    "pair-tokens-without-places": Mistake(
        "each message of decode is taken to bring one new token",
        "message.tokens[len(job.tokens) - message.at :]",
        "message.tokens[-1:]",
    ),
    "pair-hears-old-attempts": Mistake(
        "the router takes what comes of an earlier attempt",
        "job is not None and job.attempt == attempt",
        "job is not None",
    ),
}
"""By name, in `pair_engine.py`."""

ADAPTED: Mapping[str, Mistake] = {
    "pair-blocks-of-an-earlier-life": Mistake(
        "blocks of a prefill that has crashed are loaded from the new one",
        'tier=f"prefill {source.life}"',
        'tier="prefill"',
    ),
}
"""The same in `simulated.py`."""
