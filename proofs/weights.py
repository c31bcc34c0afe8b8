"""About how many seconds each theorem takes on one core: long ones are begun first."""

from collections.abc import Mapping

USUAL_S = 1.0
"""No more than this for all that are not named."""

_BY_SECONDS: Mapping[float, str] = {
    12.0: "T10.chunked T10.sparse.chunked T16.chunked",
    8.0: "T16.first S1.free S1.short S4.register T8.folded",
    4.0: "T16.begin T6.gap T7.running.align T15 T25.append_n T25.prepend_n",
    3.4: "T8.runs",
    3.0: "T16.begin.sliding T16.begin.chunked T3.nulled.sliding T7.sliding "
    "T26.free T26.free.different T26.take T26.touch "
    "S1.inductive S2.inductive S4.inductive S5.inductive S6.inductive",
    2.5: "T7.chunked",
    5.0: "T10 T10.sparse T11",
    2.2: "T8.hit T9.hit T9.chunked S1.touch",
    2.0: "T3.nulled.chunked T3.nulled.mamba T3.nulled.open T7.mamba T25.append T25.remove T25.remove.refused",
    1.5: "T16.overcommit T7.align T10.sparse.mamba T16 T16.hit T25.popleft_n",
    1.3: "T23.converse",
    1.2: "T23",
    1.1: "T8.chunked T11.chunked T16.lookahead T16.step T21.refused T21.view T23.only T26.stranger",
}

SECONDS = {name: seconds for seconds, names in _BY_SECONDS.items() for name in names.split()}
"""By the name of the theorem."""
