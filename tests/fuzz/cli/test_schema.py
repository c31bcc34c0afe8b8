"""`blockproof schema` of what commands print as JSON: what they print takes it, and what is spoiled does not."""

import json

import pytest
from blockproof.fuzz.cli.main import main
from blockproof.fuzz.page.files import RESULTS
from jsonschema import Draft202012Validator

RUN = ["fuzz", "--target", "fault:touch-ignores-used-blocks", "--attention", "full", "--seed", "2", "--json"]


def printed(capsys, *words):
    main([*words])
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("kind", ["page", *RESULTS])
def test_every_document_has_a_schema(kind, capsys):
    Draft202012Validator.check_schema(printed(capsys, "schema", kind))


def test_a_run_has_the_form_that_is_told(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run, form = printed(capsys, *RUN), printed(capsys, "schema", "run")
    validator = Draft202012Validator(form)
    validator.validate(run)
    assert run["findings"]
    for field in run:
        assert not validator.is_valid({**run, field: [[[1]]]}), field


def test_an_unknown_document_is_refused(capsys):
    assert main(["schema", "rum"]) == 2
    assert "did you mean 'run'?" in capsys.readouterr().err
