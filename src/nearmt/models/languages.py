"""Matches the language codes a user writes ("de", "de-AT", "deu_Latn") with those of a model."""

import difflib
import re
from collections.abc import Sequence

from nearmt.errors import ModelError

# ISO 639-1 codes and the three-letter codes that models use for the same language: 639-2/T and 639-3, 639-2/B, and the
# individual language that NLLB and OPUS use for a macrolanguage.
_CODES = """
    af=afr am=amh ar=ara/arb as=asm az=aze/azj ba=bak be=bel bg=bul bn=ben bo=bod/tib br=bre bs=bos ca=cat
    cs=ces/cze cy=cym/wel da=dan de=deu/ger el=ell/gre en=eng eo=epo es=spa et=est/ekk eu=eus/baq fa=fas/per/pes
    fi=fin fo=fao fr=fra/fre fy=fry ga=gle gd=gla gl=glg gn=grn gu=guj ha=hau he=heb hi=hin hr=hrv ht=hat hu=hun
    hy=hye/arm id=ind ig=ibo is=isl/ice it=ita ja=jpn jv=jav ka=kat/geo kk=kaz km=khm kn=kan ko=kor ks=kas
    ku=kur/kmr ky=kir lb=ltz lg=lug ln=lin lo=lao lt=lit lv=lav/lvs mg=mlg/plt mi=mri/mao mk=mkd/mac ml=mal
    mn=mon/khk mr=mar ms=msa/may/zsm mt=mlt my=mya/bur nb=nob ne=nep/npi nl=nld/dut nn=nno no=nor ny=nya oc=oci
    om=orm/gaz or=ori/ory pa=pan pl=pol ps=pus/pbt pt=por ro=ron/rum ru=rus rw=kin sa=san sd=snd si=sin
    sk=slk/slo sl=slv sm=smo sn=sna so=som sq=sqi/alb/als sr=srp ss=ssw st=sot su=sun sv=swe sw=swa/swh ta=tam
    te=tel tg=tgk th=tha ti=tir tk=tuk tl=tgl tn=tsn tr=tur ts=tso tt=tat ug=uig uk=ukr ur=urd uz=uzb/uzn vi=vie
    wo=wol xh=xho yi=yid/ydd yo=yor zh=zho/chi/cmn zu=zul
"""
_TWO_LETTER_CODES = {
    three: two for two, _, threes in (entry.partition("=") for entry in _CODES.split()) for three in threes.split("/")
}
_SCRIPTS_OF_REGIONS = {"tw": "hant", "hk": "hant", "mo": "hant", "cn": "hans", "sg": "hans"}
_SUBSTITUTES = {"no": "nb", "iw": "he", "in": "id"}  # language → another code that a model may have for it
_DEFAULT_SUBTAGS = {"zh": ["hans"]}


def _subtags(code: str) -> list[str]:
    """Lower-case parts of a code, the language first and as two letters where it has such a code."""
    language, *rest = [part for part in re.split(r"[-_]+", code.strip().lower()) if part] or [""]
    return [_TWO_LETTER_CODES.get(language, language), *rest]


def is_known_language(code: str) -> bool:
    """True if the language of the code is in the table of common languages."""
    return _subtags(code)[0] in _TWO_LETTER_CODES.values()


def same_language(one: str, other: str) -> bool:
    """True if two codes are of the same language and do not state different scripts; regions do not matter."""
    first, second = _subtags(one), _subtags(other)
    if _SUBSTITUTES.get(first[0], first[0]) != _SUBSTITUTES.get(second[0], second[0]):
        return False
    scripts = _scripts(first), _scripts(second)
    return not (scripts[0] and scripts[1] and scripts[0] != scripts[1])


def _scripts(subtags: Sequence[str]) -> str | None:
    for part in subtags[1:]:
        if len(part) == 4:
            return part
        if subtags[0] == "zh" and part in _SCRIPTS_OF_REGIONS:
            return _SCRIPTS_OF_REGIONS[part]
    return None


def plain_code(code: str, codes: Sequence[str] = ()) -> str:
    """A code as users write it: "deu_Latn" → "de"; further subtags are kept only if the model needs them.

    `codes` are all codes of the model: "zho_Hans" stays "zh-Hans" beside "zho_Hant".
    """
    language, *rest = _subtags(code)
    if codes and sum(_subtags(other)[0] == language for other in codes) < 2:
        return language
    parts = [part.title() if len(part) == 4 else part.upper() for part in rest if part != "xx"]
    return "-".join([language, *parts])


def resolve_code(wanted: str, codes: Sequence[str], *, model: str) -> str:
    """The model's own code for the language that a user requested."""
    folded = {re.sub(r"[-_]+", "-", code.lower()): code for code in codes}
    exact = wanted if wanted in codes else folded.get(re.sub(r"[-_]+", "-", wanted.strip().lower()))
    if exact is not None:
        return exact
    candidates = [code for code in codes if same_language(wanted, code)]
    if len(candidates) > 1:
        candidates = _prefer(wanted, candidates)
    if len(candidates) == 1:
        return candidates[0]
    if candidates:
        raise ModelError(f"{model} has more than one code for {wanted!r}: {', '.join(sorted(candidates))}")
    near = _near_codes(wanted, codes)
    raise ModelError(f"{model} does not know the language {wanted!r}; similar codes are {', '.join(near)}")


def _prefer(wanted: str, candidates: Sequence[str]) -> list[str]:
    """The candidates with the same language code as the requested one, then those with the most subtags in common."""
    requested = _subtags(wanted)
    own = [code for code in candidates if _subtags(code)[0] == requested[0]] or list(candidates)
    rest = set(requested[1:]) or set(_DEFAULT_SUBTAGS.get(requested[0], ()))
    shared = {code: len(rest & set(_subtags(code)[1:])) for code in own}
    best = [code for code in own if shared[code] == max(shared.values())]
    bare = [code for code in best if len(_subtags(code)) == 1]
    return bare if len(best) > 1 and len(bare) == 1 else best


def _near_codes(wanted: str, codes: Sequence[str]) -> list[str]:
    by_plain = {plain_code(code): code for code in codes}
    near = [by_plain[name] for name in difflib.get_close_matches(wanted.lower(), by_plain, n=6, cutoff=0.3)]
    near += [code for code in sorted(codes) if code[:1].lower() == wanted[:1].lower() and code not in near]
    return (near or sorted(codes))[:8]
