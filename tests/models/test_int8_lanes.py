"""Lanes divide the work, give the same results as one thread, and leave the settings of torch alone."""

import threading
import time
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import tiny_models
from nearmt.decoding.beam import BeamSettings
from nearmt.decoding.decoder import Decoder, DecodingSettings
from nearmt.models import Seq2Seq
from nearmt.models.int8.lanes import _ALONE, Lanes

SOURCES = ["die Tabelle ist gesperrt.", "der Hund", "das kleine Haus und ein Wort nicht rot.", "wir öffnen die Datei."]


@given(st.integers(1, 8), st.integers(0, 1000), st.integers(1, 200))
def test_parts_cover_everything_once(count, total, unit):
    parts = Lanes.share(_Counted(count), total, unit)  # type: ignore[arg-type]
    assert [part.start for part in parts] == [0, *(part.stop for part in parts[:-1])]
    assert parts[-1].stop == total
    assert len(parts) <= count
    assert all(part.start % unit == 0 for part in parts)
    if total >= count * unit:
        sizes = [-(-(part.stop - part.start) // unit) for part in parts]
        assert len(parts) == count
        assert max(sizes) - min(sizes) <= 1


class _Counted:
    def __init__(self, count: int) -> None:
        self.count = count


def test_tasks_run_at_the_same_time_with_one_torch_thread_each():
    before, meeting = torch.get_num_threads(), threading.Barrier(3, timeout=10)

    def task() -> tuple[int, int]:
        return meeting.wait(), torch.get_num_threads()

    found = Lanes(3).run([task] * 3)
    assert sorted(place for place, _ in found) == [0, 1, 2]
    assert {threads for _, threads in found} == {1}
    assert torch.get_num_threads() == before


def test_a_new_thread_still_gets_all_torch_threads():
    before = torch.get_num_threads()
    Lanes(2)
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    assert found == [before]


def test_an_error_in_a_lane_reaches_the_caller():
    def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        Lanes(2).run([fail, fail])


def test_short_tasks_stay_in_the_calling_thread_for_a_while_if_waking_threads_takes_too_long():
    lanes, own = Lanes(2), threading.get_ident()

    def slow() -> int:
        time.sleep(0.02)  # takes time but no processor, as if another process had it
        return threading.get_ident()

    assert own not in lanes.run([slow, slow], are_short=True)
    quick = [threading.get_ident] * 2
    assert set(lanes.run(quick, are_short=True)) == {own}
    assert own not in lanes.run(quick), "longer tasks are not affected"
    for _ in range(_ALONE - 1):
        lanes.run(quick, are_short=True)
    assert own not in lanes.run(quick, are_short=True)


@pytest.mark.parametrize("family", ["marian", "m2m100"])
def test_the_number_of_lanes_does_not_change_the_output(family: str, tmp_path: Path):
    make, languages = tiny_models.FAMILIES[family]
    folder, threads = make(tmp_path), torch.get_num_threads()
    found = {}
    try:
        for count in (1, 2, 3, 8):
            torch.set_num_threads(count)
            model = Seq2Seq.load(folder, engine="int8", **languages)
            sources = model.tokenize_sources(SOURCES)
            states = model.force_decode(sources, model.tokenize_targets(SOURCES)).states
            decoding = DecodingSettings(beam=BeamSettings(3, num_hypotheses=3), batch_size=4)
            found[count] = Decoder(model, settings=decoding).decode(sources), states, model.project(states)
    finally:
        torch.set_num_threads(threads)
    hypotheses, states, logits = found.pop(1)
    for other_hypotheses, other_states, other_logits in found.values():
        torch.testing.assert_close(other_states, states, rtol=0, atol=1e-5)
        torch.testing.assert_close(other_logits, logits, rtol=0, atol=1e-4)
        assert [[h.token_ids for h in best] for best in other_hypotheses] == [
            [h.token_ids for h in b] for b in hypotheses
        ]
        for ours, theirs in zip(other_hypotheses, hypotheses, strict=True):
            assert [h.score for h in ours] == pytest.approx([h.score for h in theirs], abs=1e-4)
