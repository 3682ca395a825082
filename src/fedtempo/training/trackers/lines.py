"""Text files that grow by a line per round and may have been cut short by a kill."""

from __future__ import annotations

from pathlib import Path

from fedtempo.training.tracking import unwritable


def whole_lines(path: Path, tracker: str) -> list[str]:
    """The complete lines of a file; a last line without its end is cut off. A new file is empty and can be written."""
    try:
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        whole = text[: text.rfind("\n") + 1]
        if whole != text or not path.exists():
            path.write_text(whole, encoding="utf-8")
    except OSError as error:
        raise unwritable(tracker, path, error) from None
    return whole.splitlines()
