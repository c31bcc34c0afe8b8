"""Files of stories that cannot be what `simulate` has written: each is refused in one line, as a trace is."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from blockproof.fuzz.cli.main import main
from blockproof.fuzz.engines.story_fuzzing import read_stored, read_story, write_story
from blockproof.fuzz.simulation.protocol import ClientRequest, EngineShape
from blockproof.fuzz.simulation.story import Happening, SimulatedStory, story_to_json
from blockproof.fuzz.traces.files import TraceError
from blockproof.model.ops import Group, Item, Shape

ADDED = ClientRequest("a", (1, 2, 3), 2, items=(Item("u", 0, 1),), stop=(4,))
STORY = SimulatedStory(
    EngineShape(Shape((Group("full", 2),), 9, 12, 2, 2, 16), 2, 1, {"asynchronous": True}),
    (Happening(0, "add", request=ADDED, rights=(1,)), Happening(2, "crash", half="decode", rounds=2)),
    delays=(-1, 2),
)
ENGINE = Path(__file__).parents[3] / "examples" / "my-scheduler-engine" / "simulated.py"
CORE = ("shape", "core")
REQUEST = ("happenings", 0, "request")


def text_of(story: Any, **more: Any) -> bytes:
    """The text of a file with it."""
    return json.dumps({"blockproof_scheduler": 1, "judge": "fate", "rule": "x", "story": story, **more}).encode()


def changed(place: tuple[str | int, ...], value: object) -> Any:
    """The story with another value there."""
    story = copy.deepcopy(json.loads(json.dumps(story_to_json(STORY))))
    inner = story
    for name in place[:-1]:
        inner = inner[name]
    inner[place[-1]] = value
    return story


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        ((*CORE, "groups", 0, "block_size"), 10**30, "shape.core.groups[0].block_size: is 1000"),
        ((*CORE, "groups", 0, "block_size"), -1, "shape.core.groups[0].block_size: is -1, must be from 1"),
        ((*CORE, "groups", 0, "block_size"), 2**30, "shape.core.num_blocks: has room for 9663676416 tokens"),
        ((*CORE, "num_blocks"), 10**30, "shape.core.num_blocks: is 1000"),
        *(((*CORE, name), -1, f"shape.core.{name}: is -1, must be") for name in ("num_blocks", "max_model_len")),
        ((*CORE, "max_num_batched_tokens"), -1, "shape.core.max_num_batched_tokens: is -1, must be"),
        (("shape", "max_requests"), -1, "shape.max_requests: is -1, must be"),
        (("shape", "max_requests"), "many", "shape.max_requests: expected int, got str"),
        (("shape", "drafts"), -1, "shape.drafts: is -1, must be"),
        (("shape", "options"), {"asynchronous": {}}, "shape.options.asynchronous: expected a number, a text"),
        ((*REQUEST, "max_tokens"), -1, "request.max_tokens: is -1, must be from 1"),
        ((*REQUEST, "prompt"), 3.5, "request.prompt: expected an array, got float"),
        ((*REQUEST, "prompt", 1), "x", "request.prompt[1]: expected int, got str"),
        ((*REQUEST, "wings"), 2, "request: unknown field 'wings'"),
        ((*REQUEST, "items"), [{"identifier": "u", "offset": 0, "length": 1}] * 1025, "request.items: 1025 items"),
        (("happenings", 0, "rights"), [-1], "happenings[0].rights: has a negative number"),
        (("happenings", 0, "at"), -1, "happenings[0].at: is -1, must be from 0"),
        (("happenings", 0, "what"), "jump", "happenings[0].what: expected one of add, cancel"),
        (("happenings", 1, "half"), "router", "happenings[1].half: expected one of prefill, decode"),
        (("happenings", 1, "what"), "add", "happenings[1]: field 'request' is missing"),
        (("depth",), 0, "story.depth: is 0, must be from 1"),
        (("delays",), [-2], "story.delays: has a number below -1"),
    ],
)
def test_what_no_story_has_is_refused_with_its_place(place, value, said):
    with pytest.raises(TraceError) as refused:
        read_stored(text_of(changed(place, value)), "s.json")
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("story", [None, 3, [], {}, {"shape": {}, "happenings": []}])
def test_what_is_no_story_is_refused(story):
    with pytest.raises(TraceError):
        read_stored(text_of(story), "s.json")


def test_a_story_is_read_as_it_was_written(tmp_path):
    story = json.loads(json.dumps(story_to_json(STORY)))
    path = write_story({"known": "", "judge": "fate", "rule": "x", "story": story}, "mine", tmp_path)
    assert read_story(path).story == story


def test_the_command_refuses_in_one_line_and_needs_no_target_in_the_file(tmp_path, capsys):
    path, target = tmp_path / "s.json", f"{ENGINE}:make_engine"
    path.write_bytes(text_of(changed((*CORE, "num_blocks"), -1)))
    assert main(["replay", str(path), "--target", target]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
    story = story_to_json(SimulatedStory(EngineShape(STORY.shape.core), STORY.happenings[:1]))
    path.write_bytes(text_of(story))
    assert main(["replay", str(path), "--target", target]) == 0
    assert main(["replay", str(path)]) == 2
    assert "does not say with what it was made; add --target" in capsys.readouterr().err
