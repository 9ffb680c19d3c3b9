"""A store described for people."""

from typing import Any

from nearmt.cli.output import say
from nearmt.cli.soundness import waiting_text


def print_info(described: dict[str, Any]) -> None:
    """What `nearmt info` says, for people."""
    index, bytes_on_disk, model = described["index"] or {}, described["bytes"], described["model"]
    recall = index.get("recall")
    rows = [
        ("store", described["store"]),
        ("languages", f"{described['languages']['source'] or '?'} → {described['languages']['target'] or '?'}"),
        ("model", f"{model['name']} ({model['architecture']}, width {model['width']})"),
        ("memory", f"{described['sentences']:,} sentences, {described['entries']:,} entries, "
                   f"{described['units']:,} units"),
        ("on disk", f"{bytes_on_disk['data'] / 1e6:,.1f} MB data, {bytes_on_disk['index'] / 1e6:,.1f} MB index"),
        ("dropped", ", ".join(f"{n:,} {reason}" for reason, n in described["dropped"].items()) or "nothing"),
        ("index", index_text(index)),
    ]  # fmt: skip
    if recall:
        rows.append(("recall", _recall_text(recall)))
    rows += adaptation_rows(described["adaptation"])
    rows += _origin_rows(described)
    rows += _health_rows(described["health"], described["store"])
    rows += [
        ("damaged", f"{of['folder']}: {of['bytes'] / 1e6:,.1f} MB kept by a repair") for of in described["set_aside"]
    ]
    for name, value in rows:
        print(f"{name:12} {value}")


def index_text(index: dict[str, Any]) -> str:
    """An index in a line."""
    factory = index.get("factory", "none")
    if factory in ("none", "Flat"):
        return str(factory)
    where = f" at {index['uri']}, collection {index['collection']}" if index.get("kind") == "milvus" else ""
    probed = f", {index['num_probes']} lists probed" if "IVF" in factory else ""
    parts = f", on disk in {len(index['files'])} parts" if "mapped_bytes" in index else ""
    return f"{factory}{where}{probed}, {index['reranked']} re-ranked{parts}"


_SHOWN_ORIGINS = 10


def _origin_rows(described: dict[str, Any]) -> list[tuple[str, str]]:
    rows = [
        ("origin", f"{of['name'] or 'none'}: {of['units']:,} units, {of['first_date'][:10]} to {of['last_date'][:10]}")
        for of in described["origins"][:_SHOWN_ORIGINS]
    ]
    others = described["num_origins"] - len(rows)
    return [*rows, ("", f"and {others:,} more origins (--json lists them)")] if others > 0 else rows


def _health_rows(health: dict[str, Any], store: str) -> list[tuple[str, str]]:
    rows = [("changes", f"{health['removed_share']:.1%} removed, {health['new_share']:.1%} not in the index yet")]
    if health["compaction_due"]:
        rows.append(("due", f"compaction ({'; '.join(health['compaction_due'])}): run nearmt compact {store}"))
    if health["waiting_sentences"]:
        rows.append(("due", waiting_text(health["waiting_sentences"], store)))
    if health["training_due"]:
        share = health["changed_since_training"]
        rows.append(("due", f"training (the memory has changed by {share:.0%} since): run nearmt train {store}"))
    return rows


def _recall_text(recall: dict[str, Any]) -> str:
    if not recall["num_queries"]:
        return "not measured: the memory has no two different sentences"
    return f"{recall['recall']:.1%} of the {recall['k']} nearest, {recall['mass']:.1%} of their weight"


def adaptation_rows(learned: dict[str, Any] | None) -> list[tuple[str, str]]:
    """What was learned, as names and values."""
    if learned is None:
        return [("meta-k", "not trained: run nearmt train")]
    metak, vanilla, held = learned["metak"], learned["vanilla"], learned["held_out"]
    is_seen, variants = learned["is_selected_on_training_part"], learned.get("relatives", {})
    losses = ", ".join(f"{name} {held[f'{name}_loss']:.3f}" for name in ("base", "vanilla", "adaptive", *variants))
    return [
        ("method", learned["method"]),
        ("meta-k", f"K {metak['max_k']}, T {metak['temperature']:g}, trained on {learned['trained_on']['origin']}"
                   if "adaptive" in learned.get("networks", ("adaptive",)) else "lost: run nearmt train"),
        ("guard", f"strength {metak['guard']['strength']:g}" if metak.get("guard") else "none"),
        *((name, f"K {of['max_k']}, best after {of['steps']} steps") for name, of in variants.items()),
        ("vanilla", f"k {vanilla['k']}, T {vanilla['temperature']:g}, share {vanilla['knn_share']:g}"),
        ("all of dev" if is_seen else "held out",
         f"loss a token: {losses}" + ("" if is_seen else f" ({held['sentences']} sentences)")),
        ("dev recall", _recall_text(learned["recall"])),
    ]  # fmt: skip


_FEW_SENTENCES = 20


def say_doubts(learned: dict[str, Any]) -> None:
    """What a user should know before trusting what was learned."""
    held = learned["held_out"]
    dropped = learned["trained_on"].get("dropped")
    if dropped:
        say(f"Left out of the dev set: {', '.join(f'{n} {why}' for why, n in dropped.items())}.")
    if held["adaptive_loss"] >= held["base_loss"]:
        say("Warning: on the held-out sentences the memory did not help: Meta-k has learned to ignore it.")
    if held["sentences"] < _FEW_SENTENCES:
        say(f"Warning: only {held['sentences']} held-out sentences: train with a larger dev set (some hundred pairs).")


def say_recall(described: dict[str, Any]) -> None:
    """Warn of an index that misses much."""
    from nearmt.retrieval.recall import LOW_MASS, LOW_RECALL

    for part in (described["index"], described["adaptation"]):
        recall = (part or {}).get("recall")
        if recall and recall["num_queries"] and (recall["mass"] < LOW_MASS or recall["recall"] < LOW_RECALL):
            found = f"{recall['recall']:.0%} of the neighbours and {recall['mass']:.0%} of their weight"
            say(f"The index finds only {found}: build with more --probes or --rerank, or with another --index.")
            return
