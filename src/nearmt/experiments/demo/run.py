"""The steps of the demo. It reuses earlier results, so that a second run takes seconds."""

import hashlib
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from nearmt.building.builder import BuildSettings
from nearmt.building.compatibility import check_model
from nearmt.datastore import replace_file
from nearmt.errors import MissingExtraError, SettingError, StoreMismatchError
from nearmt.evaluation.evaluate import evaluate
from nearmt.evaluation.matches import MatchBand
from nearmt.experiments.report import Example, pick_examples, pick_misled, require_drawing
from nearmt.methods.metak import MetaK
from nearmt.models import Seq2Seq
from nearmt.outputs import claim_folder
from nearmt.progress import Progress, silent
from nearmt.store import Store, build
from nearmt.training.devset import collect_cache, dev_from_pairs, load_pairs
from nearmt.training.schedule import TrainingSettings
from nearmt.training.train_store import AdaptationSettings
from nearmt.translator import Translator

METHODS = ("base", "vanilla", "adaptive")
# One network, few trials and few sentences, so that the demo takes two minutes.
QUICK = AdaptationSettings(max_trials=1, max_decoded=30, methods=("adaptive",), training=TrainingSettings(steps=2000))
NUM_EXAMPLES = 3
_ENTRIES_PER_COMMIT = 8192  # often enough for progress, and for an interruption to cost little
_RESULT_FORMAT = 4
_BUILT_FROM = "built-from.txt"
_WATCHED_SENTENCES = 100  # of dev, for the mean number of neighbours


@dataclass(frozen=True)
class Materials:
    """The files that the demo works on."""

    model: Path
    memory: Path
    dev: Path
    test: Path
    about: str = ""  # what they are, and their licences

    def key(self, settings: AdaptationSettings) -> str:
        """Return a checksum of everything that the store is made from, except the model."""
        contents = [path.read_bytes() for path in (self.memory, self.dev)]
        return hashlib.sha256(b"".join([*contents, repr(settings).encode()])).hexdigest()


@dataclass(frozen=True)
class DemoResult:
    """The results that the demo shows."""

    evaluation: dict[str, Any]
    matches: list[MatchBand]
    chosen_sizes: dict[str, float]  # number of neighbours → mean probability that Meta-k gives it
    examples: list[Example]  # sentences in which the memory's words come out right
    misled: list[Example]  # one sentence that the memory made worse, if there is one
    info: dict[str, Any]
    about: str
    seconds: dict[str, float]  # step → time it took


@dataclass(frozen=True)
class Demo:
    """A finished demo: its results, and the loaded model and store for further sentences."""

    result: DemoResult
    translator: Translator
    is_reused: bool  # the results are those of an earlier run


def find_materials(progress: Progress = silent) -> Materials:
    """Return the files of the package nearmt-demo, which unpacks its model on first use."""
    try:
        import nearmt_demo
    except ImportError:
        raise MissingExtraError("the demo", "nearmt-demo") from None
    if not hasattr(nearmt_demo, "model_folder"):
        raise SettingError("the installed nearmt-demo is too old: upgrade it")
    files = nearmt_demo.MEMORY, nearmt_demo.DEV, nearmt_demo.TEST
    return Materials(nearmt_demo.model_folder(progress), *files, nearmt_demo.ABOUT)


def claim(out: Path) -> None:
    """Refuse a folder with other files in it, and a missing matplotlib, before any work."""
    require_drawing()
    claim_folder(out, "demo")


def run_demo(
    materials: Materials, out: Path, settings: AdaptationSettings | None = None, progress: Progress = silent
) -> Demo:
    """Build, train, evaluate and pick examples, all in `out`, a new folder or that of an earlier demo."""
    claim(out)
    settings = settings or QUICK
    watch = _Stopwatch()
    with watch.timing("loading the model"):
        progress("loading", 0, None)
        model = Seq2Seq.load(materials.model)
    folder = out / "demo.store"
    is_current = _read(out / _BUILT_FROM) == materials.key(settings)
    if not folder.exists() or not is_current or _needs_rebuild(folder, model):
        with watch.timing("building and training"):
            _build(materials, out, model, settings, progress)
    store = Store(folder)
    translator = Translator(folder, model=model, method="adaptive")
    pairs = load_pairs(materials.test, store.manifest.languages).pairs
    path = out / "result.json"
    made_from = [_RESULT_FORMAT, store.manifest.version, store.manifest.created_at, [asdict(p) for p in pairs]]
    key = hashlib.sha256(json.dumps(made_from).encode()).hexdigest()
    earlier = _earlier_result(path, key)
    if earlier is not None:
        return Demo(earlier, translator, is_reused=True)
    with watch.timing("translating the test set"):
        evaluation = evaluate(translator, pairs, METHODS, progress)
    with watch.timing("explaining"):
        tested = pairs[: len(evaluation.outputs["base"])]
        result = DemoResult(
            evaluation=evaluation.as_dict(),
            matches=evaluation.matches,
            chosen_sizes=_chosen_sizes(translator, materials.dev, progress),
            examples=pick_examples(translator, tested, evaluation.outputs, NUM_EXAMPLES),
            misled=pick_misled(translator, tested, evaluation.outputs),
            info=store.info(),
            about=materials.about,
            seconds=watch.seconds,
        )
    replace_file(path, json.dumps({"key": key, "result": asdict(result)}, ensure_ascii=False, indent=1).encode())
    return Demo(result, translator, is_reused=False)


class _Stopwatch:
    """Remembers how long each step took."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def timing(self, step: str) -> Iterator[None]:
        began = time.monotonic()
        yield
        self.seconds[step] = round(time.monotonic() - began, 1)


def _build(materials: Materials, out: Path, model: Seq2Seq, settings: AdaptationSettings, progress: Progress) -> None:
    """Build and train the store in `out`; continue an interrupted build if it was made from the same materials."""
    key, folder, begun = materials.key(settings), out / "demo.store", out / "building-from.txt"
    has_partial = folder.with_name(f"{folder.name}.partial").exists()
    resume = has_partial and not folder.exists() and _read(begun) == key
    replace_file(begun, key.encode())
    build(
        materials.memory,
        model=model,
        out=folder,
        dev=materials.dev,
        settings=BuildSettings(segment_entries=_ENTRIES_PER_COMMIT),
        adaptation=settings,
        resume=resume,
        force=not resume,
        progress=progress,
    )
    replace_file(out / _BUILT_FROM, key.encode())


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


def _earlier_result(path: Path, key: str) -> DemoResult | None:
    """Return the results of an earlier run with the same store and test set."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return _from_dict(content["result"]) if content["key"] == key else None
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _needs_rebuild(folder: Path, model: Seq2Seq) -> bool:
    """True if the store belongs to another model, such as that of an earlier release, or to another engine."""
    manifest = Store(folder).manifest
    try:
        check_model(manifest, model, folder)
    except StoreMismatchError:
        return True
    return bool(manifest.model["engine"] != model.engine)


def _from_dict(content: dict[str, Any]) -> DemoResult:
    examples = {name: [Example.from_dict(example) for example in content[name]] for name in ("examples", "misled")}
    return DemoResult(**{**content, **examples, "matches": [MatchBand(**band) for band in content["matches"]]})


def _chosen_sizes(translator: Translator, dev: Path, progress: Progress) -> dict[str, float]:
    """Return how many neighbours Meta-k uses, on average over the tokens of some dev sentences."""
    model, snapshot, method = translator.model, translator.snapshot, translator.method
    assert isinstance(method, MetaK)
    loaded = load_pairs(dev, snapshot.manifest.languages)
    watched = dev_from_pairs(model, snapshot, loaded.pairs[:_WATCHED_SENTENCES], loaded.origin)
    cache = collect_cache(model, translator.readers[0].retriever, watched, method.max_k, progress)
    weighed = method.weigh(cache.retrieved(snapshot))
    mean = weighed.size_probabilities.mean(dim=0).tolist()
    return {str(size): share for size, share in zip(weighed.sizes, mean, strict=True)}
