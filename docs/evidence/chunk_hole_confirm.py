"""vLLM 0.26.0, OffloadingConnector with several blocks in a chunk: of a window, what is stored lies in other places of
its chunk than it is loaded from.

PYTHONPATH=docs/evidence/findings PYTHON docs/evidence/chunk_hole_confirm.py runs it with the Python of an environment
that has the release; it has nothing of blockproof. A request with a window of one block gives two blocks up in the
step with which its third one is full. The first is kept by a request that begins alike, the second is handed out in
the same step. Of the chunk of three the first and the third are named to the worker, which counts their places on from
the first.
"""

from engine_without_device import connected, layer, release, run, start, submit

WINDOW = layer("SlidingWindowSpec", sliding_window=16)
MORE = {"cpu_bytes_to_use": 1 << 20, "blocks_per_chunk": 3, "offload_prompt_only": False}
options = connected("OffloadingConnector", kv_connector_extra_config=MORE)
engine = start({"layer": WINDOW}, 7, 96, 64, **options)
half = engine.scheduler.connector.connector_scheduler
stored = []


def build(output, original=half.build_connector_meta):
    """As the release does; what is to be stored is noted."""
    metadata = original(output)
    stored.extend((job.req_id, job.src_spec) for job in metadata.store_jobs.values())
    return metadata


half.build_connector_meta = build
submit(engine, "a", range(1, 48), 8)
submit(engine, "c", [*range(1, 17), 500], 8)
run(engine, 1)
table = engine.scheduler.kv_cache_manager.get_block_ids("a")[0]
submit(engine, "b", range(100, 146), 1)
run(engine, 4)
print(f"vLLM {release}: the blocks of a were {table}")
for request, blocks in stored:
    ids, first = [int(block) for block in blocks.block_ids], blocks.block_indices[0]
    if request == "a":
        places = {block: first + place for place, block in enumerate(ids)}
        wrong = [block for block, place in places.items() if table[place % 3] != block]
        print(f"stored of a: blocks {ids}, from block {first} of the chunk on; in the place of another one: {wrong}")
