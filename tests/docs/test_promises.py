"""The pages put nothing off: only the sentences named here state what Interlock does not have."""

import re

from tests.docs.running import ROOT
from tests.docs.test_pages import PAGES

LATER = re.compile(
    r"\bplan(?:s|ned)\b|\broad ?map\b|\bTODO\b|\bTBD\b|\bcoming soon\b|\bin (?:the|a) future\b"
    r"|\bwill (?:come|follow|be (?:added|supported|possible|there))\b"
    r"|\b(?:later|coming|future) (?:version|release|milestone)s?\b"
    r"|\bnot (?:(?:there|here|on \w+|run|(?:been )?\w+(?:ed|able|ible)) yet"
    r"|yet (?:there|here|on \w+|(?:been )?\w+(?:ed|able|ible)))\b"
    r"|\bno [\w *-]{1,40} yet[:.]",
    re.IGNORECASE,
)
"""Words that say of a feature that it is not there."""

ALLOWED = {
    "README.md": ("it is not on PyPI yet",),
    "docs/howto/install.md": ("Interlock is not on PyPI yet.",),
    "CONTRIBUTING.md": (
        "Not run yet, for want of a place",
        "A rule that is not there yet becomes a field",
    ),
    # Of messages, rows, records, and journals: none of them says it of a feature.
    "docs/explanation/determinism.md": ("a later version of Interlock replays it",),
    "docs/explanation/engines.md": (
        "If a later version changes a rule",
        "going to a later version",
    ),
    "docs/reference/hub-info.md": ("the disk has not confirmed yet",),
    "docs/reference/logs.md": ("because a later release wrote it",),
}
"""The sentences that may say so, by page."""


def test_no_page_announces_a_feature_for_later() -> None:
    found = []
    for page in PAGES:
        name = page.relative_to(ROOT).as_posix()
        text = re.sub(r"\s+", " ", page.read_text(encoding="utf-8"))
        for sentence in ALLOWED.get(name, ()):
            assert sentence in text, f"{name} has it no more: take {sentence!r} out of ALLOWED"
            text = text.replace(sentence, "")
        if name != "CHANGELOG.md":
            found += [
                f"{name}: {text[max(0, m.start() - 40) : m.end() + 20]}"
                for m in LATER.finditer(text)
            ]
    assert not found, "\n".join(found)
