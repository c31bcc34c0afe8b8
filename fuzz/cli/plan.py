"""`blockproof plan`: how much of a model's cache fits into so much memory."""

import re
import sys
import webbrowser
from contextlib import closing
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..adapters import forms
from ..planning.fields import ModelError
from .completion import calculator_names
from .options import JsonOption, as_called, calculator_or_usage, guarded
from .outputs import tagged, to_file
from .sizes import parse_memory as parse_memory
from .sizes import short

if TYPE_CHECKING:
    from ..planning.dry_run import Allocated
    from ..planning.parts import Serving
    from ..planning.picture import Picture
    from ..planning.plan import Deployment, MemoryPlan

MOST_TOKENS = 2**40
MOST_BLOCK_TOKENS = 2**20
MOST_WORKERS = 1024
ModelArgument = Annotated[
    Path,
    typer.Argument(
        metavar="MODEL",
        help="A config.json of a known family, an explicit list of layers, or the name of a shipped example.",
    ),
]


class MambaMode(StrEnum):
    """Which states of a mamba layer are kept."""

    NONE = "none"
    ALIGN = "align"
    ALL = "all"


def plan(
    context: typer.Context,
    model: ModelArgument,
    memory: Annotated[
        str, typer.Option(help="For the cache of each worker: 60GiB; or one size for each, with commas.")
    ],
    max_model_len: Annotated[
        str, typer.Option(help="Tokens; auto: the longest that fits. The model's own if not given.")
    ] = "",
    tensor_parallel: Annotated[
        int | None, typer.Option(min=1, max=MOST_WORKERS, help="Ranks that share the heads.")
    ] = None,
    pipeline_parallel: Annotated[int, typer.Option(min=1, max=MOST_WORKERS, help="Stages of contiguous layers.")] = 1,
    workers: Annotated[int | None, typer.Option(min=1, max=MOST_WORKERS, help="The same as --tensor-parallel.")] = None,
    block_size: Annotated[int, typer.Option(min=1, max=MOST_BLOCK_TOKENS, help="Tokens in a block.")] = 16,
    dtype: Annotated[str, typer.Option(help="Of the model: auto, bf16, fp16, fp32.")] = "auto",
    cache_dtype: Annotated[
        str, typer.Option(help="Of the cache: auto, bf16, fp8, int8_per_token_head, nvfp4, ...")
    ] = "auto",
    max_num_batched_tokens: Annotated[int, typer.Option(min=1, max=MOST_TOKENS, help="Tokens of a step.")] = 8192,
    mamba_cache_mode: Annotated[MambaMode, typer.Option(help="States kept for prefix hits.")] = MambaMode.NONE,
    mamba_ssm_cache_dtype: Annotated[str, typer.Option(help="Of mamba states: auto, bf16, fp16, fp32.")] = "auto",
    no_hybrid: Annotated[bool, typer.Option("--no-hybrid", help="Treat windows and chunks as full attention.")] = False,
    override_blocks: Annotated[
        int | None, typer.Option(min=1, max=MOST_TOKENS, help="Plan for so many blocks.")
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Fail if a request fits only without the null block.")
    ] = False,
    as_json: JsonOption = False,
    target: Annotated[
        str, typer.Option(help=f"Whose arithmetic: impl, {forms()}.", autocompletion=calculator_names)
    ] = "impl",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Allocate the tensors on torch's meta device.")] = False,
    html: Annotated[Path | None, to_file("Draw the plan: a page that opens without a network.")] = None,
    open_it: Annotated[bool, typer.Option("--open", help="With --html: show the page in a browser.")] = False,
) -> None:
    """Plan the cache of a model: groups, blocks, tokens, concurrency, waste.

    Exits with 0 if a request of the planned length fits, 1 if not, 2 if the model or a size makes no sense.
    """
    from ..planning.parts import CACHE_DTYPES, DTYPES, Serving
    from ..planning.plan import Deployment

    _known("--dtype", dtype, ("auto", *DTYPES))
    _known("--cache-dtype", cache_dtype, CACHE_DTYPES)
    _known("--mamba-ssm-cache-dtype", mamba_ssm_cache_dtype, ("auto", *DTYPES))
    if open_it and html is None:
        raise typer.BadParameter("--open: there is no page to show without --html FILE")
    ranks = _ranks(workers, tensor_parallel, pipeline_parallel)
    deployment = Deployment(
        memory_bytes=tuple(parse_memory(text) for text in memory.split(",")),
        pipeline_parallel=pipeline_parallel,
        max_num_batched_tokens=max_num_batched_tokens,
        override_blocks=override_blocks,
        hybrid=not no_hybrid,
        strict=strict,
    )
    length, states = parse_length(max_model_len), mamba_cache_mode.value
    serving = Serving(block_size, length, dtype, cache_dtype, states, mamba_ssm_cache_dtype, ranks)
    made, picture = _make(
        model, serving, deployment, target, own_length=not max_model_len, with_picture=html is not None
    )
    allocated = _allocate(made) if dry_run else None
    if html is not None and picture is not None:
        _draw(picture, html, as_called(context))
    _print(made, allocated, as_json, html)
    if open_it and html is not None:
        webbrowser.open(html.resolve().as_uri())
    raise typer.Exit(0 if made.ok else 1)


def _ranks(workers: int | None, tensor_parallel: int | None, pipeline_parallel: int) -> int:
    """How many workers share the heads of a layer. BadParameter for options that exclude each other."""
    if workers is not None and (tensor_parallel is not None or pipeline_parallel > 1):
        raise typer.BadParameter("--workers: give either it, or --tensor-parallel and --pipeline-parallel")
    ranks = workers or tensor_parallel or 1
    if ranks * pipeline_parallel > MOST_WORKERS:
        raise typer.BadParameter(
            f"--pipeline-parallel: {ranks * pipeline_parallel:,} workers; at most {MOST_WORKERS:,}"
        )
    return ranks


def _make(
    model: Path, serving: "Serving", deployment: "Deployment", target: str, *, own_length: bool, with_picture: bool
) -> "tuple[MemoryPlan, Picture | None]":
    """The plan, with `own_length` for requests as long as the model's own limit; and what a page shows of it."""
    from ..planning.families import read_model
    from ..planning.picture import make_picture
    from ..planning.plan import make_plan
    from ..planning.shipped import shipped_model
    from ..targets.base import TargetLostError, TargetUnavailableError

    name, family, layers = read_model(shipped_model(model), serving)
    if own_length:
        serving = replace(serving, max_model_len=layers.longest)
    with closing(calculator_or_usage(target)) as calculator:
        try:
            made = make_plan(calculator, name, family, layers, serving, deployment)
            return made, make_picture(calculator, made, layers, serving, deployment) if with_picture else None
        except TargetLostError as error:
            raise TargetUnavailableError(f"{target} was lost while it was asked: {error}") from None


def parse_length(text: str) -> int | None:
    """Tokens; None for `auto`, for -1 and for nothing. BadParameter says what is wrong."""
    if text in ("", "auto", "-1"):
        return None
    if not re.fullmatch(r"[+-]?\d{1,30}", text):
        raise typer.BadParameter(f"--max-model-len: {short(text)} is not a number of tokens; write one, or auto")
    if not 1 <= int(text) <= MOST_TOKENS:
        raise typer.BadParameter(f"--max-model-len: {text}: must be in 1 .. {MOST_TOKENS:,}, or auto")
    return int(text)


def _known(option: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        from ..findings.words import did_you_mean

        raise typer.BadParameter(f"{option}: {short(value)} is unknown; {did_you_mean(value, known)}")


def _allocate(made: "MemoryPlan") -> "Allocated | None":
    """The planned tensors without memory; None, with a word about it, if there is no configuration to allocate."""
    from ..planning.dry_run import allocate_on_meta

    if not made.configs:
        print("blockproof: nothing to allocate: the plan does not fit", file=sys.stderr)
        return None
    try:
        return allocate_on_meta(made.configs)
    except ValueError as error:
        raise ModelError(f"--dry-run: {error}") from None


def _draw(picture: "Picture", html: Path, command: str) -> None:
    """Write the page. A line and exit code 2 where that is not possible."""
    from ..page.html import write_page
    from ..page.plan_document import plan_document

    guarded(lambda: write_page(plan_document(picture, command), html))


def _print(made: "MemoryPlan", allocated: "Allocated | None", as_json: bool, html: Path | None) -> None:
    if as_json:
        document = made.as_json()
        if html is not None:
            document["page"] = str(html)
        if allocated is not None:
            document["dry_run"] = allocated.as_json()
        print(tagged("plan", document))
        return
    from ..planning.show import show_plan

    show_plan(made)
    if allocated is not None:
        print(allocated)
    if html is not None:
        print(f"page: {html}")
