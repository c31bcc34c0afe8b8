"""Wrong decisions about many blocks at once, planted into our core of today."""

from blockproof.fuzz.faults.registry import wrap


def shared_as_the_first(manager):
    """What others hold, too, is taken to be held as often each."""
    pool = manager.block_pool
    pool._let_go_shared = lambda blocks, states: type(pool)._let_go_shared(
        pool, blocks, [state if state == 1 else max(states) for state in states]
    )


def together_as_the_first(manager):
    """Where the first block of a hit waits in the queue, all others are taken to wait in its batch."""
    pool = manager.block_pool

    def touch(original, blocks):
        batch = blocks[0].state
        if isinstance(batch, int):
            return original(blocks)
        for block in blocks:
            block.state = 1
        pool.free_block_queue.lose(batch, len(blocks))
        return True

    wrap(pool, "_touch_many", touch)


def all_to_the_back(manager):
    """Of a table that is given back only the end is asked whether it has names."""
    queue = manager.block_pool.free_block_queue
    wrap(queue, "append_named", lambda original, blocks: original(blocks) or queue.append_n(blocks) or True)


def chunks_before_their_horizon(manager):
    """A step of many tokens is told that it changes nothing."""
    steps = manager.coordinator.steps
    wrap(steps, "look", lambda original, request_id, tokens: original(request_id, tokens) if tokens < 4 else 1 << 30)
