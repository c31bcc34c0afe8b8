"""What a test suite uses: state machines for Hypothesis and the plugin for pytest.

Nothing of this is loaded by the command line, nor in the child process of a target.
"""
