"""The description of a store as text."""

from collections.abc import Sequence
from typing import Any

from nearmt.cli.output import command_for, counts_text, number_of, say, size_text
from nearmt.cli.verify_output import waiting_text

_SHOWN_ORIGINS = 10
_FEW_SENTENCES = 20
Rows = list[tuple[str, str]]


def print_rows(rows: Sequence[tuple[str, str]]) -> None:
    """Print names and values in two columns."""
    for name, value in rows:
        print(f"{name:12} {value}")


def print_info(described: dict[str, Any]) -> None:
    """Print what `nearmt info` shows."""
    index, on_disk, model, languages = (
        described["index"] or {},
        described["bytes"],
        described["model"],
        described["languages"],
    )
    sentences = number_of(described["sentences"], "sentence")
    entries = number_of(described["entries"], "entry", "entries")
    rows = [
        ("store", described["store"]),
        ("languages", f"{languages['source'] or '?'} → {languages['target'] or '?'}"),
        ("model", f"{model['name']} ({model['architecture']}, width {model['width']})"),
        ("memory", f"{sentences}, {entries}, {number_of(described['units'], 'unit')}"),
        ("keys", f"{described['keys']}, {number_of(described['dims'], 'dimension')}"),
        ("on disk", f"{size_text(on_disk['data'])} data, {size_text(on_disk['index'])} index"),
        ("dropped", counts_text(described["dropped"]) or "nothing"),
        ("retrieval", described["retrieval"]),
        ("index", index_text(index, described["sentence_index"])),
    ]
    if index.get("recall"):
        rows.append(("recall", _recall_text(index["recall"])))
    rows += adaptation_rows(described["adaptation"])
    rows += _origin_rows(described)
    rows += _health_rows(described["health"], described["store"])
    rows += [
        ("damaged", f"{kept['folder']}: {size_text(kept['bytes'])} kept by a repair") for kept in described["set_aside"]
    ]
    print_rows(rows)


def index_text(index: dict[str, Any], sentences: dict[str, Any] | None) -> str:
    """Describe the indexes in one line."""
    by_sentence = [f"{number_of(sentences['num_sentences'], 'sentence')}"] if sentences else []
    return ", ".join(by_sentence + ([f"tokens: {_token_index_text(index)}"] if index else [])) or "none"


def _token_index_text(index: dict[str, Any]) -> str:
    factory = index["factory"]
    if factory == "Flat":
        return str(factory)
    where = f" at {index['uri']}, collection {index['collection']}" if index.get("kind") == "milvus" else ""
    has_lists = index.get("kind") == "lists"
    probed = f", {number_of(index['num_probes'], 'list')} probed" if has_lists or "IVF" in factory else ""
    if has_lists:
        return f"{factory}{probed}"
    parts = f", on disk in {number_of(len(index['files']), 'part')}" if "mapped_bytes" in index else ""
    return f"{factory}{where}{probed}, {index['reranked']} re-ranked{parts}"


def _origin_rows(described: dict[str, Any]) -> Rows:
    rows = [
        (
            "origin",
            f"{origin['name'] or 'none'}: {number_of(origin['units'], 'unit')}, "
            f"{origin['first_date'][:10]} to {origin['last_date'][:10]}",
        )
        for origin in described["origins"][:_SHOWN_ORIGINS]
    ]
    others = described["num_origins"] - len(rows)
    return [*rows, ("", f"and {number_of(others, 'more origin')} (--json lists them)")] if others > 0 else rows


def _health_rows(health: dict[str, Any], store: str) -> Rows:
    rows = [("changes", f"{health['removed_share']:.1%} removed, {health['new_share']:.1%} not in the index yet")]
    if health["compaction_due"]:
        reasons = "; ".join(health["compaction_due"])
        rows.append(("due", f"compaction ({reasons}): run {command_for('compact', store)}"))
    if health["waiting_sentences"]:
        rows.append(("due", waiting_text(health["waiting_sentences"], store)))
    if health["training_due"]:
        share = health["changed_since_training"]
        rows.append(("due", f"training (the memory has changed by {share:.0%}): run {command_for('train', store)}"))
    return rows


def say_due(health: dict[str, Any], store: object) -> None:
    """Say which maintenance is due after a change."""
    if health["compaction_due"]:
        reasons = "; ".join(health["compaction_due"])
        say(f"Compaction is due ({reasons}): run {command_for('compact', store)}")
    if health["training_due"]:
        say(f"The memory has changed a lot since the last training: run {command_for('train', store)}")


def _recall_text(recall: dict[str, Any]) -> str:
    if not recall["num_queries"]:
        return "not measured: the memory has fewer than two different sentences"
    return f"{recall['recall']:.1%} of the {recall['k']} nearest, {recall['mass']:.1%} of their weight"


def adaptation_rows(learned: dict[str, Any] | None) -> Rows:
    """Describe what was trained, as names and values."""
    if learned is None:
        return [("meta-k", "not trained: run nearmt train")]
    metak, vanilla, held = learned["metak"], learned["vanilla"], learned["held_out"]
    is_seen, variants = learned["is_selected_on_training_part"], learned["relatives"]
    losses = ", ".join(f"{name} {held[f'{name}_loss']:.3f}" for name in ("base", "vanilla", "adaptive", *variants))
    if "adaptive" in learned["networks"]:
        trained = f"K {metak['max_k']}, T {metak['temperature']:g}, trained on {learned['trained_on']['origin']}"
    else:
        trained = "lost: run nearmt train"
    counted = "" if is_seen else f" ({number_of(held['sentences'], 'sentence')})"
    return [
        ("method", learned["method"]),
        ("meta-k", trained),
        ("damping", f"strength {metak['guard']['strength']:g}" if metak.get("guard") else "none"),
        *(
            (name, f"K {variant['max_k']}, best after {number_of(variant['steps'], 'step')}")
            for name, variant in variants.items()
        ),
        ("vanilla", f"k {vanilla['k']}, T {vanilla['temperature']:g}, share {vanilla['knn_share']:g}"),
        ("all of dev" if is_seen else "held out", f"loss per token: {losses}{counted}"),
        ("dev recall", _recall_text(learned["recall"])),
    ]


def say_doubts(learned: dict[str, Any]) -> None:
    """Say why the result of a training may not be reliable."""
    held = learned["held_out"]
    dropped = learned["trained_on"].get("dropped")
    if dropped:
        say(f"Left out of the dev set: {counts_text(dropped)}.")
    if held["adaptive_loss"] >= held["base_loss"]:
        say("Warning: the memory did not help on the held-out sentences: Meta-k has learned to ignore it.")
    if held["sentences"] < _FEW_SENTENCES:
        count = number_of(held["sentences"], "held-out sentence")
        say(f"Warning: only {count}: train with a larger dev set (a few hundred pairs).")


def warn_low_recall(described: dict[str, Any]) -> None:
    """Warn if the index of tokens misses many neighbours. Retrieval by sentences always does, and networks learn it."""
    from nearmt.retrieval.recall import LOW_MASS, LOW_RECALL

    if described["index"] is None:
        return
    parts = [described["index"]]
    if described["retrieval"] == "tokens":
        parts.append(described["adaptation"])
    for part in parts:
        recall = (part or {}).get("recall")
        if recall and recall["num_queries"] and (recall["mass"] < LOW_MASS or recall["recall"] < LOW_RECALL):
            found = f"{recall['recall']:.0%} of the neighbours and {recall['mass']:.0%} of their weight"
            more = "--probes" if described["index"].get("kind") == "lists" else "--probes or --rerank"
            say(f"The index finds only {found}: increase {more}, or choose another --index.")
            return
