"""Public API of a store on disk: build, train, change, describe, verify and repair it."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from nearmt import __version__
from nearmt.building.builder import Builder, BuildSettings
from nearmt.building.compaction import Compacted, compact, reindex
from nearmt.building.compatibility import ModelRequest, as_request, check_model, load_model
from nearmt.building.corrections import EditBatch
from nearmt.building.editing import Added, Editor, Removed
from nearmt.building.ingest import Ingestor
from nearmt.building.publish import publish, resume_publish
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
    check_output_folder,
    open_finished,
    partial_folder,
    storage_errors,
    verify,
)
from nearmt.errors import SettingError
from nearmt.models import Seq2Seq
from nearmt.progress import Progress, silent
from nearmt.retrieval.indexing import IndexSettings
from nearmt.training.choose_retrieval import train_for_store
from nearmt.training.commit import commit_training
from nearmt.training.devset import LoadedPairs, Pairs, dev_from_memory, dev_from_pairs, load_pairs
from nearmt.training.train_store import AdaptationSettings


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
        """The manifest of the latest commit."""
        return Manifest.load(self.folder)

    def snapshot(self) -> Snapshot:
        """A read-only view of the latest commit."""
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
        """Train Meta-k and its variants, and tune the baselines, on a dev set or, without one, on the store itself."""
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
        batch: EditBatch | None = None,
        progress: Progress = silent,
    ) -> Added:
        """Add pairs, or correct stored ones.

        A pair with a unit id replaces the one with the same unit id, origin and source. A pair without one replaces
        those with the same source and origin, unless `keep_both` is set. Pairs of one call never replace each other;
        neither do those of several calls with the same `batch`. When the call returns, the pairs are on disk, and the
        next translation uses them. `origin` overrides the origins of the pairs.
        """
        manifest = self.snapshot().manifest
        loaded = load_pairs(pairs, manifest.languages, format)
        given = loaded.pairs if origin is None else [replace(pair, origin=origin) for pair in loaded.pairs]
        added = self._editor.add(given, self._load(manifest, model, offline), progress, batch or EditBatch(keep_both))
        return replace(added, dropped=loaded.dropped)

    def remove(
        self,
        *,
        unit_id: str | None = None,
        origin: str | None = None,
        source: str | None = None,
        target: str | None = None,
    ) -> Removed:
        """Remove the units that match all given values. Later translations do not use them."""
        self.snapshot()
        return self._editor.remove(
            unit_id=unit_id,
            origin=origin,
            source=normalise_space(source) if source is not None else None,
            target=normalise_space(target) if target is not None else None,
        )

    def compact(self, progress: Progress = silent) -> Compacted:
        """Rewrite the live data with a new index. Removed data is in no file afterwards."""
        self.snapshot()
        return compact(self.folder, progress)

    def index(self, settings: IndexSettings | None = None, progress: Progress = silent) -> dict[str, Any]:
        """Rebuild the index, with its present settings unless others are given. Returns its description."""
        manifest = self.snapshot().manifest
        return reindex(self.folder, settings or IndexSettings.of(manifest), progress).as_dict()

    def export_tmx(self, path: str | Path, *, overwrite: bool = False) -> int:
        """Export all units as TMX. Returns their number.

        An existing file is replaced only with `overwrite`, and only by a complete file.
        """
        snapshot = self.snapshot()
        languages = snapshot.manifest.languages
        with storage_errors(Path(path)):
            return write_tmx(
                Path(path),
                snapshot.all_units(),
                languages.source or "und",
                languages.target or "und",
                __version__,
                overwrite=overwrite,
            )

    def _load(self, manifest: Manifest, model: Seq2Seq | ModelRequest | str | Path | None, offline: bool) -> Seq2Seq:
        """The given model, or the store's own, which is loaded once."""
        if isinstance(model, Seq2Seq):
            self._model = model
        elif model is not None or self._model is None:
            self._model = load_model(manifest, as_request(model, offline=offline))
        check_model(manifest, self._model, self.folder)
        return self._model

    def info(self) -> dict[str, Any]:
        """Counts, origins, model, index with its recall, training results and recommended maintenance."""
        return describe(self.snapshot())

    def verify(self) -> Report:
        """Compare all committed data with its checksums."""
        return verify(self.folder)

    def repair(
        self,
        *,
        model: Seq2Seq | ModelRequest | str | Path | None = None,
        offline: bool = False,
        progress: Progress = silent,
    ) -> Repaired:
        """Keep every sentence whose text can be read, and compute lost states with the store's model.

        Use `nearmt.repair` for a store that is too damaged to open.
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
    networks, record = train_for_store(model, snapshot, settings, dev_set, progress)
    if dev is not None:
        record = replace(record, trained_on=replace(record.trained_on, dropped=dev.dropped))
    return commit_training(snapshot, networks, record)


def build(
    inputs: str | Path | Sequence[str | Path],
    *,
    model: Seq2Seq | str | Path | Callable[[], Seq2Seq],
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

    The store appears at `out` when it is finished. Until then the build is in `out`.partial, where `resume` continues
    it after an interruption. An existing store is replaced only with `force`, and only by a finished one. `model` may
    be a function that loads the model: it is called after the other arguments were checked. With `cluster`, workers on
    Ray decode the memory; the store is the same.
    """
    out, partial = Path(out).absolute(), partial_folder(Path(out).absolute())
    check_output_folder(out, resume=resume, force=force)
    if dev is not None and not train:
        raise SettingError("`dev` is for training and cannot be combined with `train=False`")
    if isinstance(model, str | Path):
        model = Seq2Seq.load(model, source_lang=source_lang, target_lang=target_lang)
    elif not isinstance(model, Seq2Seq):
        model = model()
    pairs = _load_dev(dev, Languages(model.source_lang, model.target_lang)) if dev is not None else None
    settings = settings or BuildSettings()
    with build_lock(out):
        resume_publish(out)
        local = nullcontext(Ingestor(model, settings.batch_tokens))
        with ray_ingestor(model, settings.batch_tokens, cluster, progress) if cluster else local as ingestor:
            paths = [inputs] if isinstance(inputs, str | Path) else list(inputs)
            Builder(partial, model, settings, progress, ingestor).run(paths, format, resume=resume)
        snapshot = Snapshot.open(partial)
        can_train = pairs is not None or len(snapshot.sentences) >= 2
        if train and can_train and snapshot.manifest.adaptation is None:
            _train(snapshot, model, pairs, adaptation or AdaptationSettings(), progress)
        publish(partial, out)
    return Store(out)


def _load_dev(dev: Pairs, languages: Languages) -> LoadedPairs:
    """Read a dev set, which a build does first, so that an error in it is reported at once."""
    loaded = load_pairs(dev, languages)
    if len(loaded.pairs) < 2:
        raise SettingError(f"{loaded.origin}: training needs at least two sentences, better a few hundred")
    return loaded
