"""The steps of the demo. It reuses earlier results, so that a second run takes seconds."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from nearmt.building.compatibility import check_model
from nearmt.corpus import SentencePair
from nearmt.datastore import replace_file
from nearmt.decoding.decoder import Decoder
from nearmt.errors import MissingExtraError, StoreMismatchError
from nearmt.evaluation.evaluate import evaluate
from nearmt.evaluation.held_out import HeldOutSet, translate_held_out
from nearmt.experiments.report import Example, pick_examples, require_drawing
from nearmt.methods.mixture import Method, Uniform, Vanilla
from nearmt.models import Seq2Seq
from nearmt.outputs import claim_folder
from nearmt.progress import Progress, silent
from nearmt.store import Store, build
from nearmt.training.cache import NeighborCache
from nearmt.training.devset import collect_cache, dev_from_pairs, load_pairs
from nearmt.training.schedule import TrainingSettings
from nearmt.training.train_metak import train_metak
from nearmt.training.train_store import AdaptationSettings
from nearmt.translator import Translator

CURVE_SENTENCES = 100
CURVE_SIZES = (1, 2, 4, 8, 16, 32)
CURVE_STEPS = 1000  # training steps, enough for a point of a curve
# One network and few sentences, so that the demo takes minutes.
QUICK = AdaptationSettings(max_decoded=60, methods=("adaptive",), training=TrainingSettings(steps=3000))
NUM_EXAMPLES = 3


@dataclass(frozen=True)
class Materials:
    """The files that the demo works on."""

    model: Path
    memory: Path
    dev: Path
    test: Path


@dataclass(frozen=True)
class DemoResult:
    """The results that the demo shows."""

    evaluation: dict[str, Any]
    curve: dict[str, list[float]]  # method → BLEU at each of CURVE_SIZES
    chosen_sizes: dict[str, float]  # number of neighbours → mean probability that Meta-k gives it
    examples: list[Example]
    info: dict[str, Any]


def find_materials() -> Materials:
    """Return the files of the package nearmt-demo."""
    try:
        import nearmt_demo
    except ImportError:
        raise MissingExtraError("the demo", "nearmt-demo") from None
    return Materials(nearmt_demo.MODEL, nearmt_demo.MEMORY, nearmt_demo.DEV, nearmt_demo.TEST)


def run_demo(
    materials: Materials, out: Path, settings: AdaptationSettings | None = None, progress: Progress = silent
) -> DemoResult:
    """Build, train, evaluate and pick examples, all in `out`, a new folder or that of an earlier demo."""
    require_drawing()
    claim_folder(out, "demo")
    model = Seq2Seq.load(materials.model)
    folder = out / "demo.store"
    chosen = settings or QUICK
    if not folder.exists() or _needs_rebuild(folder, model):
        partial = out / "demo.store.partial"
        build(
            materials.memory,
            model=model,
            out=folder,
            dev=materials.dev,
            adaptation=chosen,
            resume=partial.exists() and not folder.exists(),
            force=folder.exists(),
            progress=progress,
        )
    store = Store(folder)
    translator = Translator(folder, model=model, method="adaptive")
    pairs = load_pairs(materials.test, store.manifest.languages).pairs
    path = out / "result.json"
    key = hashlib.sha256(
        json.dumps([store.manifest.version, store.manifest.created_at, [asdict(p) for p in pairs]]).encode()
    ).hexdigest()
    earlier = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    if earlier.get("key") == key:
        return _from_dict(earlier["result"])
    evaluation = evaluate(translator, pairs, progress=progress)
    curve, sizes = _curve(translator, materials, pairs[:CURVE_SENTENCES], chosen, progress)
    result = DemoResult(
        evaluation=evaluation.as_dict(),
        curve=curve,
        chosen_sizes=sizes,
        examples=pick_examples(translator, pairs, evaluation.outputs, NUM_EXAMPLES),
        info=store.info(),
    )
    replace_file(path, json.dumps({"key": key, "result": asdict(result)}, ensure_ascii=False, indent=1).encode())
    return result


def _needs_rebuild(folder: Path, model: Seq2Seq) -> bool:
    """True if the store belongs to another model, such as that of an earlier release, or to another engine."""
    manifest = Store(folder).manifest
    try:
        check_model(manifest, model, folder)
    except StoreMismatchError:
        return True
    return bool(manifest.model["engine"] != model.engine)


def _from_dict(content: dict[str, Any]) -> DemoResult:
    return DemoResult(**{**content, "examples": [Example.from_dict(example) for example in content["examples"]]})


def _curve(
    translator: Translator,
    materials: Materials,
    pairs: Sequence[SentencePair],
    settings: AdaptationSettings,
    progress: Progress,
) -> tuple[dict[str, list[float]], dict[str, float]]:
    """Return BLEU by K for the three methods, and how many neighbours Meta-k uses on dev."""
    model, snapshot, retriever = translator.model, translator.snapshot, translator.readers[0].retriever
    learned = snapshot.manifest.adaptation
    assert learned is not None
    loaded = load_pairs(materials.dev, snapshot.manifest.languages)
    cache = collect_cache(
        model, retriever, dev_from_pairs(model, snapshot, loaded.pairs, loaded.origin), settings.max_k, progress
    )
    held_out = list(range(0, len(loaded.pairs), 5))
    own = translator.method
    assert own is not None
    tuned, temperature = learned.vanilla, learned.uniform.temperature
    test = HeldOutSet.from_pairs(model, pairs)
    sizes = [size for size in CURVE_SIZES if size <= settings.max_k]
    curve: dict[str, list[float]] = {"vanilla": [], "uniform": [], "adaptive": []}
    done, total = 0, len(sizes) * 3 * len(test)
    for size in sizes:
        methods: list[Method] = [
            Vanilla(size, tuned.temperature, tuned.knn_share),
            Uniform(size, temperature),
            own if size == own.max_k else _metak_of(cache, held_out, size, temperature, settings),
        ]
        for name, method in zip(curve, methods, strict=True):
            decoder = Decoder(model, retriever, method, translator.decoding)
            curve[name].append(translate_held_out(decoder, test).bleu)
            done += len(test)
            progress("curve", done, total)
    believed = own.weigh(cache.retrieved(snapshot))
    mean = believed.size_probabilities.mean(dim=0).tolist()
    return curve, {str(size): share for size, share in zip(believed.sizes, mean, strict=True)}


def _metak_of(
    cache: NeighborCache, held_out: list[int], max_k: int, temperature: float, settings: AdaptationSettings
) -> Method:
    """Train a network for another K on the same cache."""
    train_part, select_part = cache.nearest(max_k).split(held_out)
    (trained,) = train_metak(
        train_part,
        select_part,
        max_k=max_k,
        temperatures=[temperature],
        settings=replace(settings.training, steps=min(settings.training.steps, CURVE_STEPS)),
    )
    return trained.network
