"""Retrieval by sentences: terms, the choice of sentences, and the index on disk and in memory."""

import tempfile
import time
import zlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearmt.datastore import Snapshot
from nearmt.errors import StoreDamagedError
from nearmt.retrieval import arrays
from nearmt.retrieval.arrays import ArrayFile
from nearmt.retrieval.sentences import building, segments, selection
from nearmt.retrieval.sentences import index as index_module
from nearmt.retrieval.sentences.building import build_sentence_index, merged
from nearmt.retrieval.sentences.index import MAX_ENTRIES, SentenceIndex
from nearmt.retrieval.sentences.segments import Segment, load_segment
from nearmt.retrieval.sentences.terms import terms_of, terms_of_all
from properties import examples
from synthetic_stores import clustered, extended, make_store

WORDS = ["der", "die", "Zelle", "Tabelle", "öffnet", "Bild", "groß", "klein", "rot", "7", "und"]
texts_of_words = st.lists(st.sampled_from(WORDS), min_size=1, max_size=9).map(" ".join)


class Stored:
    """The parts of a snapshot that the index of sentences uses."""

    def __init__(self, texts, sizes=None):
        self.texts = list(texts)
        counts = np.array(sizes if sizes is not None else [3] * len(self.texts), np.int64)
        self.sentence_sizes = counts
        self.sentences = np.zeros(len(self.texts), [("first_entry", "<i8")])
        self.sentences["first_entry"] = np.cumsum(counts) - counts
        self.manifest = SimpleNamespace(created_at="2026", generation=1, sentence_index=None)

    def sides(self, number):
        return self.texts[number], "target"


def index_of(texts, sizes=None) -> SentenceIndex:
    return SentenceIndex(cast(Snapshot, Stored(texts, sizes)))


def chosen(texts, query, allowed=None, max_entries=MAX_ENTRIES, sizes=None):
    mask = np.ones(len(texts), bool) if allowed is None else np.asarray(allowed)
    return index_of(texts, sizes).select(query, mask, max_entries).tolist()


def ngrams(text, most=4):
    terms = terms_of(text).tolist()
    return {tuple(terms[i : i + n]) for n in range(1, most + 1) for i in range(len(terms) - n + 1)}


# Terms


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Die Zelle, die rot ist!", "die zelle die rot ist"),
        ("Kapitel 7", "Kapitel 1234"),
        ("GROSSE Straße", "große STRASSE"),
        ("ﬁle Ａ", "file a"),
        ("x\u00a0y", "x y"),
        ("12,5 kg", "3.75 kg"),
    ],
)
def test_texts_that_differ_in_form_only_have_the_same_terms(one, other):
    assert terms_of(one).tolist() == terms_of(other).tolist()
    assert terms_of(one).dtype == np.uint32


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", 0),
        (" \n ", 0),
        ("ein Wort", 2),
        ("你好世界", 4),
        ("日本語の本", 5),
        ("ที่นี่", 6),
        ("한국어 책", 2),
        ("A你B", 3),
        ("abc12def", 3),
        ("हिन्दी में", 2),
        ("کتاب\u200cها", 1),
        ("\ud800 x", 1),
        ("naïve", 1),
    ],
)
def test_words_numbers_and_characters_without_spaces_are_terms(text, count):
    assert len(terms_of(text)) == count


def test_punctuation_is_a_term_only_where_there_is_nothing_else():
    assert len(terms_of("?!")) == 2
    assert terms_of("?!").tolist() != terms_of("!?").tolist()
    assert len(terms_of("a ?!")) == 1


def test_different_words_have_different_terms():
    words = ["rot", "röt", "Rote", "你", "好", "कि", "की", "ก", "ข", "0", "null", "kg", "café", "caf"]
    assert len({tuple(terms_of(word).tolist()) for word in words}) == len(words)


@examples(60)
@given(st.lists(st.text(max_size=12), max_size=6))
def test_any_text_has_terms_one_after_the_other(texts):
    terms, starts = terms_of_all(texts)
    assert starts[0] == 0
    assert starts[-1] == len(terms)
    for number, text in enumerate(texts):
        assert terms[starts[number] : starts[number + 1]].tolist() == terms_of(text).tolist()


def test_terms_are_the_same_on_every_machine():
    assert terms_of("die Zelle 42").tolist() == [zlib.crc32(word) for word in (b"die", b"zelle", b"0")]


# Selection


@examples(80)
@given(st.lists(texts_of_words, min_size=1, max_size=25), st.data())
def test_the_first_choice_has_all_that_a_stored_text_has(texts, data):
    query = data.draw(st.sampled_from(texts))
    (first,) = chosen(texts, query, max_entries=1)
    assert ngrams(query) <= ngrams(texts[first])


def test_a_text_of_two_halves_finds_both_sentences():
    one, other = "eins zwei drei vier fünf sechs", "uno dos tres cuatro cinco seis"
    others = [f"wort{i} zwei ding{i} tres" for i in range(30)]
    texts = [one, *others, other]
    assert chosen(texts, "eins zwei drei cuatro cinco seis", max_entries=6) == [0, 31]
    assert chosen(texts, "fünf sechs uno dos", max_entries=6) == [0, 31]


def test_covered_ngrams_count_less():
    shared, counts = np.array([0, 1, 0, 1, 2], np.int32), np.array([2, 2, 1])
    weights, costs = np.array([1, 1, 1.5], np.float32), np.ones(3, np.int64)

    def order(decay):
        return selection.cover(shared, counts, weights, costs, np.float32(decay), 99).tolist()

    assert order(0.7) == [1, 2, 0]
    assert order(1.0) == [1, 0, 2]
    assert order(0.0) == [1, 2], "what is covered adds nothing"


def reference_cover(shared, weights, costs, decay, max_cost):
    """Greedy choice with all gains computed anew each time; of equals the last."""
    found: list[int] = []
    current, spent = weights.copy(), 0
    while len(found) < len(shared) and spent < max_cost:
        gains = [
            np.float32(0) if number in found else _total(current, own) / np.float32(costs[number])
            for number, own in enumerate(shared)
        ]
        best = max(range(len(gains)), key=lambda number: (gains[number], number))
        if gains[best] <= 0:
            break
        found.append(best)
        spent += costs[best]
        current[shared[best]] *= decay
    return found


def _total(weights, numbers):
    total = np.float32(0)
    for number in numbers:
        total += weights[number]
    return total


@examples(100)
@given(st.data())
def test_the_greedy_choice_equals_one_that_computes_every_gain(data):
    num_ngrams = data.draw(st.integers(1, 6))
    subsets = st.lists(st.integers(0, num_ngrams - 1), unique=True, max_size=num_ngrams)
    shared = [np.array(own, np.int32) for own in data.draw(st.lists(subsets, min_size=1, max_size=8))]
    weights = np.array(data.draw(st.lists(st.sampled_from([0.5, 1, 2]), min_size=num_ngrams, max_size=num_ngrams)))
    costs = np.array([data.draw(st.sampled_from([1, 2, 4])) for _ in shared])  # powers of two, so all gains are exact
    budget = data.draw(st.integers(0, 12))
    decay = np.float32(data.draw(st.sampled_from([0.0, 0.5, 1.0])))
    counts = np.array([len(own) for own in shared])
    got = selection.cover(np.concatenate(shared), counts, weights.astype(np.float32), costs, decay, budget)
    assert got.tolist() == reference_cover(shared, weights.astype(np.float32), costs, decay, budget)


@examples(60)
@given(st.lists(st.tuples(texts_of_words, st.integers(1, 9)), min_size=1, max_size=25), texts_of_words, st.data())
def test_the_budget_is_reached_by_the_last_sentence_at_most(stored, query, data):
    texts, sizes = zip(*stored, strict=True)
    budget = data.draw(st.integers(1, 40))
    found = chosen(texts, query, max_entries=budget, sizes=sizes)
    related = [number for number, text in enumerate(texts) if ngrams(text, 2) & ngrams(query, 2)]
    assert set(found) <= set(related)
    total = sum(sizes[number] for number in found)
    assert total < budget + max(sizes)
    assert total >= budget or found == related, "everything that shares a word"


@examples(60)
@given(st.lists(st.tuples(texts_of_words, st.booleans()), min_size=1, max_size=25), texts_of_words)
def test_sentences_that_are_not_allowed_are_never_chosen(stored, query):
    texts, allowed = zip(*stored, strict=True)
    found = chosen(texts, query, allowed)
    assert all(allowed[number] for number in found)
    related = [i for i, text in enumerate(texts) if allowed[i] and ngrams(text, 1) & ngrams(query, 1)]
    assert found == related


def test_unknown_words_and_empty_texts_find_nothing():
    for query in ("völlig neu", "", "?"):
        assert chosen(["die rote Zelle", "das Bild"], query) == []
    assert chosen([], "die Zelle") == []
    assert chosen(["", "?!", "das Bild"], "die Zelle") == []
    assert chosen(["", "?!", "das Bild"], "?") == [1]


def test_the_newest_of_equals_are_chosen(monkeypatch):
    texts = ["die rote Zelle"] * 700
    found = chosen(texts, "die rote Zelle", max_entries=10**6)
    assert found == list(range(700 - len(found), 700))
    assert 64 <= len(found) < 100  # what is covered that often gains nothing from another copy
    assert chosen(texts, "die rote Zelle", max_entries=6) == [698, 699]
    monkeypatch.setattr(index_module, "_POSTINGS", 100)
    assert chosen(texts, "Zelle", max_entries=10**6)[-1] == 699
    assert min(chosen(texts, "Zelle", max_entries=10**6)) >= 600


def test_rare_words_decide_which_sentences_are_compared(monkeypatch):
    monkeypatch.setattr(index_module, "_CANDIDATES", 5)
    texts = [f"die Zelle {word}" for word in ("rot", "blau")] + ["die Zelle"] * 50
    assert 0 in chosen(texts, "die Zelle rot")
    assert len(chosen(texts, "die Zelle rot")) == 5


def test_frequent_ngrams_are_not_read_where_rarer_ones_are_enough(monkeypatch):
    texts = ["die Zelle"] * 50 + ["die Zelle rot"]
    assert len(chosen(texts, "die Zelle rot")) == 51
    monkeypatch.setattr(index_module, "_POSTINGS", 10)
    assert chosen(texts, "die Zelle rot") == [50]


# Segments


def in_pieces(texts, steps, size):
    """The index of a store that grew in steps, with segments of this size in memory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index_module, "_IN_MEMORY", size)
        index = index_of(texts[: steps[0]])
        for end in [*steps[1:], len(texts)]:
            index = index.following(cast(Snapshot, Stored(texts[:end])))
    return index


@examples(60)
@given(
    st.lists(texts_of_words, min_size=1, max_size=40),
    st.lists(texts_of_words, min_size=1, max_size=4),
    st.lists(st.integers(0, 40), min_size=1, max_size=5),
    st.integers(1, 7),
    st.sampled_from([4, 30_000]),
    st.data(),
)
def test_an_index_in_pieces_chooses_the_same_sentences(texts, queries, steps, size, postings, data):
    allowed = np.array(data.draw(st.lists(st.booleans(), min_size=len(texts), max_size=len(texts))))
    steps = sorted(min(step, len(texts)) for step in steps)
    pieces, whole = in_pieces(texts, steps, size), index_of(texts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index_module, "_POSTINGS", postings)
        patch.setattr(index_module, "_CANDIDATES", 6)
        for query in queries:
            for budget in (4, MAX_ENTRIES):
                found = [index.select(query, allowed, budget).tolist() for index in (pieces, whole)]
                assert found[0] == found[1]


def test_segments_in_memory_are_joined_and_stay_few():
    texts = [f"{word} {number}" for number in range(60) for word in WORDS]
    index = in_pieces(texts, list(range(1, len(texts), 13)), 4)
    assert len(index._segments) <= 12
    assert len(index._rest) < 4
    assert sum(map(len, index._segments)) + len(index._rest) == len(texts)
    assert [segment.first for segment in index._segments[1:]] == [segment.end for segment in index._segments[:-1]]


def test_an_index_is_kept_for_later_snapshots_of_the_same_data_only():
    later = cast(Any, Stored(["die Zelle"] * 6))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index_module, "_IN_MEMORY", 2)
        index = index_of(["die Zelle"] * 4)
        assert index.following(later)._segments[0] is index._segments[0]
        later.manifest.generation = 2
        assert index.following(later)._segments[0] is not index._segments[0]


# Files


def indexed(folder: Path, texts: list[str]) -> Snapshot:
    """A store whose sentence index is in files."""
    snapshot = make_store(folder, clustered(len(texts), 4), sources=texts, retrieval="sentences")
    record = build_sentence_index(snapshot, "index-x")
    snapshot.manifest.changed(sentence_index=record).save(folder)
    return Snapshot.open(folder)


@examples(15)
@given(st.lists(texts_of_words, min_size=1, max_size=20), st.lists(texts_of_words, max_size=6), texts_of_words)
def test_an_index_in_files_with_additions_chooses_the_same_sentences(texts, added, query):
    with tempfile.TemporaryDirectory() as name:
        snapshot = indexed(Path(name), texts)
        before = SentenceIndex.open(snapshot)
        if added:
            snapshot = extended(Path(name), clustered(len(added), 4), [], added)
        everything = np.ones(len(texts) + len(added), bool)
        expected = chosen([*texts, *added], query, sizes=[1] * len(everything))
        assert SentenceIndex.open(snapshot).select(query, everything).tolist() == expected
        assert before.following(snapshot).select(query, everything).tolist() == expected


def saved(segment: Segment, folder: Path) -> dict[str, bytes]:
    """The files of a segment as NumPy writes them."""
    types = {"terms": "<u4", "starts": "<i8", "ngrams": "<u4", "begins": "<i8", "postings": "<u4"}
    for name, dtype in types.items():
        np.save(folder / f"x-{name}.npy", getattr(segment, name).astype(dtype))
    return {f"index-x-{name}.npy": (folder / f"x-{name}.npy").read_bytes() for name in types}


@examples(60)
@given(st.lists(texts_of_words | st.just(""), min_size=1, max_size=30), st.integers(1, 12), st.integers(1, 40))
def test_an_index_built_in_parts_has_the_same_files_as_one_sorted_at_once(texts, read, run):
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        folder = Path(name) / "s"
        snapshot = make_store(folder, clustered(len(texts), 4), sources=texts, retrieval="sentences")
        patch.setattr(segments, "_READ", read)
        patch.setattr(building, "_RUN", run)
        record = build_sentence_index(snapshot, "index-x")
        files = {path.name: path.read_bytes() for path in folder.glob("index-*")}
        assert files == saved(Segment.of(0, *terms_of_all(texts)), Path(name)), "and no other file is left"
        assert files.keys() == record.files.keys()
        assert record.num_sentences == len(texts)
        assert record.bytes == sum(map(len, files.values()))


@examples(60)
@given(st.lists(st.integers(0, 2**64 - 1), unique=True, max_size=60), st.integers(1, 70), st.data())
def test_runs_are_merged_in_order_and_in_small_pieces(numbers, size, data):
    owners = data.draw(st.lists(st.integers(0, 4), min_size=len(numbers), max_size=len(numbers)))
    runs = [
        np.sort(np.array([number for number, owner in zip(numbers, owners, strict=True) if owner == run], np.uint64))
        for run in range(5)
    ]
    pieces = list(merged(runs, size))
    assert np.concatenate([np.zeros(0, np.uint64), *pieces]).tolist() == sorted(numbers)
    assert all(0 < len(piece) <= max(size, sum(1 for run in runs if len(run))) for piece in pieces)


def test_building_reports_progress_while_it_reads_and_while_it_sorts(tmp_path, monkeypatch):
    monkeypatch.setattr(segments, "_READ", 10)
    monkeypatch.setattr(building, "_RUN", 40)
    texts = [f"{WORDS[i % 7]} {WORDS[i % 5]}" for i in range(50)]
    snapshot = make_store(tmp_path / "s", clustered(50, 4), sources=texts)
    seen: list[tuple[str, int, int | None]] = []
    build_sentence_index(snapshot, "index-x", lambda *report: seen.append(report))
    assert seen[:5] == [("indexing", done, 50) for done in (10, 20, 30, 40, 50)]
    sorting = [(done, total) for stage, done, total in seen[5:] if stage == "sorting"]
    total = len(np.load(tmp_path / "s" / "index-x-postings.npy"))
    assert len(sorting) == len(seen) - 5 >= 3
    assert sorting == sorted(sorting)
    assert sorting[-1] == (total, total)


def test_a_build_that_fails_leaves_no_sorted_runs(tmp_path, monkeypatch):
    snapshot = make_store(tmp_path / "s", clustered(2, 4), sources=["die rote Zelle", "das Bild"])
    monkeypatch.setattr(building, "merged", lambda *_: (_ for _ in ()).throw(OSError("no")))
    with pytest.raises(OSError, match="no"):
        build_sentence_index(snapshot, "index-x")
    assert not list((tmp_path / "s").glob("*.tmp"))


def test_an_array_is_written_as_numpy_writes_it(tmp_path):
    parts = [np.arange(count) for count in (3, 0, 5000)]
    with ArrayFile(tmp_path / "a.npy", "<u4") as file:
        for part in parts:
            file.append(part)
    np.save(tmp_path / "b.npy", np.concatenate(parts).astype("<u4"))
    assert (tmp_path / "a.npy").read_bytes() == (tmp_path / "b.npy").read_bytes()


def test_files_are_checked_again_only_after_a_change(tmp_path, monkeypatch):
    snapshot = indexed(tmp_path / "s", ["die rote Zelle", "das Bild"])
    checked: list[str] = []
    check = arrays.check_file

    def counted(path: Path, checksum: str) -> None:
        checked.append(path.name)
        check(path, checksum)

    monkeypatch.setattr(arrays, "check_file", counted)
    SentenceIndex.open(snapshot)
    SentenceIndex.open(snapshot)
    assert sorted(checked) == sorted(snapshot.manifest.index_files)
    path = tmp_path / "s" / "index-x-terms.npy"
    time.sleep(0.02)  # the clock of the file system is coarse
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(StoreDamagedError, match=r"terms.npy was changed"):
        SentenceIndex.open(snapshot)


def test_sentences_whose_entries_overlap_are_refused(tmp_path):
    snapshot = indexed(tmp_path / "s", ["die rote Zelle", "das Bild", "die Zelle"])
    path = tmp_path / "s" / snapshot.manifest.data_folder / "sentences.bin"
    table = np.fromfile(path, snapshot.sentences.dtype)
    table["first_entry"][1] = 10**12
    path.write_bytes(table.tobytes())
    with pytest.raises(StoreDamagedError, match=r"sentences.bin is damaged"):
        SentenceIndex.open(Snapshot.open(snapshot.folder))


def test_an_empty_store_has_an_empty_index(tmp_path):
    snapshot = make_store(tmp_path / "s", np.zeros((0, 4)))
    snapshot.manifest.changed(sentence_index=build_sentence_index(snapshot, "index-x")).save(tmp_path / "s")
    index = SentenceIndex.open(Snapshot.open(tmp_path / "s"))
    assert index.select("die Zelle", np.zeros(0, bool)).tolist() == []
    later = extended(tmp_path / "s", clustered(1, 4), [], ["die Zelle"])
    assert index.following(later).select("die Zelle", np.ones(1, bool)).tolist() == [0]


@pytest.mark.parametrize("part", ["terms", "starts", "ngrams", "begins", "postings"])
@pytest.mark.parametrize("how", ["flipped", "cut", "missing"])
def test_a_damaged_file_is_named(tmp_path, part, how):
    snapshot = indexed(tmp_path / "s", ["die rote Zelle", "das Bild"])
    path = tmp_path / "s" / f"index-x-{part}.npy"
    content = path.read_bytes()
    if how == "missing":
        path.unlink()
    else:
        path.write_bytes(content[:-1] + (bytes([content[-1] ^ 1]) if how == "flipped" else b""))
    with pytest.raises(StoreDamagedError, match=rf"{path.name} .*verify"):
        SentenceIndex.open(snapshot)


def test_a_record_without_a_file_is_refused(tmp_path):
    snapshot = indexed(tmp_path / "s", ["die rote Zelle", "das Bild"])
    record = snapshot.manifest.sentence_index
    assert record is not None
    few = dict(list(record.files.items())[:-1])
    with pytest.raises(StoreDamagedError, match="incomplete: run nearmt verify"):
        load_segment(snapshot.folder, type(record)(record.num_sentences, few, record.bytes))
