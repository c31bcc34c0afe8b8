"""Several releases of one engine, as a user names them."""

from .adapters import family_of, forms
from .bisect_releases import candidates, version_key


def releases_between(text: str) -> list[str]:
    """The targets in `NAME` (all releases that are known to work) or `NAME==FIRST..LAST`, oldest first.

    Both ends are taken, even if they are not among the known ones. ValueError, with what to write instead.
    """
    name, _, span = text.partition("==")
    family = family_of(name)
    if family is None or (span and ".." not in span):
        raise ValueError(f"{text!r} names no releases; write NAME or NAME==FIRST..LAST with one of {forms()}")
    if not span:
        return [family.spec(version) for version in family.releases]
    first, _, last = span.partition("..")
    for version in (first, last):
        family.version_in(family.spec(version))
    if version_key(first) > version_key(last):
        raise ValueError(f"{first} is newer than {last}; write the older release first")
    return [family.spec(version) for version in candidates(family, first, last)]
