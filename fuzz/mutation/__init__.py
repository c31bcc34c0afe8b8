"""Random mutants of a core's own modules: which of them does the harness find?

`places` chooses them, `hunting` has them hunted in children of the core's interpreter, in which `serve`,
`subject` and `stages` run; `report` reads how those that nothing found were judged, and says what it came to.
"""
