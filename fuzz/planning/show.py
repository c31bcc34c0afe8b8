"""A plan as a table for people who size a deployment."""

from collections.abc import Sequence
from itertools import groupby

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..findings.visible import visible
from ..kinds import LAYERS
from .plan import GroupPlan, MemoryPlan


def show_plan(plan: MemoryPlan, console: Console | None = None) -> None:
    """Print the plan."""
    out = console or Console(highlight=False)
    out.print(Text(visible(title_text(plan)), style="bold"))
    out.print()
    out.print(_groups(plan))
    out.print()
    if len({(worker.block_bytes, worker.memory_bytes) for worker in plan.workers}) > 1:
        out.print(_workers(plan))
        out.print()
    figures = Table.grid(padding=(0, 2, 0, 0))
    for row in totals(plan):
        figures.add_row(*row)
    out.print(figures)
    for warning in plan.warnings:
        out.print(Text(visible(f"! {warning}"), style="yellow"))
    out.print()
    style = "bold red" if not plan.ok else "bold green" if plan.fits_with_null_block else "bold yellow"
    out.print(Text(verdict(plan), style=style))


def verdict(plan: MemoryPlan) -> str:
    """One sentence: whether it fits, and if not, what would."""
    length = f"{plan.max_model_len_tokens:,}"
    if plan.ok:
        word = "fits" if plan.fits_with_null_block else "fits on paper only"
        return f"{word}: {_times(plan.concurrency, plan.max_model_len_tokens)}"
    longest = plan.longest_usable_tokens if plan.strict else plan.longest_fit_tokens
    counted = plan.strict or plan.request_blocks == plan.num_blocks
    needed = plan.request_blocks + counted
    null = ", the null block counted" if counted else ""
    remedy = f"the longest that fits is {longest:,} tokens" if longest else "not even one token fits"
    return (
        f"does not fit: a request of {length} tokens needs {needed:,} blocks{null}, the pool has {plan.num_blocks:,}; "
        f"{remedy}; give more memory or a shorter --max-model-len"
    )


def title_text(plan: MemoryPlan) -> str:
    """Two lines: the model, and what it is to run on."""
    layers = sum(len(group.layers) for group in plan.groups)
    stages = 1 + max(worker.pipeline_stage for worker in plan.workers)
    ranks = len(plan.workers) // stages
    memory = {worker.memory_bytes for worker in plan.workers}
    each = " each" if len(plan.workers) > 1 else ""
    with_memory = f"with {size_text(min(memory))}{each}" if len(memory) == 1 else "with different memory"
    workers = _many(len(plan.workers), "worker")
    shape = f" ({_many(stages, 'stage')} of {_many(ranks, 'rank')})" if len(plan.workers) > 1 else ""
    return (
        f"{plan.model} ({plan.family}, {_many(layers, 'cached layer')}), figures of {plan.target}\n"
        f"{workers}{shape} {with_memory}, requests of up to {plan.max_model_len_tokens:,} tokens, "
        f"steps of up to {plan.max_num_batched_tokens:,}"
    )


def _groups(plan: MemoryPlan) -> Table:
    """One row for each run of groups that are alike."""
    table = Table(box=None, padding=(0, 1), pad_edge=False, collapse_padding=True, header_style="dim")
    for column in GROUP_COLUMNS[:3]:
        table.add_column(column, justify="left", overflow="fold")
    for column in GROUP_COLUMNS[3:]:
        table.add_column(column, justify="right", no_wrap=True)
    for row in group_rows(plan):
        table.add_row(*row)
    return table


GROUP_COLUMNS = (
    *("group", "layers", "keeps", "block\ntokens", "page\nbytes"),
    *("padding\nof page", "waste of\nblock id", "cap\nblocks", "request\nblocks"),
)


def group_rows(plan: MemoryPlan) -> list[list[str]]:
    """The cells of `GROUP_COLUMNS` for each run of groups that are alike."""
    rows = []
    for alike in alike_groups(plan):
        first, last = alike[0], alike[-1]
        row = [
            f"{first.group}" if first is last else f"{first.group}-{last.group}",
            f"{len(first.layers)}" if first is last else f"{len(alike)} x {len(first.layers)}",
            kind_text(first),
            f"{first.block_size_tokens:,}",
            f"{first.page_bytes:,}",
            _share(first.page_padding_bytes, first.page_bytes),
            _share(first.block_waste_bytes, plan.block_bytes),
            "-" if first.admission_cap_blocks is None else f"{first.admission_cap_blocks:,}",
            f"{first.request_blocks:,}" if first is last else f"{len(alike)} x {first.request_blocks:,}",
        ]
        rows.append(row)
    return rows


def alike_groups(plan: MemoryPlan) -> list[list[GroupPlan]]:
    """Runs of groups that are alike in all that a row shows."""
    return [list(run) for _, run in groupby(plan.groups, key=_look)]


def _look(group: GroupPlan) -> tuple[object, ...]:
    """What a row shows."""
    sizes = (group.block_size_tokens, group.page_bytes, group.page_padding_bytes, group.block_waste_bytes)
    return (kind_text(group), len(group.layers), *sizes, group.request_blocks)


def kind_text(group: GroupPlan) -> str:
    """What the layers of a group attend to, in a word or two."""
    kinds = " + ".join(LAYERS[name].words if name in LAYERS else name for name in group.spec.split(" + "))
    return f"{kinds} {group.reach_tokens:,}" if group.reach_tokens else kinds


def _workers(plan: MemoryPlan) -> Table:
    table = Table(box=None, padding=(0, 1), header_style="dim")
    for column in ("worker", "stage", "layers", "memory", "bytes per block id", "blocks it holds"):
        table.add_column(column, justify="right")
    for worker in plan.workers:
        table.add_row(
            f"{worker.worker}",
            f"{worker.pipeline_stage}",
            f"{worker.layers}",
            size_text(worker.memory_bytes),
            f"{worker.block_bytes:,}",
            "-" if worker.own_blocks is None else f"{worker.own_blocks:,}",
        )
    return table


def totals(plan: MemoryPlan) -> Sequence[tuple[str, str]]:
    """Pairs of what and how much: the figures of the whole plan."""
    stages = len({worker.pipeline_stage for worker in plan.workers})
    over = f" over the {stages} stages" if stages > 1 else ""
    request = plan.request_blocks * plan.block_bytes
    tokens = "any number of tokens" if plan.capacity_tokens is None else f"{plan.capacity_tokens:,} tokens"
    longest, usable = plan.longest_fit_tokens, plan.longest_usable_tokens
    whose = ", the model's own limit" if longest == plan.model_longest_tokens else ", as asked"
    bound = whose if longest == plan.limit_tokens else ""
    with_null = "" if usable == longest else f"; {usable:,} with the null block counted"
    hits = f"multiples of {plan.scheduler_block_size_tokens:,} tokens; a hash names {plan.hash_block_size_tokens:,}"
    return (
        ("block id", f"{plan.block_bytes:,} bytes ({size_text(plan.block_bytes)}){over}"),
        ("pool", _many(plan.num_blocks, "block") + (", one of them the null block" if plan.num_blocks else "")),
        ("capacity", f"{tokens}, {_times(plan.concurrency, plan.max_model_len_tokens)}"),
        ("one request", f"{_many(plan.request_blocks, 'block')}, {size_text(request)}{over}"),
        ("wasted of it", f"{size_text(plan.request_waste_bytes)} ({plan.request_waste_percent:.1f} %) by padding"),
        ("longest that fits", f"{longest:,} tokens{bound}{with_null}"),
        ("prefix hits end at", hits if plan.prefix_caching else "no prefix caching for this model and these options"),
    )


def _many(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _times(concurrency: float | None, length: int) -> str:
    if concurrency is None:
        return "any number of requests at once"
    return f"{concurrency:,.2f} requests of {length:,} tokens at once"


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if part else "-"


def size_text(number: int) -> str:
    """Bytes in the largest binary unit that leaves a whole part: `60.00 GiB`."""
    size = float(number)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{number:,} bytes" if unit == "bytes" else f"{size:,.2f} {unit}"
        size /= 1024
    return f"{size:,.2f} TiB"
