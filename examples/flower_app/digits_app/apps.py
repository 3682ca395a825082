"""The two apps that pyproject.toml names. Replace experiment.toml by your own; the rest stays as it is.

The run is kept in the folder that FEDTEMPO_RUN_FOLDER names where Flower is started, and nowhere without it.
"""

from pathlib import Path

from fedtempo.deploy import make_apps

apps = make_apps(Path(__file__).parent / "experiment.toml", patience=300)
server_app = apps[0]
client_app = apps[1]
