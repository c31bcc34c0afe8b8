"""What is drawn only for targets that offer it and that lockstep judges: the rule of today (`model.features`)."""

OF_TODAY = frozenset(
    {
        *("Lookup.limit", "Lookup.for_connector", "Allocate.alone", "Allocate.unzeroed", "Free.keep"),
        *("Release.watched", "Submit.reports_hits", "Group.checkpoint", "Shape.names_junctions", "Shape.watermark"),
        *("Shape.reads_ahead", "Shape.old_names", "Shape.host_blocks"),
        "hits_inside_blocks",
    }
)
"""Names of `offers` (`targets.declarations`)."""
