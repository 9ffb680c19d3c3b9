"""`nearmt translate` with a document, by a real model."""

import json

from command_line import assert_one_sentence, nearmt

UNIT = (
    '<?xml version="1.0"?>\n<xliff version="1.2"><file original="a" source-language="de" target-language="en"><body>\n'
    '<trans-unit id="1"><source><g id="1"> die neue tabelle zeigt die zelle .</g> </source></trans-unit>\n'
    '<trans-unit id="2"><source>die zelle %s</source><target>the cell %s</target></trans-unit>\n'
    '<trans-unit id="3"><source>heute zeigt die <x id="5"></x> zelle die neue tabelle {0} .</source></trans-unit>\n'
    "</body></file></xliff>\n"
)


def test_document_is_translated_with_the_memory(client, tmp_path):
    path, out = tmp_path / "in.xlf", tmp_path / "out.xlf"
    path.write_text(UNIT, encoding="utf-8")
    code, printed, err = nearmt("translate", client.store, path, "-o", out)
    assert (code, printed) == (0, "")
    assert "2 units filled; left alone: 1 translated" in err
    text = out.read_text(encoding="utf-8")
    assert '<g id="1"> the new spreadsheet shows the cell .</g> </target>' in text
    assert text.count('<x id="5"></x>') == text.count("{0}") == 2
    assert text.replace("\n", "").startswith(UNIT.split("</source>")[0].replace("\n", ""))
    assert text.count('state-qualifier="leveraged-mt"') == 2

    code, printed, err = nearmt("translate", client.store, out, "-o", tmp_path / "again.xlf", "--json", "-q")
    assert (code, err) == (0, "")
    assert json.loads(printed) == {"filled": 0, "left": {"translated": 3}, "piecewise": 0, "untranslated": 0}
    assert (tmp_path / "again.xlf").read_bytes() == out.read_bytes()


def test_document_needs_an_output_file(client, tmp_path):
    path = tmp_path / "in.po"
    path.write_text('msgid "tabelle"\nmsgstr ""\n', encoding="utf-8")
    assert_one_sentence(nearmt("translate", client.store, path), "-o OUT.po")
    assert_one_sentence(nearmt("translate", client.store, path, "-o", path), "exists: .* --force")
    assert_one_sentence(
        nearmt("translate", client.store, path, "-o", tmp_path / "o.po", "--n-best", "2", "--json"), "n-best"
    )
    assert_one_sentence(nearmt("translate", client.store, tmp_path / "none.xlf", "-o", tmp_path / "o.xlf"), "none.xlf")
    assert_one_sentence(nearmt("translate", client.store, tmp_path / "a.pot", "-o", tmp_path / "o.po"), "msginit")
    assert nearmt("translate", client.store, path, "-o", path, "--force", "-q")[0] == 0
    assert "#, fuzzy\n" in path.read_text(encoding="utf-8")
