"""Stories of a scheduler as they were written before engines were simulated as a whole: read as stories of today."""

from collections.abc import Mapping
from typing import Any


def in_form_of_today(story: dict[str, Any]) -> dict[str, Any]:
    """The same story, if it is of the older form and only adds requests. ValueError for what else happens in one."""
    if "setup" not in story:
        return story
    setup, core = story["setup"], dict(story["setup"]["shape"])
    core.pop("eagle", None)  # said by who drafts
    options = {"drafter": setup["method"]} if setup.get("method") else {}
    shape = {"core": core, "max_requests": setup["max_num_seqs"], "drafts": setup.get("drafts", 0), "options": options}
    return {"shape": shape, "happenings": [_added(event) for event in story["events"]]}


def _added(event: Mapping[str, Any]) -> Mapping[str, Any]:
    what, job = event["what"], event.get("job", {})
    more = set(job.get("submit", {})) - {"op", "request", "prompt"} | set(job) - {"submit", "max_tokens", "drafts"}
    if what != "add" or more:
        raise ValueError(
            f"a story of the older form with {', '.join(sorted(more)) or what} cannot be replayed any more"
        )
    submit = job["submit"]
    request = {"id": submit["request"], "prompt": submit["prompt"], "max_tokens": job["max_tokens"]}
    return {"at": event["at"], "what": "add", "request": request, "rights": [0]}
