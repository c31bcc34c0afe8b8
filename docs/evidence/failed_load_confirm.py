"""A load that fails, of a prompt whose window was cut for the whole load: what the scheduler of vLLM makes of it. Shown
with the release alone, in the engine without a device of `findings/`; nothing of blockproof.

Run in an environment of a release: PYTHONPATH=docs/evidence/findings python docs/evidence/failed_load_confirm.py
One group, 160 of 200 tokens of a prompt are loaded while the request waits, and one block of the load is reported as
invalid (`kv_load_failure_policy` is "recompute"). Printed is how many of the tokens that the next query reads stand in
the null block.
"""

from concurrent.futures import Future
from typing import Any, ClassVar

from engine_without_device import NoDevice, layer, release, start, submit
from store_outside import loading
from vllm.v1.outputs import KVConnectorOutput

STORED, PROMPT, BLOCK, WINDOW = 160, 200, 16, 40
"""In tokens."""


class Failing(NoDevice):
    """A worker whose load fails in one block."""

    number: ClassVar[int] = 0
    """Which of the blocks that are loaded."""
    manager: ClassVar[Any] = None
    failed: ClassVar[int] = -1
    """The table entry of that block, once it has failed."""

    def execute_model(self, scheduler_output: Any, non_block: bool = False) -> Any:
        """The step; with it the load of the one request ends."""
        arrived = set(self.arrived)
        self.arrived.clear()
        answer = super().execute_model(scheduler_output, False)
        if arrived and Failing.failed < 0:
            (table,) = self.manager.get_block_ids(next(iter(arrived)))
            Failing.failed = [entry for entry, block in enumerate(table) if block][self.number]
            invalid = {table[Failing.failed]}
            answer.kv_connector_output = KVConnectorOutput(finished_recving=arrived, invalid_block_ids=invalid)
        if not non_block:
            return answer
        done: Future[Any] = Future()
        done.set_result(answer)
        return done


def case(spec: Any, window: int, number: int) -> str:
    """What becomes of a load whose block of this number fails."""
    options = loading()
    options["kv_transfer_config"].kv_load_failure_policy = "recompute"
    Failing.number, Failing.failed = number, -1
    engine = start({"layer": spec}, 64, 512, 512, device=Failing, **options)
    Failing.manager = engine.scheduler.kv_cache_manager
    submit(engine, "r", range(1, PROMPT + 1), answer=2, extra_args={"kv_transfer_params": {"stored": STORED}})
    for _ in range(20):
        engine.post_step(engine.step_fn()[1])
        for new in engine.model_executor.steps[-1].scheduled_new_reqs:
            (table,), begins = Failing.manager.get_block_ids(new.req_id), new.num_computed_tokens
            reads = range(max(0, begins - window + 1), begins)
            lost = sum(table[position // BLOCK] == 0 for position in reads)
            engine.scheduler.shutdown()
            what = f"entry {Failing.failed} fails, the next step begins at {begins}"
            return f"{what}; {lost} of the {len(reads)} tokens before it that it reads are in no block"
    raise RuntimeError("the request was never computed")


print(f"vLLM {release}")
print("full attention:", case(layer("FullAttentionSpec"), PROMPT, 3))
for failing in (0, 1):
    print(f"window of {WINDOW}:", case(layer("SlidingWindowSpec", sliding_window=WINDOW), WINDOW, failing))
