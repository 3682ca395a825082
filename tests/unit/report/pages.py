"""What a page holds."""

from __future__ import annotations

import json
import re
from typing import Any


def numbers_in(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="numbers">(.*?)</script>', page, re.S)
    assert found
    values: dict[str, Any] = json.loads(found[1])
    return values
