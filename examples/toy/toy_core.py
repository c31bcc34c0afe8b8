"""A toy KV-cache core: full attention, a prefix cache, the least recently freed block is reused first."""


class ToyCore:
    """A pool of blocks; each request has a table of them."""

    def __init__(self, num_blocks, block_size):
        self.block_size = block_size
        self.free = list(range(num_blocks))  # the next block to be reused in front
        self.holders = [0] * num_blocks
        self.content_of = {}  # block -> all tokens up to its end
        self.block_of = {}  # the other way round
        self.tables = {}

    def match(self, tokens):
        """The blocks of the longest cached prefix. At least one token is left to compute."""
        hit = []
        for end in range(self.block_size, len(tokens), self.block_size):
            block = self.block_of.get(tuple(tokens[:end]))
            if block is None:
                break
            hit.append(block)
        return hit

    def grow(self, request, hit, num_tokens):
        """The new blocks of a table that begins with `hit` and has room for so many tokens; None if there are none."""
        table = self.tables.get(request, [])
        missing = max(0, -(-num_tokens // self.block_size) - len(table) - len(hit))
        cached = [block for block in hit if not self.holders[block]]  # these leave the free list as well
        if missing + len(cached) > len(self.free):
            return None
        for block in cached:
            self.free.remove(block)
        new = [self.free.pop(0) for _ in range(missing)]
        for block in new:
            self.block_of.pop(self.content_of.pop(block, None), None)  # forget what it held
        for block in hit + new:
            self.holders[block] += 1
        self.tables[request] = table + hit + new
        return new

    def publish(self, request, tokens):
        """Let other requests use the full blocks of these tokens, which are in memory."""
        for index in range(len(tokens) // self.block_size):
            block, content = self.tables[request][index], tuple(tokens[: (index + 1) * self.block_size])
            if content not in self.block_of and block not in self.content_of:
                self.content_of[block], self.block_of[content] = content, block

    def release(self, request):
        """Give the blocks of a request back, the last one first."""
        for block in reversed(self.tables.pop(request, [])):
            self.holders[block] -= 1
            if not self.holders[block]:
                self.free.append(block)
