"""What cores of today have besides the rule of vLLM 0.23, each feature in a file of its own: `names`, several names for
a block; `inside`, hits that end inside one; `copies`, what is copied for them; `today`, all of it as a `Policy`, with
the small decisions; `pools`, a pool of the host beside that of the device, with the four files that it names.

Read `model.core` first; none of this is read for a core without it.
"""
