"""Every reachable state of small scopes, the model and our core side by side (properties.md §6).

`search` goes breadth first through the states of a `scope`; what it takes to make one move is in `expansion`, what must
hold in `properties`, why fewer states than there are say the same in `packing` and `moves`. `faults` are planted
mistakes, one for each property, that must be found.
"""
