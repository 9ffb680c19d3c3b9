"""`nearmt explain` names what the weights depend on, and a filter that matches nothing is not silent."""

import pytest

from command_line import assert_one_sentence, nearmt

SENTENCE = "die neue tabelle zeigt die zelle ."


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--method", "adaptive"), "method adaptive, K 8, T "),
        (("--method", "vanilla", "--k", 4, "--temperature", 2.5, "--share", 0.5), "method vanilla, K 4, T 2.5\n"),
        (("--method", "base"), "method base\n"),
    ],
)
def test_the_method_and_its_settings_are_shown(client, options, expected):
    code, output, _ = nearmt("explain", client.store, SENTENCE, *options)
    assert code == 0
    assert expected in output


def test_the_number_of_neighbours_is_shown_where_a_method_chooses_it(client):
    assert "number of neighbours 0: " in nearmt("explain", client.store, SENTENCE, "--method", "adaptive")[1]
    assert "number of neighbours" not in nearmt("explain", client.store, SENTENCE, "--method", "vanilla")[1]


def test_an_empty_sentence_is_refused(client):
    assert_one_sentence(nearmt("explain", client.store, " "), "the text is empty$")


@pytest.mark.parametrize("command", ["explain", "translate"])
def test_a_filter_that_matches_nothing_gives_a_warning(client, command):
    text = {"stdin": SENTENCE} if command == "translate" else {}
    arguments = [SENTENCE] if command == "explain" else []
    code, _, errors = nearmt(command, client.store, *arguments, "--only", "nosuch", **text)
    assert code == 0
    assert "no unit of the memory matches the filter" in errors
    assert "matches the filter" not in nearmt(command, client.store, *arguments, "--only", "memory*", **text)[2]


def test_settings_of_another_method_are_refused_with_the_way_out(client):
    result = nearmt("translate", client.store, "--k", 4, stdin=SENTENCE)
    assert_one_sentence(result, "best method, adaptive, does not take --k: use --method vanilla or uniform$")


def test_a_store_that_does_not_exist_is_reported_so(tmp_path):
    assert_one_sentence(nearmt("info", tmp_path / "nosuch.store"), "nosuch.store does not exist$")
