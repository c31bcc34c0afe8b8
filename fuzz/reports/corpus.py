"""What replaying a corpus came to, for the test report and the summary of a job."""

from collections.abc import Sequence

from ..findings.words import plural
from .cases import ResultCase
from .document import Lead, ResultDocument


class CorpusDocument(ResultDocument, tag="corpus"):
    """A corpus in which nothing is to be found."""

    target: str
    """With the word corpus before it."""
    nouns: tuple[str, str]
    """What its cases are called: one of them, and several."""
    replayed: list[ResultCase]

    def lead(self) -> Lead:
        """See `ResultDocument`."""
        failed = sum(bool(one.failures) for one in self.replayed)
        verdict = f"{failed} of them failed" if failed else "nothing was found"
        said = f"{plural(len(self.replayed), *self.nouns)} of the corpus replayed, {verdict}"
        return Lead(self.target, said, "bad" if failed else "good")

    def cases(self) -> Sequence[ResultCase]:
        """See `ResultDocument`."""
        return self.replayed
