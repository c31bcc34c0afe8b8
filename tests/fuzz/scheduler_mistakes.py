"""Mistakes that authors of schedulers make, each a small change of the source of examples/my-scheduler-engine."""

from collections.abc import Mapping

from .radix_mistakes import Mistake

_HELD = "sequence.computed = sequence.landed = sequence.pending = 0"

MISTAKES: Mapping[str, Mistake] = {
    # The pool.
    "shared-block-stays-free": Mistake(
        "a cached block that is used again stays in the free list", "        self.free.pop(block, None)\n", ""
    ),
    "taken-block-keeps-its-key": Mistake(
        "a block that is taken is still found by what it held",
        "        self.forget(block)\n        self.references",
        "        self.references",
    ),
    "taken-block-is-not-counted": Mistake(
        "a block that is taken has no reference", "self.references[block] = 1", "self.references[block] = 0"
    ),
    "freed-by-the-first": Mistake(
        "a shared block is free as soon as one of its holders ends", "if not self.references[block]:", "if True:"
    ),
    "reset-forgets-half": Mistake(
        "a reset forgets which key a block has, not which block a key finds",
        "        self.keys.clear()\n        self.found.clear()\n",
        "        self.keys.clear()\n",
    ),
    # What is found.
    "hit-of-everything": Mistake(
        "a request may be found as a whole, so that nothing is left to be computed",
        "while (len(blocks) + 1) * self.pool.size < len",
        "while (len(blocks) + 1) * self.pool.size <= len",
    ),
    "key-without-adapter": Mistake(
        "adapters share the prefix cache", "hash((self.weights, *sequence.apart))", "hash((self.weights,))"
    ),
    "key-without-items": Mistake(
        "images are no part of a key",
        "tuple(sequence.tokens[first : first + size]), *items",
        "tuple(sequence.tokens[first : first + size])",
    ),
    "key-without-place-of-items": Mistake(
        "where an image begins is no part of a key", "[(name, at) for", "[(name, 0) for"
    ),
    "key-without-prefix": Mistake(
        "a key does not depend on the blocks before", "before = keys[-1] if keys else hash", "before = hash"
    ),
    "hit-not-held-in-time": Mistake(
        "new blocks are taken before those that were found are held",
        "        sequence.table = [pool.share(block) for block in hit]\n"
        "        sequence.table += [pool.take() for _ in range(new)]\n",
        "        taken = [pool.take() for _ in range(new)]\n"
        "        sequence.table = [pool.share(block) for block in hit] + taken\n",
    ),
    "hit-counted-one-more": Mistake(
        "a hit counts one token more than there are",
        "sequence.computed = sequence.landed = len(hit) * pool.size\n",
        "sequence.computed = sequence.landed = len(hit) * pool.size + bool(hit)\n",
    ),
    # What is published.
    "publishes-unwritten": Mistake(
        "the block with the token that was just sampled is published, and nobody has written it",
        "for number in range(sequence.landed // self.pool.size)",
        "for number in range((sequence.landed + 1) // self.pool.size)",
    ),
    # New weights.
    "new-weights-old-cache": Mistake(
        "the prefix cache outlives new weights", "        self.weights += 1\n        self.pool.reset()\n", ""
    ),
    "new-weights-old-tables": Mistake(
        "who runs goes on with what was computed under the old weights",
        "        for sequence in list(self.running):\n            self.preempt(sequence)\n",
        "",
    ),
    # Who leaves.
    "end-keeps-blocks": Mistake(
        "a request that leaves keeps its blocks",
        "        self.give_back(sequence)\n        (self.running if",
        "        (self.running if",
    ),
    "cancel-of-waiting-raises": Mistake(
        "only who runs can be cancelled",
        "(self.running if sequence in self.running else self.waiting).remove(sequence)",
        "self.running.remove(sequence)",
    ),
    "results-for-whoever-has-the-name": Mistake(
        "the result of a step goes to a new request of the same name",
        "            if self.sequences.get(sequence.id) is not sequence or sequence.life != piece.life:\n"
        "                continue\n",
        "            sequence = self.sequences.get(sequence.id)\n"
        "            if sequence is None:\n"
        "                continue\n",
    ),
    "results-of-an-earlier-life": Mistake(
        "the result of a step that was begun before a preemption is taken behind it",
        " or sequence.life != piece.life:",
        ":",
    ),
    # Who is set back.
    "pending-survives": Mistake(
        "a preempted request still waits for a token of a step in flight",
        _HELD,
        "sequence.computed = sequence.landed = 0",
    ),
    "preempted-is-lost": Mistake(
        "a preempted request does not wait",
        "        self.running.remove(sequence)\n        self.wait(sequence)\n",
        "        self.running.remove(sequence)\n",
    ),
    "first-is-preempted": Mistake(
        "who came first is set back, though it may be in the step that is being made",
        "self.running[-1])",
        "self.running[0])",
    ),
    "goes-on-behind-its-own-preemption": Mistake(
        "a request that was set back to make room for itself goes on",
        "            if victim is sequence:\n                return False\n",
        "",
    ),
    # Admission.
    "hit-counts-as-room": Mistake(
        "blocks that are found, and are free, count as room for new ones, too",
        "if new > len(pool.free) - sum(block in pool.free for block in hit):",
        "if new > len(pool.free):",
    ),
    "exact-fit-waits": Mistake(
        "who needs exactly what is free waits",
        "if new > len(pool.free) - sum",
        "if new >= len(pool.free) - sum",
    ),
    "too-large-is-taken": Mistake(
        "a request that is larger than the pool is not refused",
        "0 if self.blocks_for(longest) > self.pool.blocks else max(",
        "max(",
    ),
    # Steps.
    "drafts-beyond-the-step": Mistake(
        "drafts are not counted against the tokens of a step", "sequence.drafts[: left - 1]", "sequence.drafts"
    ),
    "rejected-drafts-count": Mistake(
        "rejected drafts stay counted as computed",
        "                sequence.computed -= len(piece.drafts) - (len(tokens) - 1)\n",
        "",
    ),
    "every-step-samples": Mistake(
        "a piece of a prompt takes a sampled token off, too",
        "            if tokens:\n                sequence.pending -= 1\n",
        "            sequence.pending -= 1\n            if tokens:\n",
    ),
    "parked-is-computed": Mistake(
        "a request that runs is computed though it is parked",
        " or sequence.parked or sequence.guessing",
        " or sequence.guessing",
    ),
    "more-requests-than-allowed": Mistake(
        "who is admitted is not counted against the requests of a step",
        "and not (self.preempted or short) and len(pieces) < self.max_requests:",
        "and not (self.preempted or short):",
    ),
    # Counters of steps in flight, of parked requests and of hits.
    "deferred-count-as-running": Mistake(
        "requests that were set back are counted against those that may run, and are admitted below that only",
        "and len(pieces) < self.max_requests:\n            sequence = next",
        "and len(pieces) + sum(one.life > 0 for one in self.waiting) < self.max_requests:\n            sequence = next",
    ),
    "first-result-behind-a-preemption-is-dropped": Mistake(
        "what the first step behind a preemption brings is taken for what was in flight before it",
        "return Piece(sequence, sequence.life, first,",
        "return Piece(sequence, sequence.life - (sequence.life > 0 and not first), first,",
    ),
    "hit-is-deducted-from-the-step": Mistake(
        "what was found of a prompt is taken off the tokens of its piece, which has none of them",
        "            pieces.append(self.piece(sequence, count, ()))\n            left -= count\n",
        "            left -= max(0, count - sequence.computed)\n"
        "            pieces.append(self.piece(sequence, count, ()))\n",
    ),
    "landed-survives-a-preemption": Mistake(
        "a preempted request keeps the count of its tokens in memory",
        _HELD,
        "sequence.computed = sequence.pending = 0",
    ),
    # What is delivered.
    "delivers-behind-stop": Mistake(
        "accepted drafts behind a stop token are delivered",
        'return tokens[: number + 1], "stop"',
        'return tokens, "stop"',
    ),
    "stop-among-drafts-overlooked": Mistake(
        "only the last token of a step is compared with the stop tokens",
        "if token in sequence.stop:",
        "if number == len(tokens) - 1 and token in sequence.stop:",
    ),
    "one-token-more": Mistake(
        "a request ends one token too late",
        "if sequence.answer >= sequence.most:",
        "if sequence.answer > sequence.most:",
    ),
    "only-the-last-step-is-told": Mistake(
        "tokens are delivered only with the end", "            if new or end:\n", "            if end:\n"
    ),
    # Forks and changed requests.
    "fork-shares-the-last-block": Mistake(
        "a fork shares the block that is not full, too",
        "            child.table.append(self.pool.take())\n"
        "            self.copies.append((parent.table[computed // size], child.table[-1]))\n",
        "            child.table.append(self.pool.share(parent.table[computed // size]))\n",
    ),
    "fork-copies-nothing": Mistake(
        "the block that is not full is not copied",
        "            self.copies.append((parent.table[computed // size], child.table[-1]))\n",
        "",
    ),
    "fork-without-adapter": Mistake(
        "a fork forgets its parent's adapter",
        "child.apart, child.items = parent.apart, parent.items",
        "child.items = parent.items",
    ),
    "fork-takes-blocks-without-asking": Mistake(
        "a fork takes a block though none is free",
        "        if not computed or (computed % size and not self.pool.free):\n",
        "        if not computed:\n",
    ),
    "fork-without-room-is-lost": Mistake(
        "a fork for which there is no room waits for nobody",
        "            self.wait(child)\n            return\n        child.computed",
        "            if not computed:\n                self.wait(child)\n            return\n        child.computed",
    ),
    "changed-tokens-old-blocks": Mistake(
        "a request whose tokens change keeps what was computed of the old ones",
        "        if sequence in self.running:\n            self.preempt(sequence)\n        sequence.tokens[length:]",
        "        sequence.tokens[length:]",
    ),
    "changed-tokens-old-keys": Mistake(
        "a request whose tokens change keeps the keys of the old ones",
        "        sequence.most = self.most_of(sequence)\n        sequence.keys.clear()\n",
        "        sequence.most = self.most_of(sequence)\n",
    ),
}

OFFLOADING: Mapping[str, Mistake] = {
    "freed-while-loading": Mistake(
        "the blocks of a request that leaves are free while its load still writes them",
        "        if self.is_loading(sequence):\n            del self.sequences[sequence.id]\n            return\n",
        "        if self.is_loading(sequence):\n            self.give_back(sequence)\n"
        "            del self.sequences[sequence.id]\n            return\n",
    ),
    "load-into-what-a-step-writes": Mistake(
        "a load takes blocks into which a step in flight still writes", " if block not in busy]", "]"
    ),
    "failed-load-counts": Mistake(
        "what a failed load should have brought counts as computed",
        "elif well and sequence.life == load.life:",
        "elif sequence.life == load.life:",
    ),
    "load-of-other-tokens": Mistake(
        "a load counts though the tokens of the request have changed meanwhile",
        "elif well and sequence.life == load.life:",
        "elif well:",
    ),
    "computed-before-it-is-loaded": Mistake(
        "a request is computed while its load is on its way",
        "            self.loads.append(load)\n",
        "            self.loads.append(load)\n"
        "            sequence.computed = sequence.landed = len(host) * self.pool.size\n"
        "            self.running.append(sequence)\n",
    ),
    "host-freed-too-early": Mistake(
        "the host's blocks are free as soon as a load begins",
        "            self.loads.append(load)\n",
        "            self.loads.append(load)\n            self.drop(sequence)\n",
    ),
    "host-never-freed": Mistake(
        "what is stored of a request that leaves stays",
        "        self.drop(sequence)\n        super().end(sequence)\n",
        "        super().end(sequence)\n",
    ),
    "stores-more-than-landed": Mistake(
        "the block that is not full is stored, too",
        "full = sequence.landed // self.pool.size\n",
        "full = len(sequence.table)\n",
    ),
    "stores-what-is-in-flight": Mistake(
        "what a step in flight computes counts as stored",
        "full = sequence.landed // self.pool.size\n",
        "full = (sequence.landed + 1) // self.pool.size\n",
    ),
    "stored-under-old-weights": Mistake(
        "what is stored outlives new weights",
        "        for sequence in self.sequences.values():\n            self.forget(sequence)\n",
        "",
    ),
    "stored-of-other-tokens": Mistake(
        "what is stored outlives a change of the tokens",
        "        if goes_on:\n            self.forget(self.sequences[id])\n",
        "",
    ),
    "who-failed-is-lost": Mistake(
        "a request whose load has failed does not wait again",
        "            self.give_back(sequence)\n            self.wait(sequence)\n",
        "            self.give_back(sequence)\n",
    ),
    "gives-back-for-a-load": Mistake(
        "a request gives its own blocks back while another one is loaded",
        "            if victim is sequence:\n                return False\n            self.preempt(victim)\n",
        "            self.preempt(victim)\n            if victim is sequence:\n                return False\n",
    ),
}
"""The same in `offloading.py`."""
