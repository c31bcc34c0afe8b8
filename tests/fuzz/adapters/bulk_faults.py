"""Wrong decisions about many blocks at once, first steps and steps of prompts, planted into our core of today."""

from blockproof.fuzz.faults import Fault, first_steps
from blockproof.fuzz.faults.registry import wrap


def shared_as_the_first(manager):
    """What others hold, too, is taken to be held as often each."""
    pool = manager.block_pool

    def let_go(original, blocks, own):
        most = max(block.state for block in blocks)
        for block in blocks[own:]:
            block.state = block.state if block.state == 1 else most
        return original(blocks, own)

    wrap(pool, "_let_go_shared", let_go)


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


def prompt_step_without_room(manager):
    """A step of a prompt with states takes all the room that the pool has."""
    first_steps.asked_otherwise(manager, lambda asked: asked._replace(room=1 << 30))


def state_of_a_hit_not_held(manager):
    """A step of a prompt behind a hit does not hold the state that it goes on from."""

    def attach(original, lane, request_id, found, row):
        original(lane, request_id, found, row)
        if lane.keeps_states:
            manager.block_pool.release([row[-1]])

    wrap(manager.coordinator.steps, "_attach", attach)


def part_of_a_hit_not_copied(manager):
    """A step of a prompt behind a hit writes on in the block in which that ends."""

    def attach(original, lane, request_id, *given):
        original(lane, request_id, *given)
        lane.manager.tails.pop(request_id, None)

    wrap(manager.coordinator.steps, "_attach", attach)


def state_hit_while_it_is_written(manager):
    """A step of a prompt goes on from a state that this very step writes."""

    def fit(original, found, blocks):
        for lane in manager.coordinator.steps.lanes:
            if lane.keeps_states:
                lane.manager.cached_blocks_this_step.clear()
        return original(found, blocks)

    wrap(manager.coordinator.steps, "_fit", fit)


BULK = {
    "shared-as-the-first": (shared_as_the_first, ("full",)),
    "together-as-the-first": (together_as_the_first, ("full",)),
    "all-to-the-back": (all_to_the_back, ("full",)),
    "chunks-before-their-horizon": (chunks_before_their_horizon, ("full",)),
    "prompt-step-without-room": (prompt_step_without_room, ("full+mamba",)),
    "state-of-a-hit-not-held": (state_of_a_hit_not_held, ("full+mamba",)),
    "part-of-a-hit-not-copied": (part_of_a_hit_not_copied, ("full+mamba",)),
    "state-hit-while-it-is-written": (state_hit_while_it_is_written, ("full+mamba",)),
    **{
        fault.name: (fault.plant, ("full", "full+sliding"))
        for fault in vars(first_steps).values()
        if isinstance(fault, Fault) and fault.observables != ("new_block_ids",)
    },
}
"""Each with the kinds of cores in which it is looked for; those of first steps are the older core's, too. By the rule
of today new blocks are listed beside states alone."""
