"""Several releases or commits of an engine: bisect, diff, campaign, known findings and deviations."""
