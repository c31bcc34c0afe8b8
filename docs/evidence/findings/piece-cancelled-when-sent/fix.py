"""The change that is proposed for LMDeploy: a piece of a prompt never joins those that decode.

`InputsMakerAsync.update_running_seqs` (pytorch/engine/inputs_maker.py) returns early for a piece as long as the chunker
knows its request. It is to do so whether or not the chunker still does; the last piece stays what it is, a prefill.
"""

from typing import Any


def fix() -> None:
    """Change the engine in this process."""
    from lmdeploy.pytorch.engine.inputs_maker import InputsMakerAsync

    update = InputsMakerAsync.update_running_seqs

    def update_running_seqs(self: Any, running: list[Any], inputs: Any) -> None:
        is_piece = inputs is not None and inputs.is_chunk and not inputs.is_last_chunk
        if not is_piece or self.long_context_chunker.enabled():
            update(self, running, inputs)

    InputsMakerAsync.update_running_seqs = update_running_seqs
