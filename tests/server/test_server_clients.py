"""Unmodified clients of LibreTranslate, DeepL and Apertium against our server."""

import json
import threading
import time
import urllib.request
from urllib.error import HTTPError
from urllib.parse import urlencode

import deepl
import pytest
from libretranslatepy import LibreTranslateAPI

from serving import KEYS, Running, running, settings_for

SOURCE = "heute öffnet die tabelle die große zelle ."
OTHER = "die neue zelle zeigt die tabelle ."


@pytest.fixture(scope="module")
def open_server(client):
    with running(settings_for(client.store)) as found:
        yield found


@pytest.fixture
def locked(store_copy):
    with running(settings_for(store_copy, keys=KEYS)) as found:
        yield found


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "*")


def translator(server: Running, key: str = "any-key") -> deepl.DeepLClient:
    return deepl.DeepLClient(key, server_url=server.url)


def test_libretranslatepy_translates_detects_and_lists_languages(open_server):
    api = LibreTranslateAPI(open_server.url)
    assert api.translate(SOURCE, "de", "en") == open_server.translate(SOURCE)
    assert api.translate(SOURCE, "auto", "en") == open_server.translate(SOURCE)
    assert api.detect("Das ist ein deutscher Satz über das Wetter.")[0]["language"] == "de"
    assert api.detect("This is certainly an English sentence.")[0]["language"] == "en"
    assert api.languages() == [
        {"code": "de", "name": "German", "targets": ["en"]},
        {"code": "en", "name": "English", "targets": []},
    ]


def test_libretranslatepy_with_keys(locked):
    assert "spreadsheet" in LibreTranslateAPI(locked.url, "key-to-translate").translate(SOURCE, "de", "en")
    for wrong in (None, "wrong"):
        with pytest.raises(HTTPError) as caught:
            LibreTranslateAPI(locked.url, wrong).translate(SOURCE, "de", "en")
        assert caught.value.code == 403
        assert "key" in json.loads(caught.value.read())["error"]
        caught.value.close()


def test_libretranslate_accepts_json_forms_and_queries(open_server):
    expected = open_server.translate(SOURCE)
    fields = {"q": SOURCE, "source": "de", "target": "en"}
    assert open_server.post("/translate", fields).json() == {"translatedText": expected}
    assert open_server.http.post("/translate", data=fields).json() == {"translatedText": expected}
    assert open_server.http.post("/translate", params=fields).json() == {"translatedText": expected}
    many = {"q": [SOURCE, OTHER], "source": "auto", "target": "en", "alternatives": 2}
    reply = open_server.post("/translate", many).json()
    assert reply["translatedText"] == open_server.translate([SOURCE, OTHER])
    assert [len(found) for found in reply["alternatives"]] == [2, 2]
    assert [found["language"] for found in reply["detectedLanguage"]] == ["de", "de"]
    repeated = [("q", SOURCE), ("q", OTHER), ("source", "de"), ("target", "en")]
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    form = open_server.http.post("/translate", content=urlencode(repeated), headers=headers)
    assert len(form.json()["translatedText"]) == 2


def test_libretranslate_keeps_tags(open_server):
    html = f'<p class="a&amp;b">{SOURCE}</p><br/>\n<script>die tabelle</script><p>{OTHER}</p>'
    reply = open_server.post("/translate", {"q": html, "source": "de", "target": "en", "format": "html"}).json()
    one, other = open_server.translate([SOURCE, OTHER])
    expected = f'<p class="a&amp;b">{one}</p><br/>\n<script>die tabelle</script><p>{other}</p>'
    assert reply["translatedText"] == expected


PO = f"""msgid ""
msgstr "Content-Type: text/plain; charset=UTF-8\\n"

msgid "{SOURCE}"
msgstr ""
"""


def test_libretranslate_translates_files(open_server):
    fields = {"source": "de", "target": "en"}
    reply = open_server.http.post("/translate_file", data=fields, files={"file": ("a.po", PO.encode())})
    assert reply.status_code == 200, reply.text
    made = open_server.http.get(reply.json()["translatedFileUrl"])
    assert open_server.translate(SOURCE) in made.text
    assert "a.po" in made.headers["content-disposition"]
    bad = open_server.http.post("/translate_file", data=fields, files={"file": ("../a.xlf", b"<xliff")})
    assert bad.status_code == 400
    assert bad.json()["error"].startswith("a.xlf")
    assert open_server.http.get("/download_file/none").status_code == 404


def test_libretranslate_errors_have_its_format(open_server):
    reply = open_server.post("/translate", {"q": SOURCE, "source": "fr", "target": "en"})
    assert (reply.status_code, list(reply.json())) == (400, ["error"])
    assert reply.json()["error"] == "no store translates from fr to en; available: de to en"
    assert open_server.post("/translate", {"source": "de", "target": "en"}).status_code == 400
    assert open_server.http.get("/frontend/settings").json()["keyRequired"] is False
    assert open_server.http.get("/health").json() == {"status": "ok"}


def test_a_suggestion_is_added_to_the_memory(locked):
    fields = {"q": SOURCE, "s": "the window is open .", "source": "de", "target": "en"}
    assert locked.post("/suggest", {**fields, "api_key": "key-to-translate"}).status_code == 403
    assert locked.post("/suggest", fields).status_code == 403
    assert locked.post("/suggest", {**fields, "api_key": "key-to-edit-with"}).json() == {"success": True}
    api = LibreTranslateAPI(locked.url, "key-to-translate")
    assert api.translate(SOURCE, "de", "en") == "the window is open ."
    better = {**fields, "s": "the image is open .", "api_key": "key-to-edit-with"}
    assert locked.post("/suggest", better).json() == {"success": True}
    assert api.translate(SOURCE, "de", "en") == "the image is open ."


def test_omegat_translates_through_apertium(open_server):
    query = urlencode({"q": SOURCE, "markUnknown": "no", "langpair": "de|en", "key": ""})
    with urllib.request.urlopen(f"{open_server.url}/translate?{query}") as reply:
        content = json.load(reply)
    assert content["responseStatus"] == 200
    assert content["responseData"]["translatedText"] == open_server.translate(SOURCE)


def test_deepl_translates(open_server):
    client = translator(open_server)
    result = client.translate_text(SOURCE, target_lang="EN-US")
    assert result.text == open_server.translate(SOURCE)
    assert (result.detected_source_lang, result.billed_characters) == ("DE", len(SOURCE))
    results = client.translate_text([SOURCE, OTHER], source_lang="DE", target_lang="EN-GB")
    assert [found.text for found in results] == open_server.translate([SOURCE, OTHER])
    with pytest.raises(deepl.DeepLException, match="no store translates from FR to EN-US"):
        client.translate_text("bonjour", source_lang="FR", target_lang="EN-US")


def test_deepl_accepts_forms_as_sent_by_its_node_client(open_server):
    form = urlencode([("text", SOURCE), ("text", OTHER), ("source_lang", "de"), ("target_lang", "en-us")])
    headers = {"Content-Type": "application/x-www-form-urlencoded", "Authorization": "DeepL-Auth-Key any"}
    reply = open_server.http.post("/v2/translate", content=form, headers=headers).json()
    assert [found["text"] for found in reply["translations"]] == open_server.translate([SOURCE, OTHER])


def test_deepl_keeps_placeholders(open_server):
    text = 'die <b>neue</b> zelle zeigt <x id="5"></x> die tabelle <x id="6"/> .'
    result = translator(open_server).translate_text(text, source_lang="DE", target_lang="EN-US", tag_handling="xml")
    assert '<x id="5"></x>' in result.text
    assert '<x id="6"/>' in result.text
    assert result.text.index("<b>") < result.text.index("</b>")


def test_deepl_languages_usage_and_glossaries(open_server):
    client = translator(open_server)
    assert [(found.code, found.name) for found in client.get_source_languages()] == [("DE", "German")]
    assert [found.code for found in client.get_target_languages()] == ["EN-GB", "EN-US"]
    before = client.get_usage().character.count
    assert before is not None
    client.translate_text(SOURCE, target_lang="EN-US")
    assert client.get_usage().character.count == before + len(SOURCE)
    assert client.get_glossary_languages() == []
    assert client.list_glossaries() == []


def test_deepl_refuses_a_wrong_key(locked):
    with pytest.raises(deepl.AuthorizationException):
        translator(locked, "wrong-key").translate_text(SOURCE, target_lang="EN-US")
    with pytest.raises(deepl.AuthorizationException, match="has the role translate, and this needs edit"):
        translator(locked, "key-to-translate").create_translation_memory_import("a.tmx", 5)


TMX = f"""<?xml version="1.0"?><tmx version="1.4"><header srclang="de"/><body>
<tu tuid="1"><tuv xml:lang="de"><seg>{SOURCE}</seg></tuv><tuv xml:lang="en"><seg>the window is open .</seg></tuv></tu>
</body></tmx>"""


def test_deepl_translation_memories(locked, tmp_path, monkeypatch):
    pause = threading.Event()
    monkeypatch.setattr("time.sleep", lambda seconds: pause.wait(min(seconds, 0.05)))  # the client polls every 5 s
    client = translator(locked, "key-to-edit-with")
    names = [memory.name for memory in client.list_translation_memories()]
    assert names == ["client", "client: memory.tsv"]
    store = client.list_translation_memories()[0]
    assert (store.source_language, store.target_languages, store.segment_count) == ("DE", ["EN"], 500)
    before = client.translate_text(SOURCE, target_lang="EN-US", source_lang="DE").text
    (tmp_path / "legal.tmx").write_text(TMX, encoding="utf-8")
    job = client.import_translation_memory_from_filepath(tmp_path / "legal.tmx", display_name="legal", timeout_s=20)
    made = job.result.translation_memory_id
    assert made
    assert client.get_translation_memory(made).name == "client: legal"

    def with_memory(id: str) -> str:
        return client.translate_text(SOURCE, source_lang="DE", target_lang="EN-US", translation_memory=id).text

    assert with_memory(made) == with_memory(store.translation_memory_id) == "the window is open ."
    part = client.list_translation_memories()[1].translation_memory_id
    assert with_memory(part) == before
    client.delete_translation_memory(made)
    assert with_memory("client") == before
    with pytest.raises(deepl.DeepLException, match="no such translation memory"):
        with_memory(made)
    with pytest.raises(deepl.AuthorizationException, match="cannot be deleted through the API"):
        client.delete_translation_memory("client")


def test_deepl_import_of_a_malformed_file_reports_the_reason(locked, tmp_path):
    client = translator(locked, "key-to-edit-with")
    (tmp_path / "bad.tmx").write_text("<tmx><body>", encoding="utf-8")
    created = client.create_translation_memory_import("bad.tmx", 11)
    assert client.get_translation_memory_job(created.job_id).status == "awaiting_input"
    with pytest.raises(deepl.DeepLException, match="announced with 11 bytes, and 3 arrived"):
        client.upload_translation_memory_file(created, b"abc")
    client.upload_translation_memory_file(created, b"<tmx><body>")
    for _ in range(200):
        job = client.get_translation_memory_job(created.job_id)
        if job.done:
            break
        time.sleep(0.02)
    assert not job.ok
    assert job.result.error_message.startswith("bad.tmx")
