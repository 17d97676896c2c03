r"""The words by which replies in ten languages deny an answer, affirm it, and mark the one that they mean.

The languages are English, Chinese, Spanish, French, German, Portuguese, Russian, Arabic, Japanese and Korean. The
patterns say what stands directly before or behind an answer; what an answer is, ``stated.py`` and ``yes_no.py``
say. Every search takes time in proportion to the text.
"""

from __future__ import annotations

from dataclasses import dataclass

import regex

__all__ = [
    "ASIDE",
    "ASKED",
    "CLOSING",
    "JOINED",
    "MARK",
    "NAMED",
    "REASONS",
    "VERBS",
    "affirmed",
    "denied",
    "denied_before",
    "denied_by_a_verb",
    "is_known",
    "is_of_one",
]

CLOSING = r"[)\]}\"”'’*_`）】」』>]"
"""Characters that can stand behind an answer and are no part of it."""
_STOP = r".,;:!?\n。，、；：！？،؛؟"
_CLAUSE_ENDS = (
    rf"(?={CLOSING}*\s*(?:[{_STOP}]|\Z|(?:and|but|und|aber|et|mais|y|pero|e|mas|и|а|но)\s|[(（]?[A-Z0-9][)）.:：]))"
)


@dataclass(frozen=True, slots=True)
class _Language:
    """Patterns of one language.

    Behind an answer: ``false`` denies it, also where the words ``gap`` stand between; ``unfit`` denies it where nothing
    stands between; ``false_word`` is an adjective that denies it alone; ``right`` affirms it. Before an answer:
    ``denied`` denies it, and ``mark`` says that it is meant. ``known`` are words that no language has in this sense
    but the ten.
    """

    false: str
    unfit: str
    false_word: str
    right: str
    denied: str
    mark: str
    known: str
    gap: str


def _gap(words: str, characters: int = 60) -> str:
    """Return a pattern of so many characters of the same clause, over none of the ``words``, which begin or join
    another thought.
    """
    return rf"(?:(?!{words})[^{_STOP}]){{0,{characters}}}?"


def _spaced(words: str) -> str:
    return rf"\b(?:{'|'.join(words.split())})\b"


# Between "answer" and "is" stands no label: "the option B is wrong" marks none. Single letters that are words may.
_TO_IS = r"(?:(?!\b(?:[A-Z0-9]|[b-df-nq-tv-xz])\b)[^.:,\n]){0,40}?"
_LABEL_FOLLOWS = r"(?=[(（「『“\"'*\s]*[A-Za-z0-9](?![A-Za-z0-9]))"

_ENGLISH = _Language(
    false=r"\.?\s(?:(?:is|are|was|seems|looks|(?:would|must)(?:\sbe)?)\s(?:\p{L}+ly\s|also\s|very\s)?"
    r"(?:wrong|incorrect|unlikely|improbable|impossible|implausible|out"
    r"|not\s(?:be\s)?(?:the\s)?(?:right|correct|answer|likely|possible|plausible))"
    r"|(?:is|are|was)n['’]t\s(?:the\s)?(?:right|correct|answer)|(?:this|that|it)(?:\sis|['’]s)\s(?:\p{L}+ly\s)?false)\b",
    unfit=r"\.?\s(?:(?:is|are|was)(?:\s(?:both\s|all\s|also\s)?"
    r"(?:not(?!\s(?:wrong|incorrect|false)\b)|never|incorrect|wrong|false)\b|n['’]t)"
    r"|can(?:not|['’]t)\sbe\b(?!\s(?:wrong|incorrect|false))|does(?:\snot|n['’]t)\s(?:fit|match|apply)\b)",
    false_word=r"(?:wrong|incorrect|false)\b",
    right=r"\s(?:(?:is|was|seems|appears|must\sbe|would\sbe)\s(?:\p{L}+ly\s|also\s)?(?:the\s)?(?:most\s)?"
    r"(?:right|correct|true|best|answer)|fits)\b",
    denied=r"(?:(?:\bnot|n['’]t|\bcannot)(?:\sbe)?|\bnor|\bneither|\bthan|\binstead of|\bexcept|\banything\sbut"
    r"|(?<=\b(?:[A-Z0-9]|yes|no)[)\]\"'*]*\s)over"
    r"|\b(?:rul(?:e|es|ed|ing)\sout|eliminat(?:e|es|ed|ing))"
    r"|(?:\bdoubt|(?:\bnot|n['’]t|\bnever|\bcannot)\s(?:think|believe|say|suppose))(?:\sthat)?"
    r"(?:\s(?:it(?:['’]s|\sis)|the\sanswer\sis))?)\s+",
    mark=r"####"
    r"|(?<!\b(?:this|that)\s)\b(?:answers?|choice|option|(?:correct|right)\s(?:one|letter))\b"
    r"(?!\s[(\[\"'*]*+[A-Za-z0-9][)\]\"'*]*+(?:\s(?:is|are)\b|[:,]))"
    r"(?:(?!,\s[(\[\"'*]*+[A-Za-z0-9][)\]\"'*]*+\s(?:is|are)\b)[^.:\n$\\]){0,60}?(?:\b(?:is|are)\b|:|\*\*[ \t]*\n)",
    known=_spaced(
        "the and because since which that too with this are would while not it maybe from have has been were then than"
        " after before when where what there they must could"
        " should does both each other cannot neither nor option answer my"
    ),
    gap=r"(?:(?!\b(?:because|since|as|so|for|that|if|and|or|but|while|whereas|not|right|correct|best|others?"
    r"|rest|remaining|all|both|any|every|none)\b)[^.;!?\n]){0,120}?",
)

_GERMAN = _Language(
    false=r"\s(?:(?:ist|sind|war|wäre)\s(?:\p{L}+\s){0,2}?(?:falsch|inkorrekt|unrichtig|unzutreffend|es\snicht"
    r"|nicht\s(?:richtig|korrekt|zutreffend|die\s(?:richtige|korrekte|Antwort)))|stimmt\s(?:\p{L}+\s)?nicht"
    r"|trifft\s(?:\p{L}+\s)?nicht\szu|scheidet\s(?:\p{L}+\s){0,2}?aus|passt\s(?:\p{L}+\s)?nicht)\b",
    unfit=r"\s(?:(?:ist|sind|war|wäre)\s(?:\p{L}+\s)?nicht(?!\s(?:falsch|inkorrekt|unrichtig))"
    r"|kann\s(?:\p{L}+\s){0,2}?nicht|kommt\s(?:\p{L}+\s)?nicht|gilt\s(?:\p{L}+\s)?nicht|entfällt)\b",
    false_word=r"(?:falsch|inkorrekt|unrichtig|unzutreffend|nicht\s(?:richtig|korrekt))\b",
    right=r"\s(?:(?:ist|wäre|scheint)\s(?:\p{L}+\s){0,2}?(?:richtig|korrekt|zutreffend|Antwort|Lösung)\p{L}*"
    r"|stimmt|passt|trifft\szu)\b",
    denied=r"\b(?:(?:nicht|statt|anstatt|weder|noch|außer)|glaube\snicht,\sdass\s(?:es|die\sAntwort))\s",
    mark=rf"\b(?:Antwort|Lösung|(?:richtig|korrekt)(?:e|er|es)?)\b{_TO_IS}(?:\b(?:ist|lautet|wäre|sind)\b|:)",
    known=_spaced("und ist nicht weil denn aber eine sind oder"),
    gap=_gap(_spaced("und oder weil denn da aber sondern richtig korrekt nicht")) + r"(?=\s)",
)

_FRENCH = _Language(
    false=r"\s(?:(?:est|sont|serait)\s(?:\p{L}+\s){0,2}?(?:faux|fausses?|incorrecte?s?|erronée?s?|inexacte?s?|à\sécarter"
    r"|à\sexclure|à\séliminer)|n['’](?:est|était)\s(?:\p{L}+\s)?pas\s(?:la\s)?(?:bonne|correcte?|juste|exacte?|réponse)"
    r"|ne\sconvient\spas)\b",
    unfit=r"\s(?:n['’](?:est|était|a)\s(?:\p{L}+\s)?(?:pas|plus)(?!\s(?:faux|fausse|incorrecte?|erronée?))"
    r"|ne\s(?:\p{L}+\s){1,2}?pas)\b",
    false_word=r"(?:faux|fausse|incorrecte?|erronée?|inexacte?)\b",
    right=r"\s(?:est|serait|semble)\s(?:\p{L}+\s){0,2}?(?:correcte?|juste|vraie?|exacte?|bonne|bon|réponse)\b",
    denied=r"\b(?:pas|non|ni|sauf|plutôt\sque|au\slieu\sde)\s"
    r"(?:que\s(?:ce\s(?:soit|serait)|la\sréponse\s(?:est|soit))\s)?(?:l[ae]\s)?",
    mark=rf"\b(?:réponse|solution|(?:la|le)\s(?:bonne?|correcte?))\b{_TO_IS}(?:\best\b|:)",
    known=_spaced("est les des parce car une réponse donc avis"),
    gap=_gap(_spaced("et ou car parce puisque mais correcte? juste pas")) + r"(?=\s)",
)

_SPANISH = _Language(
    false=r"\s(?:(?:es|son|está|era|sería)\s(?:\p{L}+\s)?(?:incorrect|fals|erróne|equivocad)[ao]s?|está\smal"
    r"|no\s(?:es|está)\s(?:la\s)?(?:correct[ao]|respuesta|verdader[ao]|ciert[ao])|se\sdescarta|queda\sdescartad[ao])\b",
    unfit=r"\sno\s(?:l[oa]\s)?(?:es|son|está|puede|sirve|corresponde|vale|cumple|encaja)\b"
    r"(?!\s(?:incorrect|fals|erróne|equivocad))",
    false_word=r"(?:incorrect|fals|erróne|equivocad)[ao]\b|no\b",
    right=r"\s(?:(?:es|está|sería|parece)\s(?:\p{L}+\s){0,2}?(?:correct[ao]|verdader[ao]|ciert[ao]|bien|respuesta)|sí)\b",
    denied=r"\b(?:no|ni|excepto|salvo|en\s(?:vez|lugar)\sde)\s(?:(?:creo|pienso)\sque\s(?:la\srespuesta\s)?(?:sea|es)\s)?"
    r"(?:es\s)?(?:la\s)?",
    mark=rf"\b(?:respuesta|solución|opción\scorrecta|la\scorrecta|lo\scorrecto)\b{_TO_IS}(?:\bes\b|:)|\bcorrecta:",
    known=_spaced("es porque los las está pero respuesta muy mi"),
    gap=_gap(_spaced("y o porque pues pero sino correct[ao] no")) + r"(?=\s)",
)

_PORTUGUESE = _Language(
    false=r"\s(?:(?:é|são|está|estão|era|seria)\s(?:\p{L}+\s)?(?:incorret|errad|fals|equivocad)[ao]s?"
    r"|não\s(?:é|está)\s(?:a\s)?(?:corret[ao]|cert[ao]|resposta|verdadeir[ao]))\b",
    unfit=r"\snão\s(?:[oa]\s)?(?:é|são|está|pode|serve|corresponde|se)\b(?!\s(?:incorret|errad|fals|equivocad))",
    false_word=r"(?:incorret|errad|fals|equivocad)[ao]\b|não\b",
    right=r"\s(?:é|está|seria|parece)\s(?:\p{L}+\s){0,2}?(?:corret[ao]|cert[ao]|verdadeir[ao]|resposta)\b",
    denied=r"\b(?:não|nem|exceto|em\svez\sd[eao]|ao\sinvés\sd[eao])\s(?:é\s)?(?:[ao]\s)?",
    mark=rf"\b(?:resposta|solução|(?:opção|alternativa|letra|a)\s(?:correta|certa))\b{_TO_IS}(?:\bé\b|:)|\bcorreta:",
    known=_spaced("é porque não está resposta uma pois são meu"),
    gap=_gap(_spaced("e ou porque pois mas corret[ao] cert[ao] não")) + r"(?=\s)",
)

_RUSSIAN = _Language(
    false=r"\s?[—–-]?\s?(?:(?:это|явно|тоже|является|здесь)\s){0,2}(?:неверн|неправильн|ошибочн|ложн|не\sверн|не\sправильн)"
    r"\p{L}*",
    unfit=r"\s?[—–-]?\s?(?:это\s)?не\s(?!ошиб|ложн|неверн|неправ)",
    false_word=r"(?:неверно|неправильно|неправда|нет)\b",
    right=r"\s?[—–-]?\s?(?:(?:это|является|здесь)\s){0,2}(?:(?:верн|правильн)\p{L}*|подходит|правда)\b",
    denied=r"\b(?:не|ни|вместо|кроме)\s",
    mark=r"\b(?:(?:правильн|верн)\p{L}*\s(?:ответ|вариант)\p{L}*|ответ|(?<!не)(?:правильно|верно))"
    rf"(?:\s?[—–:-]|\s(?:это|будет)\b|\s{_LABEL_FOLLOWS})",
    known=_spaced("это потому что является ответ так как верный правильный"),
    gap=_gap(r"\b(?:и|или|а|но|потому|так|это|верн\p{L}*|правильн\p{L}*|не)\b|[—–]") + r"(?=\s)",
)

_ARABIC = _Language(
    false=r"\s?(?:(?:هو|هي)\s)?(?:(?:خيار|إجابة|جواب)\s)?(?:(?:ال)?خ(?:طأ|اطئ)\p{L}*|غير\s(?:صحيح|دقيق|مناسب)\p{L}*"
    r"|ليست?\s(?:ال)?(?:صحيح|إجابة|جواب)\p{L}*)",
    unfit=r"\s?(?:ليست?(?!\sخ)|مستبعد\p{L}*|لا\s(?:يصح|يصلح|يمكن))",
    false_word=r"(?:خطأ|خاطئة?)",
    right=r"\s?(?:(?:هو|هي)\s)?(?:ال)?(?:(?:خيار|إجابة|جواب)\s)?(?:ال)?(?:صحيح|صواب)\p{L}*",
    denied=r"(?:ليست?|لا|بدلا?ً?ا?\s(?:من|عن)|ما\sعدا|باستثناء)\s(?:هو\s|هي\s)?",
    mark=r"(?:(?<!ليست\s)(?<!ليس\s)(?:الإجابة|الجواب|الخيار|الحل)(?:\sالصحيحة?)?|(?:ال|ف)?(?:صحيح|صواب)ة?)\s?(?:هي|هو|:)",
    known=r"(?<!\p{L})(?:هو|هي|لأن|الإجابة|الجواب|ليس|ليست|صحيح|صحيحة|خطأ)(?!\p{L})",
    gap=_gap(r"\s(?:و\p{L}|لأن|هو|هي|أو|ليس)", 40),
)

_CHINESE = _Language(
    false=r"\s?(?:选项|项|答案|这个选项)?(?:的?(?:说法|描述|表述|观点))?\s?(?:是|显然|明显|都|也|均|肯定|就|则|为)*"
    r"(?:错|不对|不正确|有误|不准确|不成立|不符合)",
    unfit=r"\s?(?:选项|项)?\s?(?:显然|明显|并|都|也|均|肯定|就|则|应该?|可以?|可)*"
    r"(?:不是|不选|不能|不行|不可能|不合|不对|排除|被排除)",
    false_word=r"(?:错误?的?|不对|不正确|误)",
    right=r"\s?(?:选项|项|答案)?(?:的?(?:说法|描述|表述|观点))?\s?(?:是|显然|明显|才|就|为)*"
    r"(?:正确|对(?![应于比])|没错|符合|成立|最合适|最佳|答案)",
    denied=r"(?:不是|不(?:认为|觉得)(?:答案)?是|不选择?|并非|而非|不应?该?选|不能选|排除了?|除了)\s?(?:选项|答案)?\s?",
    mark=r"(?:答案|解答|正确的?选项|(?<!不)正确的)\s?(?:应该?|应当|就|只能)?\s?(?:是(?!否)|为|选|：|:)"
    rf"|(?<![不没别])(?<!不[应能会该])(?<!不应该)选择?\s?{_LABEL_FOLLOWS}",
    known=r"\p{Han}",
    gap=_gap("[是而因所但和或与才不没对]|正确", 30),
)

_JAPANESE = _Language(
    false=r"\s?(?:は|が|も|、)?\s?(?:明らかに|実は)?(?:誤(?!りでは?な)|間違(?!いな|いあり)|正しく(?:な|あり)|不正解"
    r"|正解では(?:な|あり)|不適切)",
    unfit=r"\s?(?:は|が|も)?\s?(?:では(?:な|あり)|で(?:は)?なく|じゃな|違(?:う|い|っ)|該当し(?:な|ま)|当てはまら)",
    false_word=r"(?:誤り|間違い|不正解|[×✕])",
    right=r"\s?(?:が|は|こそ)?\s?(?:最も)?(?:正しい|正解|正答|適切|当てはま[るり]|合って|答え|[○◯])",
    denied=r"(?:誤り|間違い|不正解)(?:は|:|：)\s?",
    mark=r"(?<!不)(?:正解|答え|解答|回答|正答|正しい(?:もの|の|選択肢)?)(?:は|：|:)",
    known=r"[\p{Hiragana}\p{Katakana}]",
    gap=_gap("[はがも]|では|正", 30),
)

_KOREAN = _Language(
    false=r"\s?번?\s?(?:은|는|이|가|도)?\s?(?:(?:명백히|확실히|분명히)\s)?(?:틀[렸린리려]|오답|잘못|(?:맞|옳|정확하|적절하)지\s?않"
    r"|부정확|정답이?\s?아)",
    unfit=r"\s?번?\s?(?:은|는|이|가|도)?\s?(?:아[니닙닌님]|해당하지\s?않|될\s수\s없)",
    false_word=r"(?:틀림|틀렸음|오답)",
    right=r"\s?번?\s?(?:이|가|은|는)?\s?(?:정답|맞[습는다아]|옳[은습다]|올바|정확합|정확하다|적절합|적절하다)",
    denied=r"(?:오답|틀린\s?것)은?:?\s?",
    mark=r"(?:(?<!오)답|해답|(?:올바른|맞는|옳은)\s?것)(?:은|:|：)",
    known=r"\p{Hangul}",
    gap=_gap(r"[은는이가도]\s|정답|맞|옳", 30),
)

_LANGUAGES = (
    *(_ENGLISH, _GERMAN, _FRENCH, _SPANISH, _PORTUGUESE),
    *(_RUSSIAN, _ARABIC, _CHINESE, _JAPANESE, _KOREAN),
)


def _any(patterns: list[str]) -> str:
    return "|".join(f"(?:{pattern})" for pattern in patterns)


NAMED = (
    r"(?:(?i:option|choice|letter|number|antwort|variante|réponse|lettre|opción|respuesta|letra|opção|resposta"
    r"|alternativa|вариант|ответ|الخيار|الإجابة|الجواب|الحرف)\s+|(?:选项|答案|選択肢|보기|선택지)\s*)?"
)

JOINED = (
    rf"{CLOSING}*\.?\s*(?:[,;/&、，；]|\b(?:and|or|und|oder|et|ou|o|y|u|e|и|или)\b|或者?|和|与|及|还是|以及|か|と|や|または|も|또는"
    r"|이나|나|와|과|혹은|أو|و)\s*(?:(?:and|or|und|oder|et|ou|y|или)\b\s*)?[(\[{\"“'‘*_`（「『]*"
)

ASIDE = (
    r"\s?[(（](?!\s?(?:or|and|but|maybe|perhaps|possibly|though|although|oder|und|aber|ou|et|mais|o|y|pero|e|mas|или|и|но)\b)"
    r"(?=[^()（）\n]{0,200}\p{L}{2})[^()（）\n]{0,200}[)）]"
)
"""Words in brackets behind an answer, which are about others: "B (A is in Italy)"."""
ASKED = regex.compile(rf"{CLOSING}*+[?？]")

VERBS = (
    r"is|are|was|were|because|since|as|and|or|would|seems|appears|cannot|ca?n['’]t|does(?:n['’]t)?|ist|sind|war|wäre|stimmt|passt|trifft|scheidet|kann"
    r"|kommt|weil|denn|und|oder|est|sont|serait|n['’]est|ne|et|ou|car|es|está|son|sería|y|no\s(?:es|está|puede)|é|são|não"
)
"""Words before which a label is none: "A dog" and "2 days" are no answers, but "A ist falsch" says something of A."""
REASONS = (
    r"(?:because|since|as|weil|denn|da|parce|car|puisque|porque|pues|pois)\b|потому|так\sкак|لأن|因为|なぜなら|왜냐하면"
)
_FALSE = _any([language.false for language in _LANGUAGES])
_UNFIT = _any([language.unfit for language in _LANGUAGES])
_NO = r"(?:no|nein|non|não|нет|wait|sorry|actually|correction|scratch\sthat|I\smean)\b"


# "The answer is A. Wait, no: B": what takes an answer back marks another, unless it denies that one.
_TAKEN_BACK = (
    rf"\b(?={_NO})(?<=[.!?…;,—–\n*)\-]\s*)(?:{_NO}[\s,.:;!…—–\-]{{0,9}}+){{1,3}}+"
    r"(?:(?:it(?:['’]s|\sis)|(?:it\s)?(?:must|should)\sbe|es\sist|c['’]est|es|é|это)\s)?"
    rf"(?=[(\[\"'*]*(?-i:[A-Z]|[0-9])(?!\p{{L}}|[0-9])(?!{CLOSING}*+(?:{_FALSE}|{_UNFIT})))"
)

MARK = regex.compile(_any([*(language.mark for language in _LANGUAGES), _TAKEN_BACK]), regex.IGNORECASE)
_FALSE_WORD = rf"[\s:：=(（.—–-]*+(?:{_any([language.false_word for language in _LANGUAGES])}){_CLAUSE_ENDS}"
_FALSE_BEHIND = regex.compile(rf"{CLOSING}*+(?:{_FALSE})", regex.IGNORECASE)
_FALSE_WORD_BEHIND = regex.compile(rf"{CLOSING}*+{_FALSE_WORD}", regex.IGNORECASE)
_UNFIT_BEHIND = regex.compile(rf"{CLOSING}*+(?:{_UNFIT})", regex.IGNORECASE)

_FALSE_LATER = regex.compile(
    rf"{CLOSING}*+[.:：]?{CLOSING}*+(?!{_FALSE})"
    rf"(?:{_any([language.gap + language.false for language in _LANGUAGES])})",
    regex.IGNORECASE,
)

_RIGHT = regex.compile(
    rf"{CLOSING}*+(?:{_any([language.right for language in _LANGUAGES])})"
    rf"|[\s:：=(（.—–-]*+(?:(?:this|that|it)(?:\sis|['’]s)\s)?(?:right|correct|true|richtig|korrekt|correcte?|juste|vrai|correct[ao]|corret[ao]|cert[ao]|верно"
    rf"|правильно|صحيح|صحيحة|正确|对|正解|정답|맞음){_CLAUSE_ENDS}",
    regex.IGNORECASE,
)

_NOT = regex.compile(
    rf"(?:{_any([language.denied for language in _LANGUAGES])})\s*{NAMED}[(\[\"'*“「『（]*\Z", regex.IGNORECASE
)
_IF = regex.compile(
    r"\b(?:if|whether|wenn|falls|ob|si|se|если|ли)\s[^.]{0,10}\Z|(?:如果|若|もし|만약|إذا)\s*\Z", regex.IGNORECASE
)
_SPEAKS_OF_ONE = regex.compile(r"\W*(?:is|was|ist|war|est|n['’]est|es|está|no\ses|é|não\sé)\b", regex.IGNORECASE)
_KNOWN = regex.compile(_any([language.known for language in _LANGUAGES]), regex.IGNORECASE)
_NEAR = 40


def denied(text: str, end: int, own_end: int) -> str | None:
    """Return the words behind an answer that say that it is wrong; None where there are none.

    The answer ends at ``end``, and at ``own_end`` where the text of its option follows it. The words stand directly
    behind it, or later in the same clause.
    """
    found = (
        _FALSE_BEHIND.match(text, own_end)
        or _FALSE_WORD_BEHIND.match(text, own_end)
        or _UNFIT_BEHIND.match(text, end)
        or _FALSE_LATER.match(text, own_end)
    )
    return None if found is None else found[0]


def denied_by_a_verb(text: str, end: int) -> bool:
    """Return whether a sentence whose subject is the answer before ``end`` denies it: "No. Wrong." does not."""
    return (_FALSE_BEHIND.match(text, end) or _UNFIT_BEHIND.match(text, end)) is not None


def denied_before(text: str, start: int) -> bool:
    """Return whether the words before an answer that begins at ``start`` say that it is not meant."""
    return _NOT.search(text[max(0, start - _NEAR) : start]) is not None


def affirmed(text: str, start: int, end: int) -> bool:
    """Return whether the words behind an answer say that it is right, and not only if it is."""
    return _RIGHT.match(text, end) is not None and _IF.search(text[max(0, start - _NEAR) : start]) is None


def is_known(text: str) -> bool:
    """Return whether a text has words of one of the ten languages, so that it would be seen what it denies."""
    return _KNOWN.search(text) is not None


def is_of_one(words: str) -> bool:
    """Return whether words behind an answer speak of one: in "B and A is wrong" B is not."""
    return _SPEAKS_OF_ONE.match(words) is not None
