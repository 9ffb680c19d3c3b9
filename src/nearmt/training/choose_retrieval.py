"""Training for the way in which a store is searched, and choosing that way where the store allows several."""

from nearmt.datastore import BOTH, SENTENCES, TOKENS, Snapshot, TrainingRecord
from nearmt.errors import SettingError
from nearmt.evaluation.scores import close_to_best
from nearmt.methods.network import Network
from nearmt.models import Seq2Seq
from nearmt.progress import Progress, silent
from nearmt.retrieval.index.faiss_index import EXACT_UP_TO
from nearmt.retrieval.indexing import IndexSettings
from nearmt.retrieval.modes import open_retriever
from nearmt.training.devset import DevSet
from nearmt.training.train_store import AdaptationSettings, StoreTrainer

_FASTEST_FIRST = (SENTENCES, TOKENS, BOTH)


def train_for_store(
    model: Seq2Seq, snapshot: Snapshot, settings: AdaptationSettings, dev: DevSet, progress: Progress = silent
) -> tuple[dict[str, Network], TrainingRecord]:
    """Train for every retrieval that the store's indexes allow, and keep the best.

    Of those whose BLEU on the held-out sentences is within one standard error of the best, the fastest is kept. The
    paper's protocol searches tokens.
    """
    allowed = _allowed_retrievals(snapshot, settings)
    trained = [
        StoreTrainer(model, open_retriever(snapshot, retrieval), settings, progress).train_and_decode(dev)
        for retrieval in allowed
    ]
    are_close = close_to_best([one.outputs for one in trained], trained[0].references) if len(trained) > 1 else [True]
    best = next(one for one, is_close in zip(trained, are_close, strict=True) if is_close)
    return best.networks, best.record


def _allowed_retrievals(snapshot: Snapshot, settings: AdaptationSettings) -> tuple[str, ...]:
    wanted = settings.retrieval or (TOKENS if settings.paper else None)
    if wanted is None:
        built = IndexSettings.of(snapshot.manifest).retrieval
        return _FASTEST_FIRST if built == BOTH else (snapshot.manifest.retrieval,)
    if wanted != SENTENCES and snapshot.manifest.index is None and len(snapshot) > EXACT_UP_TO:
        raise SettingError(
            f"{snapshot.folder} has no index of tokens: run nearmt index {snapshot.folder} with `retrieval` {wanted}"
        )
    return (wanted,)
