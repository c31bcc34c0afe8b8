"""A plan as the document of a page: what a block id holds, who gets the memory, how many requests fit."""

from collections.abc import Sequence
from itertools import groupby

from ..planning.picture import Picture
from ..planning.plan import MemoryPlan, WorkerPlan
from ..planning.show import GROUP_COLUMNS, alike_groups, group_rows, kind_text, title_text, totals, verdict
from ..reports.document import VERSION, PlanDocument, PlanGroup, PlanLayer, PlanWorker, Table


def plan_document(picture: Picture, command: str = "") -> PlanDocument:
    """The page of a plan. `command` is what makes the plan again."""
    plan = picture.plan
    title, headline = title_text(plan).split("\n", 1)
    lengths = [one.length_tokens for one in picture.growth]
    return PlanDocument(
        VERSION,
        title,
        headline,
        verdict(plan),
        "bad" if not plan.ok else "good" if plan.fits_with_null_block else "note",
        [list(pair) for pair in totals(plan)],
        [PlanLayer(one.name, one.group, one.stage, one.page_bytes, one.held_bytes) for one in picture.layers],
        _groups(plan),
        _workers(plan.workers),
        plan.num_blocks,
        plan.block_bytes,
        lengths,
        lengths.index(plan.max_model_len_tokens),
        [list(one.blocks) for one in picture.growth],
        [-1.0 if one.concurrency is None else one.concurrency for one in picture.growth],
        [_table(plan), _growth(picture)],
        list(plan.warnings),
        command,
    )


def _groups(plan: MemoryPlan) -> list[PlanGroup]:
    return [
        PlanGroup(kind_text(group), group.block_size_tokens, len(group.layers), group.block_waste_bytes, alike[0].group)
        for alike in alike_groups(plan)
        for group in alike
    ]


def _workers(workers: Sequence[WorkerPlan]) -> list[PlanWorker]:
    """Runs of workers of one stage with as much memory; those without layers are left out."""
    holding = (worker for worker in workers if worker.block_bytes)
    rows = []
    for look, run in groupby(holding, key=lambda one: (one.pipeline_stage, one.memory_bytes, one.block_bytes)):
        alike = list(run)
        first, last = alike[0].worker, alike[-1].worker
        rows.append(PlanWorker(f"{first}" if first == last else f"{first}-{last}", *look[1:]))
    return rows


def _table(plan: MemoryPlan) -> Table:
    columns = [column.replace("\n", " ") for column in GROUP_COLUMNS]
    return Table("Groups", columns, group_rows(plan), note="Groups that look alike share a row.")


def _growth(picture: Picture) -> Table:
    """What a request of each length holds; groups that are alike share a column."""
    alike = [run[0].group for run in alike_groups(picture.plan)]
    names = [f"blocks of group {run[0].group}" for run in alike_groups(picture.plan)]
    rows = []
    for one in picture.growth:
        many = "any number" if one.concurrency is None else f"{one.concurrency:,.2f}"
        held = [f"{one.blocks[group]:,}" for group in alike]
        rows.append([f"{one.length_tokens:,}", many, f"{sum(one.blocks):,}", *held])
    note = "Where groups are alike, the column of the first of them stands for each."
    table = Table("Requests by length", ["tokens", "at once", "blocks of one request", *names], rows, note=note)
    table.marks = ["bad" if one.concurrency is not None and one.concurrency < 1 else "" for one in picture.growth]
    return table
