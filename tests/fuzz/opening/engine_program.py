"""A program that is an engine to be simulated, with nothing of ours: one request after the other, lines of JSON."""

import json
import sys

MISTAKE = sys.argv[1] if len(sys.argv) > 1 else ""
waiting, got, shape, computed, batches = [], [], {}, 0, []


def answer(what, about):
    global shape, got, computed
    if what == "start":
        shape = about
        waiting.clear()
        batches.clear()
        got, computed = [], 0
        return {"refused": "only one group"} if len(about["core"]["groups"]) > 1 else {}
    if what == "add":
        longest, size = len(about["prompt"]) + about["max_tokens"], shape["core"]["groups"][0]["block_size"]
        if longest > shape["core"]["max_model_len"] or -(-longest // size) > shape["core"]["num_blocks"]:
            return {"delivered": [{"request": about["id"], "ended": "refused"}]}
        waiting.append(about)
    elif what == "cancel":
        if waiting[0]["id"] == about:
            got, computed = [], 0
        waiting[:] = [one for one in waiting if one["id"] != about]
    elif what == "schedule":
        return {"batch": batch() if waiting else None}
    elif what == "update":
        return {"delivered": told(about["batch"], about["results"]["tokens"])}
    elif what == "idle":
        return {"idle": not waiting}
    elif what == "look":
        return {"free": shape["core"]["num_blocks"]}
    return {}


def batch():
    global computed
    one, size, first = waiting[0], shape["core"]["groups"][0]["block_size"], computed
    computed = end = min(len(one["prompt"]) + len(got), first + shape["core"]["max_num_batched_tokens"])
    batches.append(one)
    blocks = list(range(-(-end // size)))
    if MISTAKE == "table" and got:
        blocks.reverse()
    return {"parts": [{"request": one["id"], "first": first, "count": end - first, "slots": [{"table": blocks}]}]}


def told(number, tokens):
    """Batches are numbered from 1 on."""
    global got, computed
    if not waiting or batches[number - 1] is not waiting[0]:
        return []  # it was cancelled meanwhile
    one = waiting[0]
    if not tokens[one["id"]]:
        return []
    got = got + tokens[one["id"]]
    ended = "stop" if got[-1] in one["stop"] else "length" if len(got) == one["max_tokens"] else ""
    delivered = [{"request": one["id"], "tokens": tokens[one["id"]], "ended": ended}]
    if ended:
        waiting.pop(0)
        got, computed = [], 0
    if MISTAKE == "error" and ended:
        raise ValueError("planted")
    if MISTAKE == "ends" and ended:
        sys.exit(7)
    return delivered


hello = {"protocol": 1, "engine": True, "name": "one-at-a-time", "methods": ["look"], "block_sizes": [2, 4]}
print(json.dumps(hello if MISTAKE != "hello" else {**hello, "methods": ["fly"]}), flush=True)
for line in sys.stdin:
    ((what, about),) = json.loads(line).items()
    try:
        said = answer(what, about)
    except ValueError as error:
        said = {"error": "ValueError", "message": str(error)}
    print("nonsense" if MISTAKE == "nonsense" and what == "update" else json.dumps(said), flush=True)
