"""A campaign held against the one before it: cells that changed, findings that came and went, rates."""

from collections.abc import Mapping, Sequence

from .document import Matrix, Table

CAME, WENT = "new", "gone"


def changed_cells(matrix: Matrix) -> Table:
    """The cells that say something else than before (`Cell.before`), those first in which something was found now."""
    rows = []
    for oracle, by_attention in zip(matrix.oracles, matrix.cells, strict=True):
        for name, cells in zip(matrix.attention, by_attention, strict=True):
            for target, cell in zip(matrix.targets, cells, strict=True):
                if cell.before:
                    rows.append([target, name, oracle, cell.before, " ".join(cell.what) or cell.state])
    now_clean = {"clean", "not built", "not run"}
    rows.sort(key=lambda row: (row[-1] in now_clean, row))
    marks = ["" if row[-1] in now_clean else "bad" for row in rows]
    columns = ["target", "attention", "oracle", "before", "now"]
    return Table("Cells that changed since the last campaign", columns, rows, marks=marks)


def came_and_went(now: Sequence[tuple[str, ...]], before: Sequence[tuple[str, ...]]) -> Table:
    """Findings that only one of two campaigns has; each as target, attention, what, operation, oracle."""
    ours, theirs = dict.fromkeys(now), dict.fromkeys(before)
    rows = [[*one, CAME] for one in ours if one not in theirs] + [[*one, WENT] for one in theirs if one not in ours]
    columns = ["target", "attention", "what", "operation", "oracle", "since the last campaign"]
    marks = ["bad" if row[-1] == CAME else "" for row in rows]
    return Table("Findings that came and went", columns, rows, marks=marks)


def rates(now: Mapping[str, float], before: Mapping[str, float]) -> Table:
    """Operations a second of each target that both campaigns have run, and their ratio."""
    both = [(name, rate, before[name]) for name, rate in now.items() if rate and before.get(name)]
    rows = [[name, f"{was:,.0f}", f"{rate:,.0f}", f"{rate / was:.2f}"] for name, rate, was in both]
    note = "The time of two runs on a shared machine: look for factors, not for percents."
    columns = ["target", "a second before", "now", "ratio"]
    return Table("Operations a second against the last campaign", columns, rows, note=note)
