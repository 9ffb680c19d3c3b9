"""Batching across requests: nothing mixes, nobody starves, a fault stays with whom it belongs to."""

import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearmt.server.service.batching import Batcher, QueueFullError
from nearmt.server.service.queue import FairQueue, Order
from nearmt.server.settings import BatchingSettings
from serving import Running, running, settings_for


class Decoder:
    """Shouts texts; can be held back, and falls over bad ones."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.goes = threading.Event()
        self.goes.set()
        self.began = threading.Event()

    def __call__(self, options, texts, wants_evidence):
        self.batches.append(list(texts))
        self.began.set()
        assert self.goes.wait(10)
        if any("bad" in text for text in texts):
            raise ValueError("a bad text")
        return [f"{options}:{text.upper()}" for text in texts]


class Service:
    def __init__(self, decode: Decoder, max_queued: int = 1000, **settings) -> None:
        self.batcher = Batcher(decode, BatchingSettings(**{"gather_ms": 2, **settings}), max_queued)

    def order(self, *texts: str, options: str = "r") -> tuple[Order, threading.Event]:
        done = threading.Event()
        order = Order(options, texts, lambda order: done.set())
        self.batcher.submit(order)
        return order, done

    def ask(self, *texts: str, options: str = "r") -> list[str]:
        order, done = self.order(*texts, options=options)
        assert done.wait(10)
        if order.error is not None:
            raise order.error
        return order.results


@pytest.fixture
def decoder():
    return Decoder()


@pytest.fixture
def service(decoder):
    found = Service(decoder, max_sentences=4)
    yield found
    decoder.goes.set()
    found.batcher.close(10)


def held(decoder: Decoder, service: Service) -> None:
    """Keep the decoder busy with something else."""
    decoder.goes.clear()
    decoder.began.clear()
    service.order("first")
    assert decoder.began.wait(10)


def test_each_request_gets_its_own_results_in_order(decoder, service):
    held(decoder, service)
    orders = [service.order(f"a{n}", f"longer b{n}", f"c{n}") for n in range(9)]
    decoder.goes.set()
    for number, (order, done) in enumerate(orders):
        assert done.wait(10)
        assert order.results == [f"r:A{number}", f"r:LONGER B{number}", f"r:C{number}"]
    assert max(map(len, decoder.batches)) == 4


def test_requests_of_different_recipes_are_not_decoded_together(decoder, service):
    held(decoder, service)
    waiting = [service.order(f"t{n}", options="rs"[n % 2]) for n in range(8)]
    decoder.goes.set()
    assert all(done.wait(10) for _, done in waiting)
    assert [order.results[0] for order, _ in waiting] == [f"{'rs'[n % 2]}:T{n}" for n in range(8)]
    assert all(len({int(text[1:]) % 2 for text in batch}) == 1 for batch in decoder.batches[1:])


def test_a_long_request_does_not_keep_a_short_one_waiting(decoder, service):
    held(decoder, service)
    long, _ = service.order(*[f"long {n:03}" for n in range(400)])
    _, done = service.order("short")
    decoder.goes.set()
    assert done.wait(10)
    served = next(number for number, batch in enumerate(decoder.batches) if "short" in batch)
    assert served <= 2
    assert not long.is_over
    service.batcher.cancel(long)


def test_a_request_that_is_cancelled_frees_its_place(decoder):
    service = Service(decoder, max_queued=10, max_sentences=4)
    held(decoder, service)
    order, _ = service.order(*["x"] * 10)
    with pytest.raises(QueueFullError) as caught:
        service.order("one more")
    assert 1 <= caught.value.retry_after <= 60
    service.batcher.cancel(order)
    assert service.batcher.num_queued == 0
    _, done = service.order("one more")
    decoder.goes.set()
    assert done.wait(10)
    assert not any("x" in batch for batch in decoder.batches)
    service.batcher.close(10)


def test_one_bad_request_does_not_hurt_its_neighbours(decoder, service):
    held(decoder, service)
    good, good_done = service.order("good one", "good two")
    bad, bad_done = service.order("good", "bad")
    decoder.goes.set()
    assert good_done.wait(10)
    assert good.results == ["r:GOOD ONE", "r:GOOD TWO"]
    assert bad_done.wait(10)
    assert isinstance(bad.error, ValueError)
    assert service.ask("after") == ["r:AFTER"]


def test_closing_decodes_what_is_queued(decoder, service):
    held(decoder, service)
    waiting = [service.order(f"t{n}") for n in range(20)]
    decoder.goes.set()
    service.batcher.close(10)
    assert all(done.is_set() for _, done in waiting)


@given(
    lengths=st.lists(st.lists(st.integers(1, 60), min_size=1, max_size=8), min_size=1, max_size=8),
    most=st.integers(1, 6),
    padded=st.integers(1, 200),
)
def test_every_sentence_is_taken_once_in_batches_that_fit(lengths, most, padded):
    queue = FairQueue(most, padded)
    orders = [Order("r", ["x" * length for length in found], lambda order: None) for found in lengths]
    for order in orders:
        queue.add(order)
    taken = []
    for _ in range(sum(map(len, lengths)) + 1):
        first = next((order for order in queue._orders if order.num_waiting), None)
        batch = queue.next_batch()
        if not batch:
            break
        assert batch[0].order is first
        assert len(batch) <= most
        assert len(batch) == 1 or max(len(piece.text) for piece in batch) * len(batch) <= padded
        taken += [(id(piece.order), piece.number) for piece in batch]
    assert sorted(taken) == sorted((id(order), n) for order in orders for n in range(len(order.sentences)))
    assert queue.is_empty


SOURCE = "heute öffnet die tabelle die große zelle ."


def slowed(server: Running, seconds: float) -> list[list[str]]:
    """Make decoding slow; the batches it gets."""
    (engine,) = server.context.registry.engines
    batches: list[list[str]] = []
    decode = engine.batcher._decode

    def slow(options, texts, wants_evidence):
        batches.append(list(texts))
        time.sleep(seconds)
        return decode(options, texts, wants_evidence)

    engine.batcher._decode = slow
    return batches


def test_a_full_queue_answers_503_and_a_time_limit_504(client):
    limits = {"max_queued_sentences": 2, "time_limit_seconds": 0.5}
    with running(settings_for(client.store, limits=limits, batching={"max_sentences": 1})) as server:
        slowed(server, 0.4)
        statuses, replies = [], []

        def ask() -> None:
            reply = server.post("/v1/translate", {"text": [SOURCE, SOURCE]})
            statuses.append(reply.status_code)
            replies.append(reply)

        threads = [threading.Thread(target=ask) for _ in range(6)]
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


def test_a_client_that_goes_away_frees_its_place(client):
    import httpx

    with running(settings_for(client.store, batching={"max_sentences": 1})) as server:
        batches = slowed(server, 0.2)
        (engine,) = server.context.registry.engines
        with pytest.raises(httpx.ReadTimeout):
            server.post("/v1/translate", {"text": ["die zelle ."] * 50}, timeout=0.3)
        until = time.monotonic() + 5
        while engine.batcher.num_queued and time.monotonic() < until:
            time.sleep(0.01)
        assert engine.batcher.num_queued == 0
        assert len(batches) < 10
        assert "spreadsheet" in server.translate(SOURCE)
