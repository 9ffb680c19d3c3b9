"""Names of languages, and language identification, for the LibreTranslate and DeepL APIs."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from nearmt.corpus.languages import match_rank
from nearmt.errors import MissingExtraError


def _parse_names(text: str) -> dict[str, str]:
    return dict(entry.strip().split("=") for entry in text.split(","))


_NAMES = _parse_names(
    """
    af=Afrikaans, ar=Arabic, az=Azerbaijani, be=Belarusian, bg=Bulgarian, bn=Bengali, bs=Bosnian, ca=Catalan,
    cs=Czech, cy=Welsh, da=Danish, de=German, el=Greek, en=English, eo=Esperanto, es=Spanish, et=Estonian,
    eu=Basque, fa=Persian, fi=Finnish, fr=French, ga=Irish, gl=Galician, gu=Gujarati, he=Hebrew, hi=Hindi,
    hr=Croatian, hu=Hungarian, hy=Armenian, id=Indonesian, is=Icelandic, it=Italian, ja=Japanese, ka=Georgian,
    kk=Kazakh, km=Khmer, kn=Kannada, ko=Korean, lb=Luxembourgish, lo=Lao, lt=Lithuanian, lv=Latvian, mk=Macedonian,
    ml=Malayalam, mn=Mongolian, mr=Marathi, ms=Malay, mt=Maltese, my=Burmese, nb=Norwegian Bokmål, ne=Nepali,
    nl=Dutch, nn=Norwegian Nynorsk, no=Norwegian, pa=Punjabi, pl=Polish, pt=Portuguese, ro=Romanian, ru=Russian,
    si=Sinhala, sk=Slovak, sl=Slovenian, sq=Albanian, sr=Serbian, sv=Swedish, sw=Swahili, ta=Tamil, te=Telugu,
    th=Thai, tl=Tagalog, tr=Turkish, uk=Ukrainian, ur=Urdu, uz=Uzbek, vi=Vietnamese, xh=Xhosa, yi=Yiddish,
    yo=Yoruba, zh=Chinese, zu=Zulu
    """
)
_REGIONS = {
    "en-us": "English (American)",
    "en-gb": "English (British)",
    "pt-pt": "Portuguese (European)",
    "pt-br": "Portuguese (Brazilian)",
    "zh-hans": "Chinese (simplified)",
    "zh-hant": "Chinese (traditional)",
}


def language_name(code: str) -> str:
    """The English name of a language, or its code if the name is unknown."""
    normal = code.replace("_", "-").lower()
    return _REGIONS.get(normal) or _NAMES.get(normal.partition("-")[0], code)


@dataclass(frozen=True)
class Guess:
    """A possible language of a text."""

    code: str
    confidence: float  # 0 to 100


@lru_cache(maxsize=1)
def _identifier() -> Any:
    try:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier
    except ImportError:
        raise MissingExtraError("language identification", "nearmt[server]") from None
    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


def guess_languages(text: str, among: Iterable[str] = ()) -> list[Guess]:
    """The most likely languages of a text, best first; only languages in `among`, unless it is empty."""
    ranked = [(str(code), float(probability)) for code, probability in _identifier().rank(text[:5000])]
    wanted = list(dict.fromkeys(among))
    if wanted:
        fitting = [(own, p) for code, p in ranked for own in wanted if match_rank(own, code) is not None]
        total = sum(p for _, p in fitting)
        if fitting and total > 0:
            ranked = fitting
        else:
            return [Guess(wanted[0], 0.0)]
    return [Guess(code, round(100 * p, 1)) for code, p in ranked[:3] if p > 0.005] or [Guess(ranked[0][0], 0.0)]
