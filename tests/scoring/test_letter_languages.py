"""What replies in ten languages deny, and what is read where nobody could say which label is meant."""

from __future__ import annotations

import pytest

from pytest_llmeval.scorers.reading.stated import stated_label

OPTIONS = ["Roma", "Oslo", "Bern"]
REPLIES: dict[str, list[tuple[str, str | None]]] = {
    "English": [
        ("I don't think it's A", None),
        ("I don't believe A is right", None),
        ("I doubt it is A", None),
        ("A is out", None),
        ("Rule out A", None),
        ("I would eliminate A.", None),
        ("Anything but A", None),
        ("I don't think it's A; B is right", "B"),
        ("Rule out A, so B", "B"),
        ("A is wrong. B is correct.", "B"),
        ("A) Roma is wrong. The correct one is B", "B"),
        ("A and C are both wrong. B is correct.", "B"),
        ("A and C are both wrong, so B.", "B"),
        ("It is B and A is wrong.", "B"),
        ("A is not the answer, B is.", "B"),
        ("A does not fit, but B does.", "B"),
        ("A: wrong. B: correct. C: wrong.", "B"),
        ("It can't be A. It must be B.", "B"),
        ("A cannot be right, so B.", "B"),
        ("Neither A nor C; B.", "B"),
        ("B rather than A", "B"),
        ("A is wrong.", None),
        ("A is what I first thought. B fits better.", "B"),
        ("A is near. B is far.", None),
        ("B or maybe C", None),
        ("B, since A is wrong.", "B"),
        ("B. A is too small and C is too large.", "B"),
        ("B\n\nA is in Italy.", "B"),
        ("B. Oslo\nA lies in the south.", "B"),
    ],
    "German": [
        ("Ich glaube nicht, dass es A ist", None),
        ("A) ist falsch. Richtig ist B.", "B"),
        ("A. Roma ist es nicht. Es ist B.", "B"),
        ("A ist nicht richtig, B ist richtig.", "B"),
        ("Nicht A, sondern B.", "B"),
        ("Weder A noch C, also B.", "B"),
        ("A stimmt nicht. Die richtige Antwort lautet B.", "B"),
        ("Die Antwort ist A. Nein, es ist B.", "B"),
        ("A scheidet aus, C ist ebenfalls nicht richtig, bleibt B", "B"),
        ("A: falsch, B: richtig, C: falsch", "B"),
        ("B ist richtig, weil A falsch ist.", "B"),
        ("A kann es nicht sein, daher B.", "B"),
        ("Option A ist falsch.", None),
        ("A oder B", None),
        ("Die Antwort ist B und nicht A.", "B"),
        ("B statt A", "B"),
        ("B. A ist zu klein und C zu groß.", "B"),
        ("Antwort: B", "B"),
    ],
    "French": [
        ("Je ne pense pas que ce soit A", None),
        ("A est faux. La bonne réponse est B.", "B"),
        ("A n'est pas correcte, B est correcte.", "B"),
        ("Ce n'est pas A, c'est B.", "B"),
        ("A. Roma n’est pas la bonne réponse. C'est B.", "B"),
        ("Ni A ni C, donc B.", "B"),
        ("A : faux. B : juste. C : faux.", "B"),
        ("La réponse A est incorrecte ; la réponse B est juste.", "B"),
        ("Réponse : B", "B"),
        ("B, car A est erronée.", "B"),
        ("A ne convient pas. B convient.", "B"),
        ("A est fausse.", None),
        ("A ou B", None),
        ("Plutôt B que C", None),
        ("B plutôt que A", "B"),
        ("La réponse est B et non A.", "B"),
    ],
    "Spanish": [
        ("No creo que sea A", None),
        ("A es incorrecta. La respuesta correcta es la B.", "B"),
        ("A no es correcta; B sí.", "B"),
        ("No es A, sino B.", "B"),
        ("A) Roma es falsa. La correcta es B.", "B"),
        ("Ni A ni C: B.", "B"),
        ("A: incorrecta, B: correcta, C: incorrecta", "B"),
        ("La opción A está mal y la opción B está bien.", "B"),
        ("Respuesta: B", "B"),
        ("B, porque A es errónea.", "B"),
        ("B en lugar de A", "B"),
        ("A no puede ser. Es B.", "B"),
        ("A es falsa.", None),
        ("A o B", None),
        ("A y B", None),
        ("La opción A es incorrecta.", None),
    ],
    "Portuguese": [
        ("A está errada. A resposta correta é B.", "B"),
        ("A não é correta; B é correta.", "B"),
        ("Não é a A, é a B.", "B"),
        ("A) Roma está incorreta. A certa é B.", "B"),
        ("Nem A nem C: B.", "B"),
        ("A: errada, B: correta, C: errada", "B"),
        ("A alternativa C está errada e a alternativa B está certa.", "B"),
        ("Resposta: B", "B"),
        ("B, porque C é falsa.", "B"),
        ("B em vez de C", "B"),
        ("A alternativa correta é B.", "B"),
        ("C não pode ser. É B.", "B"),
        ("C está errada.", None),
        ("B ou C", None),
    ],
    "Russian": [
        ("A неверно. Правильный ответ B.", "B"),
        ("A — неправильный ответ, B — правильный.", "B"),
        ("Не A, а B.", "B"),
        ("A) Roma — неверно. Верный ответ: B", "B"),
        ("Ни A, ни C, значит B.", "B"),
        ("A: неверно, B: верно, C: неверно", "B"),
        ("Вариант A ошибочный, вариант B верный.", "B"),
        ("Ответ: B", "B"),
        ("B, потому что A неправильно.", "B"),
        ("A не подходит, подходит B.", "B"),
        ("B вместо A", "B"),
        ("A неверно.", None),
        ("A или B", None),
        ("A и B", None),
    ],
    "Arabic": [
        ("A خطأ، والصحيح هو B.", "B"),
        ("A غير صحيح، B صحيح.", "B"),
        ("ليس A بل B.", "B"),
        ("الخيار A خاطئ والخيار B صحيح.", "B"),
        ("A ليست الإجابة الصحيحة. الإجابة الصحيحة هي B.", "B"),
        ("الإجابة: B", "B"),
        ("الجواب الصحيح هو B", "B"),
        ("A: خطأ، B: صحيح، C: خطأ", "B"),
        ("B، لأن A غير صحيح.", "B"),
        ("B بدلا من A", "B"),
        ("A مستبعد، إذن B.", "B"),
        ("A خاطئة.", None),
        ("A أو B", None),
        ("A وB", None),
    ],
    "Chinese": [
        ("我不认为是A", None),
        ("A错误，B正确", "B"),
        ("A是错误的，B是正确的。", "B"),
        ("A不对，应该选B。", "B"),
        ("不是A，是B。", "B"),
        ("选项A的说法不正确，故选B。", "B"),
        ("A选项中的罗马是错误的，答案是B。", "B"),
        ("排除A和C，选B。", "B"),
        ("A和C都错，B对。", "B"),
        ("正确答案是B，而不是A。", "B"),
        ("答案：B", "B"),
        ("B，因为A不符合题意。", "B"),
        ("A、C均不正确，因此答案为B。", "B"),
        ("A. Roma不对。选B。", "B"),
        ("A错误。", None),
        ("A或B", None),
        ("A还是B？", None),
        ("B没错，A错了。", "B"),
        ("不应选A。", None),
    ],
    "Japanese": [
        ("Aは誤りです。正解はBです。", "B"),
        ("Aは間違いで、Bが正しい。", "B"),
        ("AではなくBです。", "B"),
        ("Aは正しくありません。答えはBです。", "B"),
        ("Aは不正解、Bは正解。", "B"),
        ("AもCも違います。Bです。", "B"),
        ("A：誤り、B：正解、C：誤り", "B"),
        ("解答：B", "B"),
        ("Bで間違いない。", "B"),
        ("Aの説明は不適切なので、Bが適切です。", "B"),
        ("正しいのはBで、Aではありません。", "B"),
        ("Aは間違いです。", None),
        ("AかB", None),
        ("AまたはB", None),
        ("AとB", None),
    ],
    "Korean": [
        ("A는 틀렸고 정답은 B입니다.", "B"),
        ("A는 오답이고 B가 정답입니다.", "B"),
        ("A가 아니라 B입니다.", "B"),
        ("A는 정답이 아닙니다. B가 맞습니다.", "B"),
        ("A는 옳지 않습니다. B가 옳습니다.", "B"),
        ("A와 C는 틀리고 B가 맞다.", "B"),
        ("정답: B", "B"),
        ("답은 A가 아닌 B입니다.", "B"),
        ("A: 오답, B: 정답, C: 오답", "B"),
        ("A의 설명은 잘못되었으므로 B입니다.", "B"),
        ("B입니다. A는 맞지 않습니다.", "B"),
        ("A는 틀렸습니다.", None),
        ("A 또는 B", None),
        ("A나 B", None),
    ],
    "a language that is not known": [
        ("A je špatně. Správně je B.", None),
        ("A è sbagliata, la risposta è B.", None),
        ("A. Roma is fout, B is juist.", None),
        ("A lub B", None),
        ("A yanlış, doğru cevap B.", None),
        ("A गलत है, B सही है", None),
        ("A sai, B đúng", None),
        ("A غلط ہے، صحیح جواب B ہے", None),
        ("A хибна, правильна відповідь B", None),
        ("B", "B"),
        ("B. Oslo", "B"),
        ("B\n\nA je na jihu.", "B"),
        ("Správně je B.", "B"),
        # a single label is read; whether it is denied nobody knows here
        ("Det är inte A", "A"),
        ("To nie A", "A"),
        ("(B) Oslo\nA je na jihu.", "B"),
    ],
}


def test_each_language_has_a_table() -> None:
    assert len(REPLIES) == 11
    assert min(map(len, REPLIES.values())) >= 10


@pytest.mark.parametrize(
    ("reply", "label"), [pytest.param(*case, id=f"{of}: {case[0]}") for of, cases in REPLIES.items() for case in cases]
)
def test_what_a_person_who_knows_the_language_reads(reply: str, label: str | None) -> None:
    assert stated_label(reply, "ABC", OPTIONS) == label


@pytest.mark.parametrize(
    ("options", "replies"),
    [
        (["True", "False"], ["B. False", "B) False", "B: False", "B False", "The answer is B, false"]),
        (["Richtig", "Falsch"], ["B. Falsch", "B) falsch", "B: Falsch", "Die Antwort ist B (falsch)"]),
        (["Vrai", "Faux"], ["B. Faux", "B) faux", "Réponse : B, faux"]),
        (["Verdadero", "Falso"], ["B. Falso", "B) falso", "Respuesta: B (falso)"]),
        (["Certo", "Errado"], ["B. Errado", "B) errado", "Resposta: B - errado"]),
        (["Верно", "Неверно"], ["B. Неверно", "B) неверно", "Ответ: B — неверно"]),
        (["صحيح", "خطأ"], ["B. خطأ", "B) خطأ", "الإجابة: B (خطأ)"]),
        (["正确", "错误"], ["B. 错误", "B错误", "B：错误", "答案是B（错误）。"]),
        (["正しい", "誤り"], ["B. 誤り", "B：誤り", "正解はB（誤り）"]),
        (["맞다", "틀리다"], ["B. 틀리다", "B) 틀리다", "정답은 B. 틀리다"]),
    ],
    ids=lambda value: value[1] if len(value) == 2 else "",
)
def test_an_option_that_says_wrong_is_not_denied_by_its_own_text(options: list[str], replies: list[str]) -> None:
    assert [stated_label(reply, "AB", options) for reply in replies] == ["B"] * len(replies)


@pytest.mark.parametrize(
    "digits", ["1 ist falsch, 2 ist richtig.", "1错误，2正确", "Not 1 but 2", "1は誤り、2が正しい"]
)
def test_labels_that_are_numbers_are_denied_too(digits: str) -> None:
    assert stated_label(digits, "123", OPTIONS) == "2"


@pytest.mark.parametrize(
    "piece", ["A错误", "A ist falsch. ", "ответ ", "选择 ", "A oder ", "la respuesta ", "A  ", "정답 "]
)
def test_a_long_reply_is_read(piece: str) -> None:
    """In time in proportion to it: of quadratic time this would take hours."""
    stated_label(piece * (50_000 // len(piece)), "ABC", OPTIONS)
