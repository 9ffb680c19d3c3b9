"""The configuration of the experiments, read from a TOML file. Unknown keys are an error."""

import tomllib
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path
from typing import Any

from nearmt.errors import SettingError
from nearmt.experiments.paper.files import FileFinder
from nearmt.methods.registry import VARIANTS

READY = Path(__file__).parent / "configs"
SECTIONS = (
    "main",
    "metrics",
    "matches",
    "relatives",
    "generality",
    "robustness",
    "features",
    "training_sentences",
    "hidden_sizes",
    "controls",
    "timing",
    "statistics",
    "case_study",
)
_LISTS_OF_COUNTS = ("k", "seeds", "training_sentences", "hidden_sizes", "timing_batch_sizes", "timing_k")
_COUNTS = (
    "judged_sentences",
    "judged_settings",
    "steps",
    "features_k",
    "timing_sentences",
    "timing_rounds",
    "beam",
    "batch_size",
)
_OPTIONAL_COUNTS = ("test_sentences", "memory_pairs")


@dataclass(frozen=True)
class DomainConfig:
    """A translation memory, its dev and test sets, and the paper's vanilla settings for it."""

    name: str
    memory: tuple[Path, ...]
    dev: tuple[Path, ...]  # one file, or two line-aligned ones
    test: tuple[Path, ...] = ()  # none: the end of dev
    paper_share: float = 0.8
    paper_temperature: float = 10.0


@dataclass(frozen=True)
class PaperConfig:
    """The model, the domains, and the size of each experiment."""

    title: str
    model: str
    domains: tuple[DomainConfig, ...]
    source_lang: str | None = None
    target_lang: str | None = None
    device: str = "cpu"
    dtype: str = "float32"
    general: tuple[Path, ...] = ()  # out-of-domain text, which a memory should not harm
    sections: tuple[str, ...] = SECTIONS
    k: tuple[int, ...] = (1, 2, 4, 8, 16, 32)
    seeds: tuple[int, ...] = (1, 2, 3)
    relatives: tuple[str, ...] = VARIANTS  # the variants to compare
    paper_protocol: bool = False  # as in the paper: train and select on all of dev, raw features, fixed T
    memory_pairs: int | None = None  # use only so many pairs of each memory, in evenly spaced blocks
    test_from_dev: float | None = None  # share of dev, its end, that is the test set of a domain without one
    test_sentences: int | None = None  # use only the first sentences of each test set
    judged_sentences: int = 200  # held-out sentences to decode when choosing settings
    judged_settings: int = 5  # settings to try on them, besides the paper's own
    steps: int = 5000
    features_k: int = 8
    training_sentences: tuple[int, ...] = (100, 200, 400, 800)
    hidden_sizes: tuple[int, ...] = (8, 16, 32, 64, 128)
    timing_batch_sizes: tuple[int, ...] = (1, 16, 32, 64)
    timing_k: tuple[int, ...] = (8, 32)
    timing_sentences: int = 64
    timing_rounds: int = 3
    engine: str = "torch"  # float32, so that scores do not depend on the processor; "auto" is faster
    beam: int = 4
    length_penalty: float = 0.6
    batch_size: int = 32
    index: str | None = None
    num_probes: int | None = None
    reranked: int | None = None

    def __post_init__(self) -> None:
        _check(self)

    @property
    def max_k(self) -> int:
        """The largest K: how many neighbours each search retrieves."""
        return max(self.k)

    def as_dict(self) -> dict[str, Any]:
        """Return the configuration for the results file, without the folders of the files."""
        content = asdict(self)
        for part, key in [
            (content, "general"),
            *((d, k) for d in content["domains"] for k in ("memory", "dev", "test")),
        ]:
            part[key] = [path.name for path in part[key]]
        content["model"] = shown_model(self.model)
        return content


def shown_model(model: str) -> str:
    """Return a hub id unchanged, and only the last two parts of a folder."""
    return "/".join(Path(model).parts[-2:]) if Path(model).is_absolute() else model


def find_config(name: str | Path) -> Path:
    """Return the path of a TOML file, or of a ready-made configuration by its name."""
    path, ready = Path(name), READY / f"{name}.toml"
    if path.is_file():
        return path
    if ready.is_file():
        return ready
    names = ", ".join(sorted(p.stem for p in READY.glob("*.toml")))
    raise SettingError(f"there is no file {name}; the ready-made configurations are {names}")


def load_config(name: str | Path, data: str | Path | None = None) -> PaperConfig:
    """Read and check a configuration. Paths are relative to its folder, or to that of the data if it is given."""
    path = find_config(name)
    if data is not None and not Path(data).is_dir():
        raise SettingError(f"`data`: {data} is not a directory")
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingError(f"{path} is not valid TOML: {error}") from error
    return _parse(content, path, FileFinder(path, Path(data) if data is not None else None))


def _parse(content: dict[str, Any], path: Path, finder: FileFinder) -> PaperConfig:
    domains = content.pop("domains", None)
    if not isinstance(domains, list) or not domains or not all(isinstance(domain, dict) for domain in domains):
        raise SettingError(f"{path} needs at least one [[domains]] with name, memory, dev and test")
    _check_keys(content, PaperConfig, str(path), excluded=("domains",))
    has_own_test = content.get("test_from_dev") is None
    parsed = []
    for number, domain in enumerate(domains, 1):
        where = f"{path}, domain {domain.get('name', number)}"
        _check_keys(domain, DomainConfig, where)
        if has_own_test and "test" not in domain:
            raise SettingError(f"{where}: test is missing; without one, set test_from_dev")
        files = {key: tuple(finder.files(domain[key], where)) for key in ("memory", "dev")}
        test = tuple(finder.files(domain.get("test", []), where, is_optional=not has_own_test))
        parsed.append(DomainConfig(**{**domain, **files, "test": test}))
    general = content.pop("general", [])
    content["general"] = tuple(finder.files(general, str(path), is_optional=isinstance(general, list)))
    finder.check()
    content["model"] = finder.model(str(content["model"]))
    lists = {key: tuple(value) for key, value in content.items() if isinstance(value, list)}
    try:
        return PaperConfig(**{**content, **lists, "domains": tuple(parsed)})
    except TypeError as error:
        raise SettingError(f"{path}: a value has the wrong type: {error}") from error


def _check_keys(content: dict[str, Any], kind: type, where: str, excluded: tuple[str, ...] = ()) -> None:
    known = {f.name: f for f in fields(kind) if f.name not in excluded}
    unknown = sorted(set(content) - set(known))
    if unknown:
        raise SettingError(f"{where}: unknown key {', '.join(unknown)}; known are {', '.join(known)}")
    required = [name for name, f in known.items() if f.default is MISSING and f.default_factory is MISSING]
    missing = [name for name in required if name not in content]
    if missing:
        raise SettingError(f"{where}: {', '.join(missing)} is missing")


def _check(config: PaperConfig) -> None:
    names = [domain.name for domain in config.domains]
    if len(set(names)) != len(names):
        raise SettingError("two domains have the same name")
    for key, known in (("sections", SECTIONS), ("relatives", VARIANTS)):
        unknown = set(getattr(config, key)) - set(known)
        if unknown:
            raise SettingError(f"`{key}`: unknown {', '.join(sorted(unknown))}; known are {', '.join(known)}")
    for key in _LISTS_OF_COUNTS:
        values = getattr(config, key)
        if not isinstance(values, tuple) or not values or not all(_is_count(value) for value in values):
            raise SettingError(f"`{key}` must be a list of whole numbers of at least 1")
    for key in (*_COUNTS, *(key for key in _OPTIONAL_COUNTS if getattr(config, key) is not None)):
        if not _is_count(getattr(config, key)):
            raise SettingError(f"`{key}` must be a whole number of at least 1")
    share = config.test_from_dev
    if share is not None and not (isinstance(share, float) and 0 < share < 1):
        raise SettingError("`test_from_dev` must be a number between 0 and 1")
    if config.features_k > config.max_k or max(config.timing_k) > config.max_k:
        raise SettingError(f"`features_k` and `timing_k` cannot exceed the largest `k`, {config.max_k}")


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1
