"""Two requests decode into one cached block: one that had to wait comes back with the other's block behind its own.

LMDeploy's PyTorch engine with prefix caching, blocks of 16 tokens and a `prefill_interval` of 32. Two requests have one
prompt and one answer. When the pool is full, one of them waits, and keeps its blocks; when it is admitted again, the
prefix trie is matched from where its cursor stood, and what is found is appended behind the blocks that it has.

Needs the Python files of LMDeploy and what these import; no GPU.
"""

from lmdeploy_without_device import Engine, main

PROMPT, ANSWER = list(range(1, 21)), list(range(1000, 1400))


def case() -> tuple[str, str, bool]:
    """Two requests with one prompt, both answered alike."""
    engine, start = Engine(14, 16, 32, enable_prefix_caching=True), len(PROMPT)
    both = [engine.submit(name, PROMPT) for name in (1, 2)]
    running = engine.prefill()
    for sequence in both:
        engine.forward(sequence)
    expected, story = "each request reads what was computed for it", ""
    for _ in range(150):
        for sequence in running:
            engine.append(sequence, ANSWER[sequence.num_all_ids - start])
        kept = engine.decode(running)
        waits = next((sequence for sequence in running if sequence not in kept), None)
        before = engine.table(waits) if waits else []
        running = kept + (engine.prefill() if waits else [])
        wrong = {sequence.session_id: engine.forward(sequence) for sequence in running}
        if waits and waits in running:
            story = f"request {waits.session_id} waited with blocks {before} and came back with {engine.table(waits)}"
        if reader := next((name for name, positions in wrong.items() if positions), None):
            return expected, f"{story}; request {reader} reads another content at positions {wrong[reader]}", True
    return expected, story or "no request had to wait", False


main(case)
