"""The change that is proposed for vLLM: leave the last token to the decoding engine wherever a group is not full
attention.

The scheduler halves of NixlConnector and MooncakeConnector do so where there are Mamba layers or bounded replay: the
prompt is computed elsewhere, and loaded, without its last token. Then both engines keep what that token reads. The flag
`_bounded_replay` serves nothing else in these two classes.
"""

from contextlib import suppress
from typing import Any


def fix() -> None:
    """Change the engine in this process."""
    from vllm.distributed.kv_transfer.kv_connector.v1.nixl.base_scheduler import NixlBaseConnectorScheduler

    _widen(NixlBaseConnectorScheduler)
    with suppress(ImportError):  # it needs a package that is not installed with the engine
        from vllm.distributed.kv_transfer.kv_connector.v1.mooncake.mooncake_connector import MooncakeConnectorScheduler

        _widen(MooncakeConnectorScheduler)


def _widen(half: Any) -> None:
    begun = half.__init__

    def __init__(self: Any, *given: Any, **more: Any) -> None:
        begun(self, *given, **more)
        self._bounded_replay = self._bounded_replay or self._is_hma_required

    half.__init__ = __init__
