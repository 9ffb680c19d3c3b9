"""Batched beam search over a function that gives the next log-probabilities; independent of models and neighbours.

Each sentence gets the same result as in transformers' beam search (greedy search with one beam), whatever else is in
the batch: 2·num_beams candidates per step (more with several end tokens), of which only the best num_beams can end a
hypothesis, a length penalty that counts EOS, and the same rules for early stopping. Finished sentences leave the
batch immediately.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, Protocol

import torch
from torch import Tensor

from nearmt.errors import SettingError
from nearmt.models.topk import topk

EarlyStopping = bool | Literal["never"]

_LOST = -1.0e9  # added to the score of excluded candidates, as in transformers
_HOPELESS = -1.0e8  # a log-probability below this includes a _LOST


@dataclass(frozen=True)
class BeamSettings:
    """Settings of beam search.

    With `early_stopping` False, a search stops when no running hypothesis can win at its current length; with "never",
    when none can win at the maximum length; with True, as soon as num_beams hypotheses are finished.
    """

    num_beams: int = 4
    length_penalty: float = 0.6
    early_stopping: EarlyStopping = False
    num_hypotheses: int = 1

    def __post_init__(self) -> None:
        if self.num_beams < 1:
            raise SettingError(f"`num_beams` must be at least 1, not {self.num_beams}")
        if not 1 <= self.num_hypotheses <= self.num_beams:
            raise SettingError(
                f"`num_hypotheses` must be between 1 and `num_beams` ({self.num_beams}), not {self.num_hypotheses}"
            )
        if not abs(self.length_penalty) < 100:
            raise SettingError(f"`length_penalty` must be between -100 and 100, not {self.length_penalty}")
        if self.early_stopping not in (True, False, "never"):
            raise SettingError(f"`early_stopping` must be true, false or 'never', not {self.early_stopping!r}")


@dataclass(frozen=True)
class Hypothesis:
    """A finished output."""

    token_ids: tuple[int, ...]  # without decoder start; EOS included if it ended with one
    score: float  # log-probability / length ** length_penalty, EOS counted
    log_probability: float


class Shifted(NamedTuple):
    """Values (rows, vocabulary), and a number that must be added to all of a row to make them log-probabilities."""

    values: Tensor
    shift: Tensor | None = None  # (rows,)
    maxima: Tensor | None = None  # (rows, blocks) bounds of the values, see `topk`


class StepFunction(Protocol):
    """Gives the log-probabilities of the next token for every row, (rows, vocabulary), with the logit rules applied."""

    def __call__(
        self, token_ids: Tensor, parents: Tensor, prefixes: Tensor, is_last: Tensor, sentences: Tensor
    ) -> Tensor | Shifted:
        """Row i continues row `parents[i]` of the last call with `token_ids[i]`.

        prefixes (rows, t) holds each row's tokens so far, starting with the start token; is_last (rows,) is true
        where only one more token fits; sentences (rows,) is the sentence of each row. The first call has one row per
        sentence, later calls num_beams rows per unfinished sentence.
        """


def beam_search(
    step: StepFunction,
    *,
    max_new_tokens: Sequence[int],
    start_token_id: int,
    eos_token_ids: Sequence[int],
    settings: BeamSettings,
    device: torch.device | str = "cpu",
) -> list[list[Hypothesis]]:
    """The best hypotheses of every sentence, best first.

    `max_new_tokens` has one number per sentence, EOS included. A sentence with fewer than num_hypotheses possible
    outputs gets all of them, and at least one.
    """
    if any(length < 1 for length in max_new_tokens):
        raise SettingError("`max_new_tokens` must be at least 1 for every sentence")
    if not eos_token_ids:
        raise SettingError("beam search needs at least one end token")
    if not max_new_tokens:
        return []
    if settings.num_beams == 1:
        settings = replace(settings, early_stopping=True)  # greedy search stops at the first end token
    search = _Search(max_new_tokens, start_token_id, eos_token_ids, settings, torch.device(device))
    with torch.no_grad():
        while search.is_alive:
            found = step(*search.inputs())
            search.advance(found if isinstance(found, Shifted) else Shifted(found))
    return search.results


class _Search:
    """The running and finished hypotheses of the unfinished sentences.

    Shapes: S unfinished sentences, B beams, C candidates per sentence and step, t tokens including the start token.
    """

    def __init__(
        self,
        max_new_tokens: Sequence[int],
        start_token_id: int,
        eos_token_ids: Sequence[int],
        settings: BeamSettings,
        device: torch.device,
    ) -> None:
        num_sentences, beams = len(max_new_tokens), settings.num_beams
        self._settings = settings
        self._eos = torch.tensor(list(eos_token_ids), device=device)
        self._num_candidates = max(2, 1 + len(eos_token_ids)) * beams
        self._step = 0
        self._limits = torch.tensor(list(max_new_tokens), device=device)  # (S,)
        self._sentences = torch.arange(num_sentences, device=device)  # (S,) original numbers
        longest = max(max_new_tokens)
        # One row per sentence until the first step has given B different tokens.
        self._prefixes = torch.full((num_sentences, 1, 1), start_token_id, device=device)  # (S, 1 or B, t)
        self._parents = torch.arange(num_sentences, device=device)  # (rows,)
        self._running = torch.zeros(num_sentences, 1, device=device)  # (S, 1 or B) log-probabilities
        self._done_tokens = torch.zeros(num_sentences, beams, longest, dtype=torch.int64, device=device)
        self._done_lengths = torch.zeros(num_sentences, beams, dtype=torch.int64, device=device)
        self._done_log_probs = torch.full((num_sentences, beams), _LOST, device=device)
        self._done_scores = torch.full((num_sentences, beams), _LOST, device=device)
        self._is_done = torch.zeros(num_sentences, beams, dtype=torch.bool, device=device)
        self.results: list[list[Hypothesis]] = [[] for _ in max_new_tokens]

    @property
    def is_alive(self) -> bool:
        return len(self._sentences) > 0

    def inputs(self) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """The arguments of the step function."""
        beams, length = self._prefixes.shape[1:]
        prefixes = self._prefixes.reshape(-1, length)
        is_last = (self._limits == self._step + 1).repeat_interleave(beams)
        return prefixes[:, -1], self._parents, prefixes, is_last, self._sentences.repeat_interleave(beams)

    def advance(self, found: Shifted) -> None:
        """Choose the next hypotheses."""
        scores, tokens, beams = self._candidates(found)  # each (S, C), best first
        self._step += 1
        is_full = self._limits == self._step  # (S,) the maximum length is reached
        has_ended = torch.isin(tokens, self._eos) | is_full[:, None]
        self._finish(scores, tokens, beams, has_ended)

        # Finished hypotheses are not continued.
        chosen = (scores + has_ended * _LOST).topk(self._settings.num_beams, dim=1)  # (S, B)
        picked = beams.gather(1, chosen.indices)
        rows_before = self._prefixes.shape[1]
        offsets = torch.arange(len(self._sentences), device=picked.device)[:, None] * rows_before
        self._parents = (picked + offsets).flatten()
        kept = self._prefixes.flatten(0, 1)[self._parents].view(*picked.shape, -1)
        self._prefixes = torch.cat((kept, tokens.gather(1, chosen.indices)[:, :, None]), dim=2)
        self._running = chosen.values
        self._retire(self._is_over() | is_full)

    def _candidates(self, found: Shifted) -> tuple[Tensor, Tensor, Tensor]:
        """Score, token and beam of the C best continuations of each sentence.

        The best C of all beams are among the best C of each, so running scores are added to C numbers per beam only.
        """
        sentences, beams = self._running.shape
        count = min(self._num_candidates, found.values.shape[1])
        best_values, best_tokens = topk(found.values.float(), count, found.maxima)
        running = self._running if found.shift is None else self._running + found.shift.view_as(self._running)
        values = best_values.view(sentences, beams, -1) + running[:, :, None]
        if self._step == 0 and self._settings.num_beams > 1:
            # The other beams start as copies of the first with a score of _LOST. They matter only if the first has
            # fewer than C possible continuations, as before a forced token.
            copies = torch.full((self._settings.num_beams, 1), _LOST, device=values.device)
            copies[0] = 0.0
            values = values + copies
        flat = values.flatten(1)
        best = flat.topk(min(self._num_candidates, flat.shape[1]), dim=1)
        beam, place = best.indices // values.shape[2], best.indices % values.shape[2]
        if beams == 1:
            beam = torch.zeros_like(beam)
        tokens = best_tokens.view(sentences, -1).gather(1, beam * values.shape[2] + place)
        return best.values, tokens, beam

    def _finish(self, scores: Tensor, tokens: Tensor, beams: Tensor, has_ended: Tensor) -> None:
        """Add the ended candidates among the best B to the finished hypotheses, and keep the best B of those."""
        num_beams = self._settings.num_beams
        ended = has_ended[:, :num_beams]  # candidates of lower rank can continue but not end a hypothesis
        if not bool(ended.any()):
            return
        scores, tokens, beams = scores[:, :num_beams], tokens[:, :num_beams], beams[:, :num_beams]
        ranked = scores / (self._step**self._settings.length_penalty) + ~ended * _LOST
        best = torch.cat((self._done_scores, ranked), dim=1).topk(num_beams, dim=1)
        self._done_scores = best.values
        self._is_done = torch.cat((self._is_done, ended), dim=1).gather(1, best.indices)
        self._done_log_probs = torch.cat((self._done_log_probs, scores), dim=1).gather(1, best.indices)
        lengths = torch.full_like(tokens, self._step)
        self._done_lengths = torch.cat((self._done_lengths, lengths), dim=1).gather(1, best.indices)
        history = self._prefixes[:, :, 1:]  # (S, 1 or B, step - 1)
        written = torch.zeros_like(self._done_tokens)
        written[:, :, : self._step - 1] = history.gather(1, beams[:, :, None].expand(-1, -1, history.shape[2]))
        written[:, :, self._step - 1] = tokens
        merged = torch.cat((self._done_tokens, written), dim=1)
        self._done_tokens = merged.gather(1, best.indices[:, :, None].expand(-1, -1, merged.shape[2]))

    def _is_over(self) -> Tensor:
        """(S,) True where running hypotheses can no longer change the result."""
        all_done = self._is_done.all(dim=1)
        stop = all_done & (self._settings.early_stopping is True)
        penalty = self._settings.length_penalty
        if self._settings.early_stopping == "never" and penalty > 0.0:
            best_possible = self._running[:, 0] / self._limits.double().pow(penalty).float()
        else:
            best_possible = self._running[:, 0] / (self._step**penalty)
        worst = self._done_scores.amin(dim=1)
        threshold = torch.where(all_done, worst, torch.full_like(worst, _LOST))
        return stop | ~(best_possible > threshold)

    def _retire(self, is_over: Tensor) -> None:
        """Store the results of finished sentences and remove their rows from the batch."""
        over = is_over.nonzero().flatten().tolist()
        if not over:
            return
        for place in over:
            self.results[int(self._sentences[place])] = self._hypotheses(place)
        kept = (~is_over).nonzero().flatten()
        self._parents = self._parents.view(len(is_over), -1)[kept].flatten()
        self._limits, self._sentences = self._limits[kept], self._sentences[kept]
        self._prefixes, self._running = self._prefixes[kept], self._running[kept]
        self._done_tokens, self._done_lengths = self._done_tokens[kept], self._done_lengths[kept]
        self._done_log_probs, self._done_scores = self._done_log_probs[kept], self._done_scores[kept]
        self._is_done = self._is_done[kept]

    def _hypotheses(self, place: int) -> list[Hypothesis]:
        """The finished hypotheses of one sentence, best first."""
        lengths, tokens = self._done_lengths[place].tolist(), self._done_tokens[place].tolist()
        log_probs, scores = self._done_log_probs[place].tolist(), self._done_scores[place].tolist()
        found = [
            Hypothesis(tuple(ids[:length]), score, log_prob)
            for ids, length, score, log_prob in zip(tokens, lengths, scores, log_probs, strict=True)
        ]
        is_done = self._is_done[place].tolist()
        possible = [h for h, done in zip(found, is_done, strict=True) if done and h.log_probability > _HOPELESS]
        return possible[: self._settings.num_hypotheses] or found[:1]
