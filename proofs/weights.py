"""About how many seconds each theorem takes on one core: long ones are begun first."""

from collections.abc import Mapping

USUAL_S = 1.0
"""No more than this for all that are not named."""

SECONDS: Mapping[str, float] = {
    "T15.spaced": 12.0,
    "T14": 6.0,
    "T7.align": 5.0,
    "T6.gap": 4.0,
    "T3.nulled.sliding": 3.0,
    "T7.sliding": 3.0,
    "T15": 3.0,
    "T15.leak": 3.0,
    "T16.fixed": 3.0,
    "T26.free": 3.0,
    "T26.free.different": 3.0,
    "T26.take": 3.0,
    "T26.touch": 3.0,
    "T7.chunked": 2.5,
    "T8.hit": 2.2,
    "T9.loss": 2.2,
    "T3.nulled.chunked": 2.0,
    "T3.nulled.mamba": 2.0,
    "T7.mamba": 2.0,
    "T14.always": 2.0,
    "T16.hit": 2.0,
    "T15.first": 1.5,
    "T16": 1.5,
    "T20.requested": 1.4,
    "T8.divides": 1.3,
    "T10": 1.3,
    "T23.converse": 1.3,
    "T10.sharp": 1.2,
    "T10.sparse": 1.2,
    "T23": 1.2,
    "T9.hit": 1.1,
    "T11": 1.1,
    "T16.step": 1.1,
    "T19.depth": 1.1,
    "T19.sizes": 1.1,
    "T21.refused": 1.1,
    "T21.view": 1.1,
    "T23.only": 1.1,
    "T23.tagged": 1.1,
    "T25.prepend_n.any": 1.1,
    "T26.stranger": 1.1,
}
"""By the name of the theorem."""
