"""What the target over vLLM's API knows of a request, as a scheduler does."""

from typing import Any


class LiveRequest:
    """What the scheduler knows of a request."""

    __slots__ = ("hit", "hit_tokens", "in_flight", "named", "request", "said", "scheduled", "settled")

    def __init__(self, request: Any, in_flight: bool) -> None:
        self.request = request
        self.in_flight = in_flight
        """Is the core told how many tokens are in flight?"""
        self.scheduled = 0
        """Tokens of the step that was allocated and has not run yet."""
        self.hit_tokens = 0
        """Tokens of the hit that the last lookup found."""
        self.hit: Any = None
        """Blocks of that hit, as the core returned them."""
        self.named = 0
        """Hashes of full blocks that are known as what names in events are made of."""
        self.settled = 0
        """Tokens of all steps whose outcome is known."""
        self.said = False
        """Was the core ever told of tokens in flight by an operation?"""

    def tell(self, tokens: int) -> None:
        """Say of so many tokens that they are in flight. A core that was never told finds nothing in the request."""
        if self.in_flight:  # besides those of which it knows itself
            tokens = max(tokens, self.request.num_computed_tokens - self.settled)
        if tokens or self.said:
            self.request.num_in_flight_tokens = tokens
            self.said = True

    def settle(self) -> None:
        """Count the tokens in flight: all tokens of steps whose outcome is not known yet.

        A step that ends at the last known token is in flight until the token that it samples is known.
        """
        request = self.request
        if request.num_computed_tokens < request.num_tokens:
            self.settled = request.num_computed_tokens
        if self.in_flight:
            request.num_in_flight_tokens = request.num_computed_tokens - self.settled
