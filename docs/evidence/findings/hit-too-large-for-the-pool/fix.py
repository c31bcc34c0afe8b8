"""The change that is proposed for vLLM: where nobody could begin in a free pool, what is cached is forgotten.

`Scheduler.schedule` (vllm/v1/core/sched/scheduler.py): no request runs and none was let in, though every block is free.
Then it is their hits that do not fit, and in the next step they begin without.
"""

from typing import Any


def fix() -> None:
    """Change the engine in this process."""
    from vllm.v1.core.sched.scheduler import Scheduler

    scheduled = Scheduler.schedule

    def schedule(self: Any, *given: Any, **named: Any) -> Any:
        output = scheduled(self, *given, **named)
        pool = self.kv_cache_manager.block_pool
        free = pool.get_num_free_blocks() == pool.num_gpu_blocks - 1
        if self.waiting and not self.running and not output.total_num_scheduled_tokens and free:
            self.kv_cache_manager.reset_prefix_cache()
        return output

    Scheduler.schedule = schedule
