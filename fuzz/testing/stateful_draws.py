"""What the arguments of a rule are drawn from, where that depends on the state of the machine."""

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from ...model import ops
from .stateful_phases import batchable
from .stateful_run import MachineRun
from .stateful_strategies import T, item_rows, of_machine, prompts


def prompts_of(machine: MachineRun) -> SearchStrategy[tuple[int, ...]]:
    """Prompts that fit into the model."""
    shape = machine.run.shape
    return prompts(shape.max_model_len, min(shape.scheduler_block_size, shape.max_model_len))


def items_of(machine: MachineRun) -> SearchStrategy[tuple[ops.Item, ...]]:
    """Multimodal items that fit into the model."""
    return item_rows(machine.run.shape.max_model_len)


def batches(machine: MachineRun) -> SearchStrategy[tuple[str, ...]]:
    """Names of one or more requests that may take their next step together, in any order."""
    names = [handle.name for handle in machine.live if batchable(handle)]
    return st.lists(st.sampled_from(names), min_size=1, unique=True).map(tuple) if names else st.just(())


def evictable(machine: MachineRun) -> SearchStrategy[tuple[int, ...]]:
    """A block that holds cached content, or any one or two."""
    anything = st.lists(st.integers(0, machine.run.shape.num_blocks - 1), min_size=1, max_size=2, unique=True).map(
        tuple
    )
    registered = sorted(machine.scene.state.identity)
    return st.tuples(st.sampled_from(registered)) | anything if registered else anything


def touchable(machine: MachineRun) -> SearchStrategy[tuple[int, ...]]:
    """One or two blocks that are visible outside the core, or one of them twice."""
    hidden = set(machine.scene.state.sinks)
    blocks = [block for block in range(1, machine.run.shape.num_blocks) if block not in hidden]
    return st.lists(st.sampled_from(blocks), min_size=1, max_size=2).map(tuple) if blocks else st.just(())


def offered(name: str, strategy: SearchStrategy[T], without: T) -> SearchStrategy[T]:
    """What few targets have, of those that offer it; of others always the same, which costs no choice."""
    return of_machine(lambda machine: strategy if machine.has(name) else st.just(without))
