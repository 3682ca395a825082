"""What starts quickly stays quick: which libraries are loaded by `import fedtempo`, its first use and `--help`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from fedtempo import __version__
from fedtempo.cli.commands import COMMANDS, imported
from fedtempo.study import Budget

SOURCE = Path(__file__).resolve().parents[3] / "src"
EXTRAS = {
    *("datasets", "flwr", "flwr_datasets", "matplotlib", "mlflow", "networkx", "onnx", "opacus", "optuna", "pandas"),
    *("peft", "PIL", "plotly", "pooch", "ray", "requests", "scipy", "sklearn", "tensorboard", "tokenizers"),
    *("torch_geometric", "transformers", "wandb"),
}
"""Libraries that only a part of FedTempo needs."""
SCREEN = {"pydantic", "rich", "typer"}
"""What experiment files, tables and the command line need, and training from Python does not."""


SEEN = "import json, sys; print('\\n' + json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"


def loaded_by(*code: str) -> list[set[str]]:
    """The libraries that are there after each piece of code, in one new interpreter."""
    program = "\n".join(f"{piece}\n{SEEN}" for piece in code)
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment)
    return [set(json.loads(line)) for line in done.stdout.splitlines() if line.startswith("[")]


def test_importing_loads_nothing_before_a_name_is_used() -> None:
    (loaded,) = loaded_by("import fedtempo")
    assert not loaded & {"torch", "numpy", *EXTRAS, *SCREEN}


NAMES = (
    "import fedtempo, fedtempo.data.adapters; fedtempo.run, fedtempo.algorithms, fedtempo.trackers, fedtempo.compare"
)
COUNT = """
import sys
from fedtempo.federation.costs import OperationCounter
with OperationCounter() as counter:
    (torch.ones(2, 3, requires_grad=True) @ torch.ones(3, 4)).sum().backward()
assert counter.operations == 96.0
assert "torch._dynamo" not in sys.modules, "to load torch's compiler takes longer than the first rounds of a small run"
"""
RUN = """
import fedtempo as ft
data = ft.data.load("digits").split(ft.data.iid(clients=4), seed=0)
ft.run(model=ft.models.softmax_regression(64, 10), data=data, algorithm=ft.algorithms.fedavg(lr=0.1, steps=1), rounds=1)
"""


def test_the_public_names_load_torch_and_little_else_and_a_run_needs_no_extra() -> None:
    by_torch, by_names, _, by_a_run = loaded_by("import torch", NAMES, COUNT, RUN)
    assert "torch" in by_torch and "fedtempo" in by_names - by_torch
    assert not (by_names - by_torch) & {*EXTRAS, *SCREEN}
    assert not (by_a_run - by_torch) & EXTRAS


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], []])
def test_help_does_not_wait_for_torch(arguments: list[str]) -> None:
    code = (
        f"import sys; sys.argv = ['fedtempo', *{arguments}]\n"
        "from fedtempo.cli import main\ntry:\n    main()\nexcept SystemExit:\n    pass"
    )
    (loaded,) = loaded_by(code)
    assert not loaded & {"torch", *EXTRAS}


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_says_what_the_command_s_own_help_begins_with(name: str) -> None:
    command = imported(name)
    assert COMMANDS[name].help == (command.help or "").split("\n\n")[0].replace("\n", " ")


@pytest.mark.parametrize("name", COMMANDS)
def test_a_paragraph_of_help_is_one_line_that_any_terminal_can_wrap(name: str) -> None:
    paragraphs = (imported(name).help or "").split("\n\n")
    assert not [paragraph for paragraph in paragraphs if "\n" in paragraph]


@pytest.mark.parametrize("name", ["data", "deploy"])
def test_completion_is_installed_by_the_program_and_not_by_its_parts(name: str) -> None:
    offered = [option for parameter in imported(name).params for option in parameter.opts]
    assert "--install-completion" not in offered


def test_the_help_of_compare_says_the_default_of_seeds_with_tune_as_well() -> None:
    (seeds,) = [parameter for parameter in imported("compare").params if parameter.name == "seeds"]
    assert f"1 by default, {Budget().seeds} with --tune" in seeds.help


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_ends_with_examples_that_parse(name: str) -> None:
    command = imported(name)
    for example in COMMANDS[name].examples:
        program, first, *arguments = example.split()
        assert (program, first) == ("fedtempo", name)
        assert command.make_context(name, arguments).info_name == name
        assert example in command.epilog
    assert COMMANDS[name].examples or hasattr(command, "commands")


def test_every_command_is_listed() -> None:
    import fedtempo.cli.data
    import fedtempo.cli.deploy

    apps = {name for name, one in COMMANDS.items() if one.function == "app"}
    assert apps == {"data", "deploy"}
    assert all(isinstance(app, typer.Typer) for app in (fedtempo.cli.data.app, fedtempo.cli.deploy.app))


def test_the_package_is_a_program() -> None:
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    command = [sys.executable, "-m", "fedtempo"]
    done = subprocess.run([*command, "--version"], capture_output=True, text=True, check=False, env=environment)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{__version__}\n", "")
    wrong = subprocess.run([*command, "runn"], capture_output=True, text=True, check=False, env=environment)
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr.startswith("fedtempo: No such command 'runn'") and wrong.stderr.count("\n") == 1


def test_a_shell_is_told_a_command_s_options() -> None:
    """In a new program, because completion is asked for by its environment."""
    words = {"_FEDTEMPO_COMPLETE": "complete_bash", "COMP_WORDS": "fedtempo resume --sa", "COMP_CWORD": "2"}
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), **words}
    program = "import sys; sys.argv = ['fedtempo']; from fedtempo.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, env=environment)
    assert "--same-kind" in done.stdout
