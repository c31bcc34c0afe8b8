"""What a target may say about itself, for the page of the reference, from the table that is checked against.

python docs/declarations.py [--write docs/reference/declarations.md]
"""

import sys
from collections.abc import Mapping
from pathlib import Path

HEAD = """\
# What a target says of itself

Written by `python docs/declarations.py --write docs/reference/declarations.md` from the table in
[fuzz/targets/declarations.py](../../fuzz/targets/declarations.py). A test compares the two.

Five attributes of a target, all optional, each a collection of names or sizes (`{"Reset"}`, never a text
alone). They are checked when the target is opened, and `hides` again after each `start`, since it may depend
on the core. An unknown name ends the command with exit code 3 and one line that says which name was meant.

`blockproof fuzz --oracle auto` is lockstep with the model for a target that says none of this, and the
oracles that need no model (shadow, contract, liveness) for one that hides or lacks something, or has a design
of its own.

A name of `lacks` (of an operation, a field of one, a shape, `drafts`, `overlapping_items` or
`mixed_prompts`) and a name of `designs` may hold for some cores only: `"Lookup for sliding"` holds for those
that have a group of the kind `sliding`, `"Lookup for hybrids"` for those of several groups. So an engine that
shares prefixes for full attention alone says `lacks = {"Lookup for sliding", "Lookup for mamba"}`.
"""
HIDES = """\
## `hides`: what a snapshot cannot be relied on for

Fields hold an empty value then ([the guide](../guide/your-engine.md) lists them). A property that needs
what is hidden is reported as *not observed*; lockstep compares the other fields.
"""
LACKS = """\
## `lacks`: what the core has no equivalent of

The generator does not draw it. What stands in a trace of another target is left out when the trace is
replayed; a field of an operation goes back to its default. A shape that is only possible with it is built
without it. Attention types whose groups cannot be had are not drawn, and `--attention` that names nothing
else is an error. A call that was drawn all the same is counted in the report as *not possible on this
target*.

`Submit`, `Allocate`, `Advance` and `Free` have to be there.
"""
DESIGNS = """\
## `designs`: what the core does otherwise than most, and is no mistake

All oracles that need no model let it be, in `fuzz`, in `targets check`, in replays and while shrinking. Only
the fact that is declared is forgiven, and where it is seen, it is counted as `contract: by design NAME`; what
is wrong beside it is found. Lockstep knows of no designs: it compares with a model that has none of them, and
is not for such a target.

That nobody is ever preempted is said in `lacks` (`Preempt`), that prefixes are shared for some kinds of
groups only as well (`Lookup for KIND`), that tables are not shown in `hides` (`tables`).
"""
OFFERS = """\
## `offers`: what few cores have

A target that does not say it is not asked for it: there is nothing to put into `lacks`. Requests of a batch
in a trace are then asked one by one, nobody tells of tokens in flight, and room is asked for while nothing
is refused. The contract judges the state
before and after each allocation: where it is among the oracles, batches are asked one by one as well.
"""
LOSES = """\
## `loses`: what a target is known to do wrong

The contract and the shadow memory count it (`contract: known loss NAME`) instead of reporting it, for this
target only. With `--oracle ...,strict` it is a finding again. Each begins with the properties of
[the contract](contract.md) that it breaks. Our core loses nothing; what a release of vLLM loses stands in
[fuzz/adapters/vllm/releases.py](../../fuzz/adapters/vllm/releases.py).
"""
SIZES = """\
## `block_sizes`: the only block sizes that can be built

Such as `block_sizes = {16, 256}`, in tokens. Groups are drawn with these sizes only, and requests long enough
to fill blocks. For one size for all groups of a hybrid say `Group.block_size` in `lacks`.
"""


def page() -> str:
    """The page as Markdown."""
    from blockproof.fuzz.targets.declarations import DESIGNS as WAYS
    from blockproof.fuzz.targets.declarations import HIDES as FIELDS
    from blockproof.fuzz.targets.declarations import LACKS as NAMES
    from blockproof.fuzz.targets.declarations import LOSES as LOSSES
    from blockproof.fuzz.targets.declarations import OFFERS as OFFERED

    tables = [HIDES, _table(FIELDS), LACKS, _table(NAMES), DESIGNS, _table(WAYS), OFFERS, _table(OFFERED)]
    return "\n".join([HEAD, *tables, LOSES, _table(LOSSES), SIZES])


def _table(names: Mapping[str, str]) -> str:
    from blockproof.fuzz.releases.markdown import linked

    rows = (f"| `{name}` | {linked(effect)} |" for name, effect in names.items())
    return "\n".join(["| name | effect |", "| --- | --- |", *rows, ""])


if __name__ == "__main__":
    if sys.argv[1:2] == ["--write"]:
        Path(sys.argv[2]).write_text(page(), encoding="utf-8")
    else:
        print(page(), end="")
