"""`fedtempo doctor`: a table or JSON, and an exit code that says whether the machine is sound."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from fedtempo.cli import doctor as command
from fedtempo.cli import main
from fedtempo.contracts.machine import BackendTrial, Examination

HERE, ABSENT = BackendTrial("serial", 0.1, "ab" * 32, "the reference"), BackendTrial("ray", None, "", "not here")
FOUND = Examination({"python": "3.12"}, (HERE, ABSENT))


@pytest.mark.parametrize("sound", [True, False])
@pytest.mark.parametrize("as_json", [True, False])
def test_what_is_printed(
    sound: bool, as_json: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = BackendTrial("vectorised", 0.2, "cd" * 32, "differs from the reference", sound=False)
    found = FOUND if sound else replace(FOUND, trials=(*FOUND.trials, wrong))
    monkeypatch.setattr(command, "examine", lambda ray: found)
    monkeypatch.setattr("sys.argv", ["fedtempo", "doctor", "--no-ray", *(["--json"] if as_json else [])])
    with pytest.raises(SystemExit) as stop:
        main()
    said = capsys.readouterr().out
    assert int(stop.value.code or 0) == (0 if sound else 1)
    if as_json:
        values = json.loads(said)
        assert values["sound"] is sound and values["backends"][0]["digest"] == "ab" * 32
    else:
        assert "abababababab " in said and "the reference" in said
        assert ("All that can run here" in said) == sound and ("Not sound: vectorised." in said) != sound
