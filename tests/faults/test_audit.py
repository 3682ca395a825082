"""The audit fails on a known hole, and says what it could not ask."""

from __future__ import annotations

from tests.audit import verdict

SOUND = {"name": "a", "version": "1", "vulns": []}
HOLE = {"name": "b", "version": "2", "vulns": [{"id": "CVE-1"}]}
UNKNOWN = {"name": "c", "skip_reason": "not found"}


def test_a_known_hole_is_a_failure() -> None:
    assert verdict({"dependencies": [SOUND, HOLE, UNKNOWN]}, strict=False) == (1, "audit: known holes\nb 2: CVE-1")


def test_what_cannot_be_asked_is_said_and_fails_only_where_every_answer_is_wanted() -> None:
    code, words = verdict({"dependencies": [SOUND, UNKNOWN]}, strict=False)
    assert (code, words) == (0, "audit: no known hole in 1 of 2 pinned releases; 1 could not be asked about")
    assert verdict({"dependencies": [SOUND, UNKNOWN]}, strict=True)[0] == 1
    assert verdict(None, strict=False)[0] == 0
    assert verdict(None, strict=True)[0] == 1
    assert verdict({"dependencies": [SOUND]}, strict=True)[0] == 0
