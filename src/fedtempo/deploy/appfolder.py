"""The folder that Flower takes as an app: the experiment, and two lines of Python that make apps of it."""

from __future__ import annotations

import shutil
from pathlib import Path

import tomli_w

from fedtempo.config import ExperimentFile, dump
from fedtempo.support.files import write_atomically

PACKAGE = "fedtempo_app"
_MODULE = '''"""The experiment beside this file, as Flower apps."""

from pathlib import Path

from fedtempo.deploy import make_apps

apps = make_apps(Path(__file__).parent / "experiment.toml", {settings})
server_app = apps[0]
client_app = apps[1]
'''


def write_app(folder: Path, file: ExperimentFile, clients: int | None, patience: float) -> None:
    """Write the app's three files; the same experiment gives the same bytes."""
    described = {
        "project": {"name": "fedtempo-app", "version": "1.0.0", "description": "An experiment", "dependencies": []},
        "tool": {
            "flwr": {
                "app": {
                    "publisher": "fedtempo",
                    "components": {
                        "serverapp": f"{PACKAGE}.apps:server_app",
                        "clientapp": f"{PACKAGE}.apps:client_app",
                    },
                    "config": {},
                }
            }
        },
    }
    package = folder / PACKAGE
    if folder.is_dir():
        shutil.rmtree(folder)  # Flower runs whatever lies here, also what a stored folder brought along
    files = {
        folder / "pyproject.toml": tomli_w.dumps(described),
        package / "__init__.py": '"""A FedTempo experiment as a Flower app."""\n',
        package / "apps.py": _MODULE.format(settings=f"clients={clients!r}, patience={patience!r}"),
        package / "experiment.toml": dump(file),
    }
    for path, text in files.items():
        write_atomically(path, text, "out")
