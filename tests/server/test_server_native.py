"""The native API: translation, evidence, and editing of stores."""

import io
import threading
import time
from typing import Any

import pytest

from nearmt.store import Store
from nearmt.translator import Translator
from serving import Running, running, settings_for

SOURCE = "heute öffnet die tabelle die große zelle ."


@pytest.fixture(scope="module")
def server(client):
    with running(settings_for(client.store)) as found:
        yield found


@pytest.fixture
def editable(store_copy):
    with running(settings_for(store_copy, allow_edits_without_key=True)) as found:
        yield found


def test_translations_equal_those_of_the_translator(server, client):
    sources = [source for source, _ in client.test_pairs[:12]]
    alone = [found.text for found in Translator(client.store).translate(sources)]
    assert server.translate(sources) == alone
    assert server.translate(sources[0]) == alone[0]
    assert "spreadsheet" in server.translate(SOURCE)


def test_a_request_may_set_the_method_and_its_settings(server, client):
    base = Translator(client.store, method="base").translate([SOURCE])[0].text
    vanilla = (
        Translator(client.store, method="vanilla", k=2, temperature=0.5, knn_share=0.9).translate([SOURCE])[0].text
    )
    assert server.translate(SOURCE, method="base") == base
    assert server.translate(SOURCE, method="vanilla", k=2, temperature=0.5, knn_share=0.9) == vanilla
    assert base != server.translate(SOURCE)
    reply = server.post("/v1/translate", {"text": SOURCE, "method": "base", "k": 3})
    assert (reply.status_code, reply.json()["error"]["code"]) == (400, "bad_setting")


def test_n_best_returns_alternatives(server):
    (found,) = server.post("/v1/translate", {"text": SOURCE, "n_best": 3}).json()["translations"]
    assert len(found["alternatives"]) == 2
    assert found["score"] >= found["alternatives"][0]["score"] >= found["alternatives"][1]["score"]
    assert found["text"] == server.translate(SOURCE)
    reply = server.post("/v1/translate", {"text": SOURCE, "n_best": 5})
    assert (reply.status_code, reply.json()["error"]["message"]) == (400, "n_best must not exceed the beam size, 4")


def test_evidence_has_positions_in_the_translation(server):
    text = f"{SOURCE}\n\n{SOURCE}"
    (found,) = server.post("/v1/translate", {"text": text, "evidence": True}).json()["translations"]
    words = [found["text"][token["start"] : token["end"]].strip() for token in found["tokens"]]
    assert words.count("spreadsheet") == 2
    token = found["tokens"][words.index("spreadsheet")]
    assert not token["is_models_first_choice"]
    assert token["nmt_probability"] < 0.1 < token["probability"]
    near = token["neighbors"][0]
    assert near["target"][near["target_start"] : near["target_end"]].strip() == "spreadsheet"
    assert (near["origin"], near["store"]) == ("memory.tsv", "client")
    assert sum(size["probability"] for size in token["size_probabilities"]) == pytest.approx(1, abs=1e-4)


def test_white_space_is_kept(server):
    one, other = SOURCE, "die neue zelle zeigt die tabelle ."
    text = f"  {one}\n\n\t{other}\r\n {one}  "
    first, second = server.translate([one, other])
    assert server.translate(text) == f"  {first}\n\n\t{second}\r\n {first}  "
    assert server.translate(["", " \n", "zelle"])[:2] == ["", " \n"]


def test_stores_are_described_without_paths(server, client):
    (listed,) = server.http.get("/v1/stores").json()["stores"]
    assert (listed["name"], listed["is_usual"], listed["sentences"]) == ("client", True, 500)
    assert listed["languages"] == {"source": "de", "target": "en"}
    reply = server.http.get("/v1/stores/client")
    assert reply.json()["origins"][0]["name"] == "memory.tsv"
    assert reply.json()["adaptation"]["metak"]["max_k"] == 8
    assert (reply.json()["retrieval"], reply.json()["index"]) == ("sentences", None)
    assert str(client.store.parent) not in reply.text
    assert server.http.get("/v1/stores/other").json()["error"]["code"] == "no_such_store"


def test_the_next_request_sees_additions_and_removals(editable: Running):
    pair = {"source": SOURCE, "target": "the window is open .", "unit_id": "u1"}
    before = editable.translate(SOURCE)
    added = editable.post("/v1/stores/client/units", {"units": [pair], "origin": "review"})
    assert added.status_code == 200
    assert added.json()["added"] == 1
    assert editable.translate(SOURCE) == "the window is open ."
    corrected = editable.post("/v1/stores/client/units", {"units": [{**pair, "target": before}], "origin": "review"})
    assert corrected.json()["replaced"] == 1
    assert editable.translate(SOURCE) == before
    removed = editable.http.delete("/v1/stores/client/units", params={"unit_id": "u1", "origin": "review"})
    assert (removed.json()["units"], removed.json()["sentences"]) == (1, 1)
    assert editable.http.get("/v1/stores/client").json()["units"] == 500
    assert editable.http.delete("/v1/stores/client/units").status_code == 400


def test_a_filter_selects_origins(editable: Running):
    pair = {"source": SOURCE, "target": "the window is open .", "origin": "other client"}
    assert editable.post("/v1/stores/client/units", {"units": [pair]}).status_code == 200
    assert editable.translate(SOURCE) == "the window is open ."
    assert "spreadsheet" in editable.translate(SOURCE, filter={"exclude": ["other *"]})
    assert editable.translate(SOURCE, filter={"only": ["other client"]}) == "the window is open ."
    reply = editable.post("/v1/translate", {"text": SOURCE, "filter": {"since": "yesterday"}})
    assert reply.status_code == 400
    assert "yesterday is not a date" in reply.json()["error"]["message"]


def test_a_file_is_imported_with_progress(editable: Running):
    lines = "".join(f"die rote datei {number} .\tthe scarlet file {number} .\n" for number in range(300))
    file = {"file": ("extra.tsv", io.BytesIO(lines.encode()), "text/plain")}
    reply = editable.http.post("/v1/stores/client/import", files=file)
    assert reply.status_code == 202
    job = finished(editable, reply.json()["id"])
    assert (job["state"], job["done"], job["total"], job["added"]) == ("done", 300, 300, 300)
    origins = {origin["name"]: origin["units"] for origin in editable.http.get("/v1/stores/client").json()["origins"]}
    assert origins == {"memory.tsv": 500, "extra.tsv": 300}


def finished(server: Running, id: str) -> dict[str, Any]:
    until = time.monotonic() + 30
    while (job := server.http.get(f"/v1/jobs/{id}").json())["finished_at"] is None:
        assert time.monotonic() < until
        time.sleep(0.05)
    return job


def test_a_malformed_file_fails_with_one_sentence_without_paths(editable: Running):
    file = {"file": ("../../etc/bad.tmx", io.BytesIO(b"<tmx><body><tu>"), "text/xml")}
    reply = editable.http.post("/v1/stores/client/import", files=file)
    job = finished(editable, reply.json()["id"])
    assert (job["state"], job["origin"]) == ("failed", "bad.tmx")
    assert job["error"].startswith("bad.tmx")
    assert "/" not in job["error"]
    unknown = {"file": ("what.bin", io.BytesIO(b"x"), "text/xml")}
    assert editable.http.post("/v1/stores/client/import", files=unknown).json()["error"]["code"] == "bad_format"


def test_changes_on_disk_are_seen_without_a_restart(client, store_copy, toy_model):
    with running(settings_for(store_copy)) as server:
        assert "spreadsheet" in server.translate(SOURCE)
        Store(store_copy, model=toy_model).add([(SOURCE, "the window is open .")])
        assert server.translate(SOURCE) == "the window is open ."


def test_stores_share_a_model_and_can_be_searched_together(client, store_copy, toy_model):
    Store(store_copy, model=toy_model).add([(SOURCE, "the window is open .")])
    settings = settings_for(client.store, stores={"house": client.store, "client": store_copy})
    with running(settings) as server:
        assert len(server.context.registry.runners) == 1
        assert "spreadsheet" in server.translate(SOURCE)
        assert server.translate(SOURCE, store="client") == "the window is open ."
        assert server.translate(SOURCE, stores=["house", "client"]) == "the window is open ."
        reply = server.post("/v1/translate", {"text": SOURCE, "store": "house", "stores": ["client"]})
        assert reply.status_code == 400


def test_status_routes(server):
    assert server.http.get("/v1/health").json() == {"status": "ok"}
    assert server.http.get("/v1/ready").json() == {"ready": True, "stores": {"client": "ready"}}
    assert server.http.get("/v1/version").json()["api"] == "v1"
    server.translate(SOURCE)
    numbers = server.http.get("/metrics").text
    assert 'nearmt_requests_total{method="POST",route="/v1/translate",status="200"}' in numbers
    assert 'nearmt_store_sentences{store="client"} 500.0' in numbers
    assert "nearmt_tokens_total" in numbers
    assert server.http.get("/docs").status_code == 404


def test_concurrent_requests_get_their_own_results(server, client):
    sources = [source for source, _ in client.test_pairs[:40]]
    alone = {found.source: found.text for found in Translator(client.store).translate(sources)}
    wrong: list[str] = []

    def translate(mine: list[str]) -> None:
        wrong.extend(source for source in mine if server.translate(source) != alone[source])

    threads = [threading.Thread(target=translate, args=(sources[start::8],)) for start in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    sizes = server.http.get("/metrics").text
    assert 'nearmt_batch_sentences_bucket{le="1.0"}' in sizes
