"""What judges a target: the oracles that suit it; and oracles, attention types and the storage of the shadow memory as
somebody has named them.
"""

import importlib
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ...model.ops import Group, Shape
from ..adapters import family_of
from ..adapters.impl import rule_for
from ..faults import Part, fault_named
from ..findings.oracle_names import ADDITIONS, EVERY, LOCKSTEP, MODEL_FREE, ORACLES
from ..findings.words import did_you_mean
from ..oracles.shadow import ListMemory, Memory
from ..targets.base import Target, TargetUnavailableError, close_target, designs_of, hidden_fields, lacking, likeness
from ..targets.family import unpatched
from ..workload.shapes import ATTENTION, EVERY_ATTENTION
from .names import OurCore, PlantedFault, ReleaseName, parsed
from .targets import open_target

if TYPE_CHECKING:
    from ..oracles.shadow.tensors import TensorMemory


def suited_to(spec: str, target: Target | None = None) -> tuple[str, ...]:
    """Names of the default oracles for this target; what it hides and lacks counts if it is given, opened.

    With lockstep for reference releases, our own core and targets of users that hide and lack nothing, which have to
    agree with the model; without it for all others.
    """
    return suited_and_why(spec, target)[0]


def suited_when_asked(spec: str) -> tuple[str, ...]:
    """As `suited_to`, for a target that is not opened: somebody's code is opened, in a child, to ask what it says."""
    if isinstance(parsed(spec), ReleaseName | OurCore | PlantedFault):
        return suited_to(spec)
    try:
        target = open_target(spec, isolate=True)
    except TargetUnavailableError:
        return suited_to(spec)
    try:
        return suited_to(spec, target)
    except TargetUnavailableError:  # whoever runs it will say so
        return suited_to(spec)
    finally:
        close_target(target)


def suited_and_why(spec: str, target: Target | None = None) -> tuple[tuple[str, ...], str]:
    """The oracles as from `suited_to`, and why it is these, as the end of a sentence."""
    if target is not None and family_of(likeness(target)) is not None and (designs := designs_of(target)):
        return MODEL_FREE, f"the target does by design {_named(designs)}, of which no model knows"
    like = "" if target is None or family_of(spec) is not None else likeness(target)
    if family_of(like) is not None and suited_to(like) == ORACLES:
        return ORACLES, f"the target is like {like}, which the model describes exactly"
    family = family_of(spec)
    if family is not None:
        version = unpatched(spec).partition("==")[2] or family.here
        if version in family.exact:
            return ORACLES, "the model describes this release exactly"
        return MODEL_FREE, "the model describes another release"
    if rule_for(spec) is not None:
        return ORACLES, "the model has the rule of this core of ours"
    said = {} if target is None else {"hides": hidden_fields, "lacks": lacking, "does by design": designs_of}
    parts = [f"{what} {_named(names)}" for what, read in said.items() if target is not None and (names := read(target))]
    if parts:
        return MODEL_FREE, f"the target {' and '.join(parts)}, so that no model describes it exactly"
    return ORACLES, "the target hides and lacks nothing, so that it has to agree with the model"


def oracles_named(texts: str | Sequence[str] | None, spec: str, target: Target | None = None) -> tuple[str, ...]:
    """The names in comma-separated lists, the strictest first; every one for `all`; for `auto` or nothing what suits
    the target of this name, and what it hides and lacks if it is given, opened.

    ValueError, with what to write instead, for a name that is unknown, for additions alone, and for lockstep with a
    target that has designs of its own; among all of them it is left out there.
    """
    lists = [texts] if isinstance(texts, str) else texts or ["auto"]
    said = [name.strip() for text in lists for name in text.split(",")]
    stands_for = {"all": EVERY, "auto": suited_to(spec, target) if "auto" in said else ()}
    names = [one for name in said for one in stands_for.get(name, (name,))]
    designs: frozenset[str] = frozenset() if target is None else designs_of(target)
    if designs and LOCKSTEP in names:
        if "lockstep" in said:
            what = f"lockstep compares with a model that has no such design as {_named(designs)}"
            raise ValueError(f"{what}; choose from {', '.join(MODEL_FREE)}")
        names = [name for name in names if name != LOCKSTEP]
    if unknown := [name for name in names if name not in (*EVERY, *ADDITIONS)]:
        choice = did_you_mean(unknown[0], (*EVERY, *ADDITIONS, "all", "auto"))
        raise ValueError(f"{unknown[0]!r} is unknown; {choice}")
    if set(names) <= set(ADDITIONS):
        raise ValueError(f"{names[0]} alone judges nothing; add one of {', '.join(EVERY)}")
    return tuple(name for name in (*EVERY, *ADDITIONS) if name in names)


def _named(names: frozenset[str]) -> str:
    """The first names in order, and how many there are besides."""
    first = ", ".join(sorted(names)[:3])
    return first if len(names) <= 3 else f"{first} and {len(names) - 3} more"


_DEVICE = re.compile(r"(cpu|cuda|mps|xpu|hpu|npu|xla|mtia|musa)(:\d{1,4})?")
"""The devices of torch; whether there is one is asked of torch."""


def memory_named(tensors: str | None) -> Callable[[Shape], Memory]:
    """Makes the storage for a run: lists for None, else tensors on the named device. Errors as `open_tensor_memory`."""
    if tensors is None:
        return ListMemory
    return open_tensor_memory(tensors)


def open_tensor_memory(where: str) -> "Callable[[Shape], TensorMemory]":
    """Makes the storage for a run on a device: `cpu`, `cuda`, ...; with `auto` on CUDA if there is one, else on the
    CPU.

    `fault:NAME` is `auto` with a fault planted in the tensors. ValueError for an unknown fault, or a name that no
    device has, TargetUnavailableError without torch, or for a device that cannot be used.
    """
    fault = fault_named(where, Part.TENSORS)
    if fault is None and where != "auto" and not _DEVICE.fullmatch(where):
        raise ValueError(f"{where!r} is no device; write auto, cpu, cuda, cuda:1, or fault:NAME")
    device = None if where == "auto" or fault is not None else where
    try:
        importlib.import_module("torch")
    except ImportError:
        raise TargetUnavailableError("tensors need torch: pip install '/path/to/blockproof[tensors]'") from None
    from ..oracles.shadow.tensors import TensorMemory  # costs a tenth of a second, which other runs need not pay

    try:
        TensorMemory(Shape((Group("full", 1),), 2, 1, 1, 1, 1), device).use_once()
    except ValueError as error:
        raise TargetUnavailableError(str(error)) from None

    def new_memory(shape: Shape) -> "TensorMemory":
        memory = TensorMemory(shape, device)
        if fault is not None and shape.groups:
            fault.plant(memory)
        return memory

    return new_memory


def attention_named(text: str, *, few: bool = False) -> tuple[str, ...]:
    """The names in a comma-separated list, all of them for `all`; with `few` also those of kinds that few targets have,
    for whoever leaves out what the target does not offer. ValueError, with what was meant, for an unknown one.

    The names are those of `EVERY_ATTENTION`.
    """
    every = EVERY_ATTENTION if few else ATTENTION
    names = tuple(every) if text == "all" else tuple(name.strip() for name in text.split(",") if name.strip())
    for name in names:
        if name not in EVERY_ATTENTION:
            raise ValueError(f"{name!r} is unknown; {did_you_mean(name, (*EVERY_ATTENTION, 'all'))}")
    if not names:
        raise ValueError("an empty list leaves nothing to run; write all, or some of full, sliding, mamba, ...")
    return names
