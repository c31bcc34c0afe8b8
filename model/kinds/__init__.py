"""Rules of kinds of attention that few cores have, each in a file of its own: `rswa`, a window over generated tokens;
`ring`, a block of a request that holds nothing for others. A core that lacks them is never asked for them."""

from ..attention import RULES
from .pool_kinds import Hot, Resident, Source
from .ring import Ring
from .rswa import ReferenceWindow

RULES.update({kind: rule for rule in (ReferenceWindow, Ring, Source, Resident, Hot) for kind in rule.kinds})
