"""Batching across requests: results do not mix, requests take turns, and only a faulty request fails."""

import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearmt.server.service.batching import Batcher, QueueFullError
from nearmt.server.service.queue import FairQueue, QueuedRequest
from nearmt.server.settings import BatchingSettings
from serving import Running, running, settings_for


class Decoder:
    """Returns texts in upper case; can be blocked, and fails on bad texts."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.may_run = threading.Event()
        self.may_run.set()
        self.has_begun = threading.Event()

    def __call__(self, options, texts, wants_evidence):
        self.batches.append(list(texts))
        self.has_begun.set()
        assert self.may_run.wait(10)
        if any("bad" in text for text in texts):
            raise ValueError("a bad text")
        return [f"{options}:{text.upper()}" for text in texts]


class Client:
    def __init__(self, decode: Decoder, max_queued: int = 1000, **settings) -> None:
        self.batcher = Batcher(decode, BatchingSettings(**{"gather_ms": 2, **settings}), max_queued)

    def submit(self, *texts: str, options: str = "r") -> tuple[QueuedRequest, threading.Event]:
        done = threading.Event()
        request = QueuedRequest(options, texts, lambda request: done.set())
        self.batcher.submit(request)
        return request, done

    def translate(self, *texts: str, options: str = "r") -> list[str]:
        request, done = self.submit(*texts, options=options)
        assert done.wait(10)
        if request.error is not None:
            raise request.error
        return request.results


@pytest.fixture
def decoder():
    return Decoder()


@pytest.fixture
def service(decoder):
    found = Client(decoder, max_sentences=4)
    yield found
    decoder.may_run.set()
    found.batcher.close(10)


def block(decoder: Decoder, service: Client) -> None:
    """Keep the decoder busy with another request."""
    decoder.may_run.clear()
    decoder.has_begun.clear()
    service.submit("first")
    assert decoder.has_begun.wait(10)


def test_each_request_gets_its_own_results_in_order(decoder, service):
    block(decoder, service)
    requests = [service.submit(f"a{n}", f"longer b{n}", f"c{n}") for n in range(9)]
    decoder.may_run.set()
    for number, (request, done) in enumerate(requests):
        assert done.wait(10)
        assert request.results == [f"r:A{number}", f"r:LONGER B{number}", f"r:C{number}"]
    assert max(map(len, decoder.batches)) == 4


def test_requests_with_different_options_do_not_share_a_batch(decoder, service):
    block(decoder, service)
    waiting = [service.submit(f"t{n}", options="rs"[n % 2]) for n in range(8)]
    decoder.may_run.set()
    assert all(done.wait(10) for _, done in waiting)
    assert [request.results[0] for request, _ in waiting] == [f"{'rs'[n % 2]}:T{n}" for n in range(8)]
    assert all(len({int(text[1:]) % 2 for text in batch}) == 1 for batch in decoder.batches[1:])


def test_a_long_request_does_not_block_a_short_one(decoder, service):
    block(decoder, service)
    long, _ = service.submit(*[f"long {n:03}" for n in range(400)])
    _, done = service.submit("short")
    decoder.may_run.set()
    assert done.wait(10)
    served = next(number for number, batch in enumerate(decoder.batches) if "short" in batch)
    assert served <= 2
    assert not long.is_done
    service.batcher.cancel(long)


def test_a_cancelled_request_leaves_the_queue(decoder):
    service = Client(decoder, max_queued=10, max_sentences=4)
    block(decoder, service)
    request, _ = service.submit(*["x"] * 10)
    with pytest.raises(QueueFullError) as caught:
        service.submit("one more")
    assert 1 <= caught.value.retry_after <= 60
    service.batcher.cancel(request)
    assert service.batcher.num_queued == 0
    _, done = service.submit("one more")
    decoder.may_run.set()
    assert done.wait(10)
    assert not any("x" in batch for batch in decoder.batches)
    service.batcher.close(10)


def test_only_the_faulty_request_of_a_batch_fails(decoder, service):
    block(decoder, service)
    good, good_done = service.submit("good one", "good two")
    bad, bad_done = service.submit("good", "bad")
    decoder.may_run.set()
    assert good_done.wait(10)
    assert good.results == ["r:GOOD ONE", "r:GOOD TWO"]
    assert bad_done.wait(10)
    assert isinstance(bad.error, ValueError)
    assert service.translate("after") == ["r:AFTER"]


def test_closing_decodes_what_is_queued(decoder, service):
    block(decoder, service)
    waiting = [service.submit(f"t{n}") for n in range(20)]
    decoder.may_run.set()
    service.batcher.close(10)
    assert all(done.is_set() for _, done in waiting)


@given(
    lengths=st.lists(st.lists(st.integers(1, 60), min_size=1, max_size=8), min_size=1, max_size=8),
    most=st.integers(1, 6),
    padded=st.integers(1, 200),
)
def test_every_sentence_is_taken_once_and_batches_keep_to_the_limits(lengths, most, padded):
    queue = FairQueue(most, padded)
    requests = [QueuedRequest("r", ["x" * length for length in found], lambda request: None) for found in lengths]
    for request in requests:
        queue.add(request)
    taken = []
    for _ in range(sum(map(len, lengths)) + 1):
        first = next((request for request in queue._requests if request.num_waiting), None)
        batch = queue.next_batch()
        if not batch:
            break
        assert batch[0].request is first
        assert len(batch) <= most
        assert len(batch) == 1 or max(len(sentence.text) for sentence in batch) * len(batch) <= padded
        taken += [(id(sentence.request), sentence.number) for sentence in batch]
    assert sorted(taken) == sorted((id(request), n) for request in requests for n in range(len(request.sentences)))
    assert len(queue) == 0


SOURCE = "heute öffnet die tabelle die große zelle ."


def slow_down(server: Running, seconds: float) -> list[list[str]]:
    """Make decoding slow; returns the list of batches."""
    (runner,) = server.context.registry.runners
    batches: list[list[str]] = []
    decode = runner.batcher._decode

    def slow(options, texts, wants_evidence):
        batches.append(list(texts))
        time.sleep(seconds)
        return decode(options, texts, wants_evidence)

    runner.batcher._decode = slow
    return batches


def test_a_full_queue_answers_503_and_a_time_limit_504(client):
    limits = {"max_queued_sentences": 2, "time_limit_seconds": 0.5}
    with running(settings_for(client.store, limits=limits, batching={"max_sentences": 1})) as server:
        slow_down(server, 0.4)
        statuses, replies = [], []

        def translate() -> None:
            reply = server.post("/v1/translate", {"text": [SOURCE, SOURCE]})
            statuses.append(reply.status_code)
            replies.append(reply)

        threads = [threading.Thread(target=translate) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert set(statuses) == {503, 504}
        full = next(reply for reply in replies if reply.status_code == 503)
        assert full.json()["error"]["code"] == "queue_full"
        assert int(full.headers["retry-after"]) >= 1
        late = next(reply for reply in replies if reply.status_code == 504)
        assert late.json()["error"] == {"code": "time_limit", "message": "the translation took longer than 0.5 seconds"}


def test_a_client_that_disconnects_leaves_the_queue(client):
    import httpx

    with running(settings_for(client.store, batching={"max_sentences": 1})) as server:
        batches = slow_down(server, 0.2)
        (runner,) = server.context.registry.runners
        with pytest.raises(httpx.ReadTimeout):
            server.post("/v1/translate", {"text": ["die zelle ."] * 50}, timeout=0.3)
        until = time.monotonic() + 5
        while runner.batcher.num_queued and time.monotonic() < until:
            time.sleep(0.01)
        assert runner.batcher.num_queued == 0
        assert len(batches) < 10
        assert "spreadsheet" in server.translate(SOURCE)
