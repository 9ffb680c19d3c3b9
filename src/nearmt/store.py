"""What a user holds: a store on disk that can be built, trained, changed, described and checked."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from nearmt import __version__
from nearmt.building.builder import Builder, BuildSettings
from nearmt.building.compaction import Compacted, compact, reindex
from nearmt.building.compatibility import ModelRequest, as_request, check_model, load_model
from nearmt.building.corrections import Batch
from nearmt.building.editing import Added, Editor, Removed
from nearmt.building.publish import publish, take_up
from nearmt.building.ray import RaySettings, ray_ingestor
from nearmt.building.repair import Repaired, repair
from nearmt.building.stats import describe
from nearmt.corpus import normalise_space, write_tmx
from nearmt.datastore import (
    Languages,
    Manifest,
    Report,
    Snapshot,
    TrainingRecord,
    build_lock,
    is_begun,
    open_finished,
    partial_folder,
    refuse_foreign,
    storage_errors,
    verify,
)
from nearmt.errors import CorpusError, SettingError, StoreError
from nearmt.models import Seq2Seq
from nearmt.progress import Progress, silent
from nearmt.retrieval.indexing import IndexSettings
from nearmt.retrieval.search import Retriever
from nearmt.training.commit import commit_training
from nearmt.training.devset import LoadedPairs, Pairs, dev_from_memory, dev_from_pairs, load_pairs
from nearmt.training.train_store import AdaptationSettings, StoreTrainer


class Store:
    """A translation memory on disk, for one model."""

    def __init__(self, folder: str | Path, *, model: Seq2Seq | None = None) -> None:
        self.folder = Path(folder).absolute()
        open_finished(self.folder)
        self._model = model
        self._editor = Editor(self.folder)

    def __repr__(self) -> str:
        manifest = self.manifest
        return f"Store({str(self.folder)!r}, {manifest.num_sentences} sentences, {manifest.num_entries} entries)"

    @property
    def manifest(self) -> Manifest:
        """The store's description as it is now."""
        return Manifest.load(self.folder)

    def snapshot(self) -> Snapshot:
        """A consistent view for reading."""
        return open_finished(self.folder)

    def train(
        self,
        dev: Pairs | None = None,
        *,
        model: Seq2Seq | ModelRequest | str | Path | None = None,
        settings: AdaptationSettings | None = None,
        format: str | None = None,
        offline: bool = False,
        engine: str | None = None,
        progress: Progress = silent,
    ) -> dict[str, Any]:
        """Learn how far to trust this memory, from a dev set or, without one, from the memory itself."""
        snapshot = self.snapshot()
        if model is None and engine is None:
            model = self._model
        if not isinstance(model, Seq2Seq):
            model = load_model(snapshot.manifest, as_request(model, offline=offline, engine=engine))
        check_model(snapshot.manifest, model, self.folder)
        pairs = load_pairs(dev, snapshot.manifest.languages, format) if dev is not None else None
        return _train(snapshot, model, pairs, settings or AdaptationSettings(), progress).as_dict()

    def add(
        self,
        pairs: Pairs,
        *,
        origin: str | None = None,
        model: Seq2Seq | ModelRequest | str | Path | None = None,
        format: str | None = None,
        offline: bool = False,
        keep_both: bool = False,
        batch: Batch | None = None,
        progress: Progress = silent,
    ) -> Added:
        """Add pairs, or correct those that are there.

        A pair with a unit id replaces the one with the same unit id, origin and source. A pair without one replaces
        those with the same source and origin, unless `keep_both` is set. Pairs of one call never replace each other;
        `batch` makes several calls one. The pairs are on disk when this returns, and the next translation uses them.
        `origin` stands for what the pairs say themselves.
        """
        manifest = self.snapshot().manifest
        loaded = load_pairs(pairs, manifest.languages, format)
        given = loaded.pairs if origin is None else [replace(pair, origin=origin) for pair in loaded.pairs]
        added = self._editor.add(given, self._load(manifest, model, offline), progress, batch or Batch(keep_both))
        return replace(added, dropped=loaded.dropped)

    def remove(
        self,
        *,
        unit_id: str | None = None,
        origin: str | None = None,
        source: str | None = None,
        target: str | None = None,
    ) -> Removed:
        """Remove the units that fit all that is given; no later translation uses them."""
        self.snapshot()
        return self._editor.remove(
            unit_id=unit_id,
            origin=origin,
            source=normalise_space(source) if source is not None else None,
            target=normalise_space(target) if target is not None else None,
        )

    def compact(self, progress: Progress = silent) -> Compacted:
        """Write what counts anew, with a new index. What was removed is in no file afterwards."""
        self.snapshot()
        return compact(self.folder, progress)

    def index(self, settings: IndexSettings | None = None, progress: Progress = silent) -> dict[str, Any]:
        """Index the memory anew, in another way or at another place; without settings as it was. Gives what it is."""
        manifest = self.snapshot().manifest
        return reindex(self.folder, settings or IndexSettings.of(manifest), progress).as_dict()

    def export_tmx(self, path: str | Path, *, overwrite: bool = False) -> int:
        """Write the memory as TMX, one unit for each place that a pair comes from; gives their number.

        A file that exists is replaced only with `overwrite`, and only by a whole one.
        """
        snapshot = self.snapshot()
        languages = snapshot.manifest.languages
        with storage_errors(Path(path)):
            return write_tmx(
                Path(path), snapshot.all_units(), languages.source or "und", languages.target or "und", __version__,
                overwrite=overwrite,
            )  # fmt: skip

    def _load(self, manifest: Manifest, model: Seq2Seq | ModelRequest | str | Path | None, offline: bool) -> Seq2Seq:
        """The model given, or the store's own, loaded once."""
        if isinstance(model, Seq2Seq):
            self._model = model
        elif model is not None or self._model is None:
            self._model = load_model(manifest, as_request(model, offline=offline))
        check_model(manifest, self._model, self.folder)
        return self._model

    def info(self) -> dict[str, Any]:
        """Counts, origins, model, index with its recall, what was learned and what is due."""
        return describe(self.snapshot())

    def verify(self) -> Report:
        """Compare every byte that counts with its checksum."""
        return verify(self.folder)

    def repair(
        self,
        *,
        model: Seq2Seq | ModelRequest | str | Path | None = None,
        offline: bool = False,
        progress: Progress = silent,
    ) -> Repaired:
        """Keep every sentence whose text can be read, and compute states that were lost with the store's model.

        See `nearmt.repair` for a store that is too damaged to be opened.
        """
        return repair(self.folder, model=model or self._model, offline=offline, progress=progress)


def _train(
    snapshot: Snapshot,
    model: Seq2Seq,
    dev: LoadedPairs | None,
    settings: AdaptationSettings,
    progress: Progress,
) -> TrainingRecord:
    if dev is None:
        dev_set = dev_from_memory(model, snapshot, settings.seed)
    else:
        dev_set = dev_from_pairs(model, snapshot, dev.pairs, dev.origin)
    networks, record = StoreTrainer(model, Retriever(snapshot), settings, progress).train(dev_set)
    if dev is not None:
        record = replace(record, trained_on=replace(record.trained_on, dropped=dev.dropped))
    return commit_training(snapshot, networks, record)


def build(
    inputs: str | Path | Sequence[str | Path],
    *,
    model: Seq2Seq | str | Path,
    out: str | Path,
    source_lang: str | None = None,
    target_lang: str | None = None,
    dev: Pairs | None = None,
    train: bool = True,
    settings: BuildSettings | None = None,
    adaptation: AdaptationSettings | None = None,
    format: str | None = None,
    resume: bool = False,
    force: bool = False,
    cluster: RaySettings | None = None,
    progress: Progress = silent,
) -> Store:
    """Build a store from a translation memory and train it.

    The store appears at `out` when it is finished; until then the work stands in `out`.partial, where `resume`
    goes on after an interruption. An existing store is replaced only with `force`, and only by a finished one.
    With `cluster` the memory is decoded by workers on Ray, and the store is the same.
    """
    out = Path(out).absolute()
    paths = [inputs] if isinstance(inputs, str | Path) else list(inputs)
    check_place(out, resume=resume, force=force)
    if dev is not None and not train:
        raise SettingError("`dev` is for training: it does not go with `train=False`")
    if isinstance(model, str | Path):
        model = Seq2Seq.load(model, source_lang=source_lang, target_lang=target_lang)
    # Read before the long work, so that a fault in it is known at once.
    pairs = load_pairs(dev, Languages(model.source_lang, model.target_lang)) if dev is not None else None
    if pairs is not None and len(pairs.pairs) < 2:
        raise SettingError(f"{pairs.origin}: training needs at least two sentences, and preferably a few hundred")
    with build_lock(out):
        take_up(out)
        partial = partial_folder(out)
        chosen = settings or BuildSettings()
        if cluster is None:
            _build(Builder(partial, model, chosen, progress), paths, format, resume)
        else:
            with ray_ingestor(model, chosen.batch_tokens, cluster, progress) as ingestor:
                _build(Builder(partial, model, chosen, progress, ingestor), paths, format, resume)
        snapshot = Snapshot.open(partial)
        can_train = pairs is not None or len(snapshot.sentences) >= 2
        if train and can_train and snapshot.manifest.adaptation is None:
            _train(snapshot, model, pairs, adaptation or AdaptationSettings(), progress)
        publish(partial, out)
    return Store(out)


def _build(builder: Builder, paths: Sequence[str | Path], format: str | None, resume: bool) -> None:
    """Decode and index. What was decoded is kept, unless the memory itself is at fault and this run began it."""
    goes_on = resume and is_begun(builder.folder)
    if goes_on:
        builder.check_resumable(paths, format)
    else:
        builder.start(paths, format)
    try:
        builder.decode(paths, format)
    except CorpusError:
        if not goes_on:
            builder.discard()  # the memory must change, so there is nothing to go on with
        raise
    builder.build_index()


def check_place(out: Path, *, resume: bool, force: bool) -> None:
    """Refuse, before any work, to write over what is there."""
    refuse_foreign(out)
    partial = partial_folder(out)
    if out.exists() and not force:
        raise StoreError(f"{out} exists: choose another place, or replace it with `force`")
    if is_begun(partial) and not resume and not force:
        raise StoreError(f"{partial} holds an unfinished build: continue it with `resume`, or start over with `force`")
