"""Options that had another name: the old one is answered with the new one."""

import re

import pytest
import typer
from blockproof.fuzz.cli.main import app, main
from blockproof.fuzz.cli.options import duration
from blockproof.fuzz.cli.renamed import COMMANDS, FLAGS, NOW


def options(command, path=()):
    """All options by the command that has them."""
    yield " ".join(path), [name for one in command.params for name in one.opts]
    for name, below in getattr(command, "commands", {}).items():
        yield from options(below, (*path, name))


EVERY = dict(options(typer.main.get_command(app)))


@pytest.mark.parametrize(("command", "old"), [*NOW])
def test_an_old_name_is_answered_with_the_new_one(command, old, capsys):
    assert main([*command.split(), old, "x"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"blockproof: {old} is now ")
    assert old not in EVERY[command]
    new = NOW[command, old].partition(",")[0]
    assert new in EVERY[command] if new.startswith("--") else "replay" in EVERY


@pytest.mark.parametrize(("command", "option"), [*FLAGS])
def test_an_option_that_takes_no_file_any_more_says_what_to_write(command, option, tmp_path, capsys):
    assert main([*command.split(), option, str(tmp_path / "file")]) == 2
    assert capsys.readouterr().err == f"blockproof: {option} {FLAGS[command, option]}\n"


@pytest.mark.parametrize("words", [*COMMANDS])
def test_a_command_that_is_an_option_now_says_which(words, capsys):
    assert main([*words, "--seeds", "2"]) == 2
    assert capsys.readouterr().err == f"blockproof: {' '.join(words)} is now {COMMANDS[words]}\n"
    assert " ".join(words) not in EVERY


def test_one_word_means_one_thing():
    takes = {}
    for name, command in _commands(typer.main.get_command(app)):
        for one in command.params:
            if one.param_type_name == "option":
                takes.setdefault(one.opts[0], {})[name] = one
    assert all(one.is_flag for one in takes["--json"].values())
    for option in ("--check", "--seconds", "--keep", "--memory", "--write"):
        assert not any(one.is_flag for one in takes[option].values())
    assert all("0 takes as many as there are cores" in one.help for one in takes["--jobs"].values())
    assert not {"--minutes", "--hours", "--summary", "--comment", "--page", "--replay"} & set(takes)


def _commands(command, path=()):
    yield " ".join(path), command
    for name, below in getattr(command, "commands", {}).items():
        yield from _commands(below, (*path, name))


@pytest.mark.parametrize(("text", "seconds"), [("0.2", 0.2), ("1s", 1.0), (".5", 0.5)])
def test_a_time_may_have_a_unit(text, seconds, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["fuzz", "--seconds", text, "--seed", "1", "--attention", "full"]) == 0
    assert duration(text) == seconds
    told = re.search(r" operations in ([\d.]+) s", capsys.readouterr().out)
    assert told is not None
    assert float(told[1]) >= seconds - 0.05


@pytest.mark.parametrize("text", ["-1", "nan", "1d", "m", "1e3", ""])
def test_what_is_no_time_is_wrong_usage(text, capsys):
    assert main(["fuzz", "--seconds", text]) == 2
    assert "write seconds, or as in 90s, 30m, 8h" in capsys.readouterr().err
