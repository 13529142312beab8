"""The help pages: every positional argument says what it is, whichever versions of click and Typer there are."""

import click
import pytest
import typer

from pgfl import cli

GROUP = typer.main.get_command(cli.app)


def commands(path, command):
    if not hasattr(command, "list_commands"):
        yield path, command
        return
    for name in command.list_commands(click.Context(command)):
        yield from commands(f"{path} {name}", command.get_command(click.Context(command), name))


@pytest.mark.parametrize("name", cli.HELP)
def test_every_argument_and_option_has_help(name):
    for path, command in commands(name, GROUP.get_command(click.Context(GROUP), name)):
        for parameter in command.params:
            assert parameter.help, f"{path}: {parameter.name}"
