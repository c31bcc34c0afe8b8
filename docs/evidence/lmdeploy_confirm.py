"""What blockproof found in LMDeploy 0.18.0, shown with LMDeploy's own scheduler and without blockproof.

    PYTHONPATH=FOLDER_WITH_LMDEPLOY:docs/evidence/findings python docs/evidence/lmdeploy_confirm.py

Needs the Python files of LMDeploy's wheel and what `fuzz/adapters/lmdeploy/requirements.txt` lists, and no GPU. Prints
a line for each defect. The exit status is 1 if one of them shows.
"""

import sys

from lmdeploy_without_device import Engine, leave_out_init

PROMPT, ANSWER, QUESTION = list(range(1, 101)), list(range(1000, 1400)), list(range(2000, 2200))


def second_turn() -> str | None:
    """A session that is not ended gets its second message after another one has sent the same conversation, with
    LMDeploy's default sizes. AsyncEngine ends every session, so this takes the engine's own interface."""
    from lmdeploy.pytorch.messages import UpdateTokenMode

    engine = Engine(100, 64, 16, enable_prefix_caching=True)
    first = engine.submit(1, PROMPT)
    engine.prefill()
    engine.forward(first)
    for token in ANSWER[:10]:
        engine.append(first, token)
        engine.decode([first])
        engine.forward(first)
    engine.append(first, ANSWER[10])
    first.finish()
    before = engine.table(first)
    other = engine.submit(2, [*PROMPT, *ANSWER[:11], *QUESTION])
    engine.prefill()
    engine.forward(other)
    first.update_token_ids(QUESTION, mode=UpdateTokenMode.INPUTS)
    first.activate()
    engine.prefill()
    wrong = engine.forward(first)
    story = f"blocks {before} of the first turn became {engine.table(first)}"
    return f"{story}; it reads wrong content at {wrong[0]} .. {wrong[-1]}" if wrong else None


def long_interval() -> str | None:
    """A prompt within the longest session that LMDeploy allows, with a `prefill_interval` above the block size."""
    blocks, size = 10, 16
    engine = Engine(blocks, size, 32)
    longest = (blocks - 1) * size - size  # Engine._get_max_session_len
    sequence = engine.submit(1, list(range(longest - 1)))
    if engine.prefill():
        return None
    return f"a prompt of {sequence.num_all_ids} tokens, {longest} allowed, alone in the pool, is never admitted"


def window_in_a_small_pool() -> str | None:
    """With a window that the pool holds LMDeploy allows sessions of any length, and makes room for whole prompts."""
    blocks, size, window, chunk = 80, 64, 4096, 8192
    engine = Engine(blocks, size, 16, window_size=window, max_prefill_token_num=chunk)
    sequence = engine.submit(1, list(range(6000)))
    if engine.prefill():
        return None
    return f"a prompt of {sequence.num_all_ids} tokens in {(blocks - 1) * size}, window {window}, is never admitted"


def main() -> int:
    """Show them; 1 if any does."""
    leave_out_init("lmdeploy")
    shown = 0
    for case in (second_turn, long_interval, window_in_a_small_pool):
        said = case()
        shown += said is not None
        print(f"{case.__name__}: {said or 'does not show'}")
    return int(shown > 0)


if __name__ == "__main__":
    sys.exit(main())
