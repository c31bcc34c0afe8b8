"""Mistakes that authors of a lower tier make, each a small change of examples/my-scheduler-engine/tiered.py; by the
clause of the definition that they break.
"""

from collections.abc import Mapping

from .radix_mistakes import Mistake

_STORE = (
    "        for number, key in enumerate(own):\n            if key in self.tier.found or key in self.tier.coming:\n"
)
_LOADED = "        self.tier.unpin(load.host)\n"
_NEW = "        sequence.table += new\n"

FOUND: Mapping[str, Mistake] = {
    "tier-loses-keys": Mistake(
        "of some stores the key is lost, and the place with it",
        "self.found[key] = place\n",
        "self.found.update({key: place} if place % 3 else {})\n",
    ),
    "tier-forgets-what-was-loaded": Mistake(
        "what was loaded is not found again",
        _LOADED,
        "        self.tier.unpin(load.host)\n"
        "        self.tier.found = {key: place for key, place in self.tier.found.items() if place not in load.host}\n",
    ),
    "tier-looks-one-block-short": Mistake(
        "the last whole block is never looked for, though it is among those asked for",
        "        for key in keys:\n            if key not in self.found:\n",
        "        for key in keys:\n            if key not in self.found or key == keys[-1]:\n",
    ),
    "tier-evicts-unsaid": Mistake(
        "who makes room does not say so", '            self.deeds.append(Deed("evicted", (self.free[-1],)))\n', ""
    ),
    "tier-gives-up-the-whole-hit": Mistake(
        "if the last whole block is not there, nothing counts as found",
        "            if key not in self.found:\n                break\n",
        "            if key not in self.found:\n                places.clear()\n                break\n",
    ),
    "tier-loads-what-was-not-looked-for": Mistake(
        "the first block is loaded with those that were looked for, and nobody has looked for it",
        "            if key not in self.found:\n                break\n",
        "            if key not in self.found and key != keys[0]:\n                break\n",
    ),
}
"""What was stored and has not been evicted is found."""

RIGHT: Mapping[str, Mistake] = {
    "tier-found-before-it-is-there": Mistake(
        "a block is found while its store is on its way",
        "        self.coming[key], self.ages[key] = place, self.clock\n",
        "        self.coming[key], self.ages[key] = place, self.clock\n        self.found[key] = place\n",
    ),
    "tier-failed-store-counts": Mistake(
        "a store that failed counts",
        "        if well:\n            self.found",
        "        if key:\n            self.found",
    ),
    "tier-evicted-is-found": Mistake(
        "what was evicted is still found",
        "self.free.append(self.found.pop(oldest))",
        "self.free.append(self.found[oldest])",
    ),
    "tier-stores-the-block-before": Mistake(
        "a block is stored under the key of the next one",
        "self.pool.share(sequence.table[number])",
        "self.pool.share(sequence.table[max(0, number - 1)])",
    ),
    "tier-source-not-held": Mistake(
        "the blocks that are stored from are free while the store reads them",
        "            blocks.append(self.pool.share(sequence.table[number]))\n",
        "            blocks.append(sequence.table[number])\n            self.pool.references[blocks[-1]] += 1\n"
        "            self.pool.free.update({blocks[-1]: None} if self.pool.references[blocks[-1]] == 1 else {})\n"
        "            self.pool.references[blocks[-1]] -= 1\n",
    ),
    "tier-stores-the-unwritten": Mistake(
        "the block with the token that was just sampled is stored, and nobody has written it",
        "full = sequence.landed // self.pool.size\n",
        "full = min((sequence.landed + 1) // self.pool.size, len(sequence.table))\n",
    ),
    "tier-stores-what-is-in-flight": Mistake(
        "what a step in flight computes counts as stored",
        "full = sequence.landed // self.pool.size\n",
        "full = min(sequence.computed // self.pool.size, len(sequence.table))\n",
    ),
    "tier-loaded-is-found-at-once": Mistake(
        "what is loaded is found in the prefix cache of the device before it is there",
        _NEW,
        _NEW + "        for number, block in enumerate(sequence.table):\n"
        "            pool.register(block, self.key(sequence, number))\n",
    ),
    "tier-failed-load-stays-published": Mistake(
        "what was to be loaded is found in the prefix cache of the device though the load has failed",
        _LOADED,
        _LOADED + "        for number, block in enumerate(sequence.table):\n"
        "            self.pool.register(block, self.key(sequence, number))\n",
    ),
}
"""What is found is right."""

PINS: Mapping[str, Mistake] = {
    "tier-pins-of-who-left": Mistake(
        "who leaves while he is loaded keeps his pins",
        _LOADED,
        "        if self.sequences.get(sequence.id) is sequence:\n            self.tier.unpin(load.host)\n",
    ),
    "tier-pins-of-a-failed-load": Mistake(
        "a load that failed keeps its pins", _LOADED, "        if well:\n            self.tier.unpin(load.host)\n"
    ),
    "tier-load-is-not-pinned": Mistake(
        "what is loaded from may be evicted",
        "        self.tier.pin(places)\n        self.count += 1\n",
        "        self.count += 1\n",
    ),
    "tier-evicts-pinned": Mistake(
        "pins are overlooked when room is made",
        " if not self.pins[place]]\n            if not idle",
        "]\n            if not idle",
    ),
    "tier-unpins-twice": Mistake(
        "a load that fails is unpinned twice",
        "        if not well:\n            self.tier.drop(load.host)\n",
        "        if not well:\n            self.tier.unpin(load.host)\n            self.tier.drop(load.host)\n",
    ),
    "tier-unpins-when-who-loads-leaves": Mistake(
        "who leaves while he is loaded gives his pins back, and the end of the load does again",
        "        if not self.is_loading(sequence) and self.every:\n            self.store(sequence)\n",
        "        for load in self.loading.values():\n            if load.sequence is sequence:\n"
        "                self.tier.unpin(load.host)\n"
        "        if not self.is_loading(sequence) and self.every:\n            self.store(sequence)\n",
    ),
    "tier-pins-before-there-is-room": Mistake(
        "what is found is pinned each time that it is found, also if there is no room to load it",
        "        if len(places) > len(quiet):\n            return False\n        sequence.table = [pool.share",
        "        if len(places) > len(quiet):\n            self.tier.pin(places)\n            return False\n"
        "        sequence.table = [pool.share",
    ),
}
"""What was pinned is given back, and no count is negative."""

ROOM: Mapping[str, Mistake] = {
    "tier-evicts-with-room": Mistake(
        "room is made while there is some", "        if not self.free:\n", "        if len(self.free) < 2:\n"
    ),
    "tier-evicts-the-newest": Mistake("the newest leaves first", "oldest = min(idle", "oldest = max(idle"),
    "tier-evicts-as-out-of-reach": Mistake(
        "what is evicted is said to be out of reach, and others find all before it",
        '            self.deeds.append(Deed("evicted", (self.free[-1],)))\n',
        '            self.deeds.append(Deed("stranded", (self.free[-1],)))\n',
    ),
    "tier-use-does-not-count": Mistake(
        "under LRU, who is found leaves as if he had not been",
        "                self.ages[key] = self.clock\n",
        "                pass\n",
    ),
    "tier-use-counts": Mistake(
        "under FIFO, who is found stays longer", '            if self.policy == "lru":\n', "            if key:\n"
    ),
    "tier-place-of-a-store-is-given-away": Mistake(
        "a place to which a store is on its way is taken for another one",
        "        place = self.free.pop()\n",
        "        place = next(iter(self.coming.values())) if len(self.coming) > 2 else self.free.pop()\n",
    ),
    "tier-failed-store-keeps-its-place": Mistake(
        "the place of a store that failed is lost",
        "        else:\n            self.free.append(place)\n        self.deeds",
        "        self.deeds",
    ),
    "tier-failed-store-is-not-told": Mistake(
        "a store that failed holds its place and its blocks for ever",
        "            for block in self.storing.pop(id).blocks:\n",
        "            if not well:\n                self.storing.pop(id)\n                return\n"
        "            for block in self.storing.pop(id).blocks:\n",
    ),
}
"""Nothing is evicted without need or before its turn, and no place is lost."""

STORED: Mapping[str, Mistake] = {
    "tier-drops-keys-unstored": Mistake(
        "of what is to be stored each third key is dropped",
        _STORE,
        _STORE.replace("if key in", "if number % 3 == 2 or key in", 1),
    ),
    "tier-stores-the-prompt-only": Mistake(
        "only whole blocks of the prompt are stored",
        "full = sequence.landed // self.pool.size\n",
        "full = min(sequence.landed, sequence.prompt) // self.pool.size\n",
    ),
    "tier-forgets-who-cancels": Mistake(
        "of who cancels nothing is stored",
        "        if not self.is_loading(sequence) and self.every:\n",
        "        if not self.is_loading(sequence) and self.every and sequence.answer >= sequence.most:\n",
    ),
    "tier-counter-passes-what-was-not-stored": Mistake(
        "how far a request is stored is counted, also where there was no room or the store failed",
        _STORE,
        "        done = self.__dict__.setdefault('done', {})\n"
        "        before, done[sequence] = done.get(sequence, 0), full\n"
        + _STORE.replace("if key in", "if number < before or key in", 1),
    ),
    "tier-keys-and-blocks-apart": Mistake(
        "blocks of keys that are there already are sent along, so that keys and blocks do not agree",
        _STORE + "                continue\n",
        _STORE + "                if number + 1 < full:\n"
        "                    blocks.append(self.pool.share(sequence.table[number]))\n"
        "                continue\n",
    ),
    "tier-preempted-is-not-stored": Mistake(
        "who is set back is not stored",
        '        """What it has computed is stored."""\n        self.store(sequence)\n',
        "",
    ),
    "tier-last-block-is-not-stored": Mistake(
        "a block that the last step has made whole is not stored",
        "full = sequence.landed // self.pool.size\n",
        "full = max(0, sequence.landed - 1) // self.pool.size\n",
    ),
}
"""The whole blocks of who leaves are stored where the options say so."""

REPORTS: Mapping[str, Mistake] = {
    "report-of-nobody-raises": Mistake(
        "a report of a transfer that is not known, or is over, is not expected",
        "        if self.begun.pop(id, None) is None:\n            return\n",
        "        self.begun.pop(id)\n",
    ),
    "report-of-nobody-is-kept": Mistake(
        "a report of a transfer that is not known is taken for one of the oldest under way",
        "        if id in self.begun:\n",
        "        id = id if id in self.begun else next(iter(self.begun), id)\n        if id in self.begun:\n",
    ),
    "report-of-one-worker-is-enough": Mistake(
        "a transfer is over when the first worker says so",
        "            if len(self.heard[id]) == self.workers:\n",
        "            if self.heard[id]:\n",
    ),
    "reports-are-counted": Mistake(
        "reports are counted, so that one worker that says it twice counts as two",
        "            self.heard.setdefault(id, set()).add(worker)\n"
        "            if len(self.heard[id]) == self.workers:\n",
        "            self.heard.setdefault(id, set()).add((worker, len(self.heard.get(id, ()))))\n"
        "            if len(self.heard[id]) == self.workers:\n",
    ),
    "report-that-is-lost-is-waited-for": Mistake(
        "a transfer of which nothing is heard is waited for for ever",
        "            if self.clock - begun > PATIENCE:\n",
        "            if self.clock - begun > 100 * PATIENCE:\n",
    ),
    "report-that-is-lost-counts": Mistake(
        "a transfer of which nothing was heard counts as done",
        "                self.moved(id, False)\n        return super().schedule()",
        "                self.moved(id, True)\n        return super().schedule()",
    ),
    "report-is-not-waited-for": Mistake(
        "a transfer is given up while it still writes", "PATIENCE = 26", "PATIENCE = 1"
    ),
    "report-by-the-name-of-a-request": Mistake(
        "transfers have the name of their request, so that a late report is taken for one of the next transfer",
        'load = Transfer(f"t{self.count}", sequence',
        "load = Transfer(sequence.id, sequence",
    ),
    "report-by-one-name-for-all-stores": Mistake(
        "all stores of a request have one name",
        'store = Transfer(f"t{self.count}", sequence',
        'store = Transfer(f"s{sequence.id}", sequence',
    ),
    "report-given-up-loses-the-request": Mistake(
        "who was loaded, and is given up, does not wait again",
        "            self.give_back(sequence)\n            self.wait(sequence)\n",
        "            self.give_back(sequence)\n",
    ),
    "report-given-up-keeps-blocks": Mistake(
        "the blocks of a store that is given up are never free again",
        "            for block in self.storing.pop(id).blocks:\n",
        "            for block in self.storing.pop(id).blocks[: None if well else 0]:\n",
    ),
    "report-ends-all-of-a-request": Mistake(
        "the first transfer of a request that ends stands for all of them",
        "        self.heard.pop(id, None)\n",
        "        self.heard.pop(id, None)\n"
        "        moving = {**self.storing, **self.loading}\n"
        "        for other, one in moving.items():\n"
        "            if one.sequence is moving[id].sequence:\n                self.moved(other, well)\n",
    ),
    "report-of-one-worker-more": Mistake(
        "a transfer is over when one worker more has said so than there are",
        "            if len(self.heard[id]) == self.workers:\n",
        "            if len(self.heard[id]) > self.workers:\n",
    ),
    "report-of-a-store-is-not-expected-by-a-load": Mistake(
        "who is set back, and comes again while it is stored, is not expected to be loaded",
        "        self.waiting.remove(sequence)\n        self.tier.pin(places)\n",
        "        assert all(store.sequence is not sequence for store in self.storing.values())\n"
        "        self.waiting.remove(sequence)\n        self.tier.pin(places)\n",
    ),
}
"""What becomes of the reports of transfers."""

_MOVES = '    def moves_blocks(self) -> bool:\n        """Stores read'
EPOCHS: Mapping[str, Mistake] = {
    "tier-new-weights-old-keys": Mistake(
        "new weights void the prefix cache of the device, and not what the host has",
        _MOVES,
        "    def reweigh(self) -> None:\n        super().reweigh()\n        self.weights -= 1\n\n" + _MOVES,
    ),
    "tier-load-outlives-new-weights": Mistake(
        "a load that began under the old weights counts under the new ones",
        _MOVES,
        "    def reweigh(self) -> None:\n        super(OffloadingScheduler, self).reweigh()\n\n" + _MOVES,
    ),
    "tier-store-outlives-new-weights": Mistake(
        "with new weights the host is emptied, and a store that began before is found once it has ended",
        _MOVES,
        "    def reweigh(self) -> None:\n        super().reweigh()\n        if not any(self.tier.pins.values()):\n"
        "            self.weights -= 1\n            self.tier.free += self.tier.found.values()\n"
        '            self.tier.found.clear()\n            self.tier.deeds.append(Deed("emptied", ()))\n\n' + _MOVES,
    ),
}
"""What was computed under other weights is of no use, wherever it is."""

TIERED: Mapping[str, Mistake] = {**FOUND, **RIGHT, **PINS, **ROOM, **STORED, **REPORTS, **EPOCHS}
