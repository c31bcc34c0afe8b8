"""What a test suite uses: state machines for Hypothesis and the plugin for pytest; and what a job of CI runs.

Nothing of this is loaded in the child process of a target, nor by another command than `ci`.
"""
