"""A command line as a test runs it."""

from pgfl import cli


def run(capsys, *arguments):
    """(exit code, stdout, stderr) of a command line."""
    code = cli.execute([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def refused(capsys, *arguments):
    """The one sentence with which a command line is refused, with exit code 2 and nothing on stdout."""
    code, out, err = run(capsys, *arguments)
    assert code == 2, (code, out, err)
    assert out == ""
    lines = err.strip().splitlines()
    assert len(lines) == 1, err
    assert lines[0].startswith("pgfl: ")
    assert lines[0].endswith(".") or lines[0].endswith("?")
    return lines[0]
