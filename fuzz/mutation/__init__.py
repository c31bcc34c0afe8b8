"""Random mutants of a core's own modules: which of them does the harness find?

`places` and `drawing` choose them, `hunting` has them hunted in children of the core's interpreter, in which `serve`,
`planting` and `stages` run; `survivors` reads how those that nothing found were judged, `report` says what it came to.
"""
