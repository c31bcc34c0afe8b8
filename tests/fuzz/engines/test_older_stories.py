"""Stories in the form that they had before engines were simulated as a whole."""

import json

import pytest
from blockproof.fuzz.engines.story_fuzzing import read_stored, read_story
from blockproof.fuzz.traces.files import TraceError

SUBMIT = {"op": "Submit", "request": "r0", "prompt": [1, 2]}
JOB = {"submit": SUBMIT, "max_tokens": 3, "drafts": [[1, 0]]}
SIZES = {"max_model_len": 64, "hash_block_size": 16, "scheduler_block_size": 16, "max_num_batched_tokens": 64}
CORE = {"groups": [{"kind": "full", "block_size": 16}], "num_blocks": 60, **SIZES}
SETUP = {"shape": {**CORE, "eagle": True}, "max_num_seqs": 4, "drafts": 1, "method": "eagle"}


def stored(events):
    story = {"setup": SETUP, "events": events}
    return json.dumps({"blockproof_scheduler": 1, "target": "t", "judge": "", "rule": "", "story": story}).encode()


def test_an_older_story_that_adds_requests_is_read_as_one_of_today(tmp_path):
    path = tmp_path / "story.json"
    path.write_bytes(stored([{"at": 2, "what": "add", "job": JOB}]))
    request = {"id": "r0", "prompt": [1, 2], "max_tokens": 3}
    assert read_story(path).story == {
        "shape": {"core": CORE, "max_requests": 4, "drafts": 1, "options": {"drafter": "eagle"}},
        "happenings": [{"at": 2, "what": "add", "request": request, "rights": [0]}],
    }


@pytest.mark.parametrize(
    "event",
    [
        {"at": 0, "what": "reset"},
        {"at": 0, "what": "add", "job": {**JOB, "submit": {**SUBMIT, "salt": "x"}}},
        {"at": 0, "what": "add", "job": {"submit": SUBMIT}},
    ],
)
def test_what_else_happens_in_one_is_refused_in_one_line(event):
    with pytest.raises(TraceError, match="draw it anew with simulate"):
        read_stored(stored([event]), "story.json")
