"""What replies say. Ids of the form P01 are the cases of docs/field-reports.md."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from medagents_async.parsing import fields, option, sections, trim_analysis, visible, vote

DRUGS = {"A": "Aspirin", "B": "Heparin", "C": "Furosemide", "D": "Digoxin"}
TEN = {key: f"Finding {number}" for number, key in enumerate("ABCDEFGHIJ")}
VITAMINS = {"A": "Vitamin A", "B": "Vitamin B12", "C": "Vitamin C", "D": "Vitamin D"}
GERMS = {"A": "E. coli", "B": "C. difficile", "C": "H. pylori", "D": "S. aureus", "E": "Candida"}
TRICKY = {"A": "A beta blocker", "B": "None of the above", "C": "Both A and B", "D": "patient care"}
BLOOD = {"A": "O", "B": "A", "C": "B", "D": "AB"}
DOSES = {"A": "<5 mg", "B": ">5 mg", "C": "5 mg", "D": "1.5 mg"}
TWINS = {"A": "Rest", "B": "Rest", "C": "Surgery"}

Rows = Sequence[tuple[object, ...]]


def table(names: str, rows: Rows) -> pytest.MarkDecorator:
    """Parametrise over `rows`, whose first column is the id and is passed to no argument."""
    return pytest.mark.parametrize(names, [pytest.param(*row[1:], id=str(row[0])) for row in rows])


# --- visible --------------------------------------------------------------------------------------


@table(
    "reply, said, thought",
    [
        ("plain", "Option: C", "Option: C", None),
        ("blank", " \n", "", None),
        ("P28", "<think>A? no.</think>\nAnswer: C", "Answer: C", "A? no."),
        ("P28-cut", "<think>maybe A… B…", "", "maybe A… B…"),
        ("P28-cut-late", "Oedema.\n<think>maybe A", "Oedema.", "maybe A"),
        ("P28-pre-opened", "A? No, C.</think>\n\nAnswer: C", "Answer: C", "A? No, C."),
        ("P28-tagless", "Let me see. Option A first,", "Let me see. Option A first,", None),
        ("P27-empty-thought", "<think>\n\n</think>\n\nYES", "YES", None),
        ("P27-in-thought", '<think>{"answer":"B"}</think>', "", '{"answer":"B"}'),
        ("several", "<think>a</think>one<think>b</think>two", "one\ntwo", "a\n\nb"),
        ("closed-twice", "first</think>second</think>third", "third", "first\n\nsecond"),
        ("stray-close", "<think>a</think>b</think>c", "c", "a\n\nb"),
        ("tag-in-thought", "<think>the <think> tag</think>NO", "NO", "the\n\ntag"),
        ("thinking", "<thinking>K is 2.9</thinking>Option: D", "Option: D", "K is 2.9"),
        ("case", "<THINK>hm</Think>NO", "NO", "hm"),
        ("other-tag", "<b>NO</b>", "<b>NO</b>", None),
    ],
)
def test_visible_splits_off_thinking(reply: str, said: str, thought: str | None) -> None:
    assert visible(reply) == (said, thought)


# --- option: four drugs, A Aspirin, B Heparin, C Furosemide, D Digoxin ----------------------------


@table(
    "reply, key",
    [
        # field reports
        ("P01", "I must end with 'Answer: A/B/C/D'.\nThe oedema points one way.\nAnswer: C", "C"),
        ("P01-twice", "Answer:\n\nAnswer: C", "C"),
        ("P02", "The answer is B because a car moves.", "B"),
        ("P03", "Answer: **D**", "D"),
        ("P03-rejected", "I considered (A), but it is incorrect. Final answer: D.", "D"),
        ("P04", "Answer seems to be A.\n\nAnswer: A", "A"),
        ("P04-unclear", "Answer seems unclear.\nAnswer: B", "B"),
        ("P05", "The answer is (B) because A is wrong", "B"),
        ("P05-based", "Based on the history, the answer is C.", "C"),
        ("P06-boxed", r"ANSWER: \boxed{C}", "C"),
        ("P06-text", r"ANSWER: $\text{D}$", "D"),
        ("P06-code", "`ANSWER: (B)`", "B"),
        ("P06-dollar", "ANSWER: $A$", "A"),
        ("P07", "ANSWER: a\nHm, wait, the potassium is low.\nANSWER: b", "B"),
        ("P08", "ANSWER: A,", "A"),
        ("P09", "ANSWER: (B)\nLet me know if you need more.", "B"),
        ("P28", "<think>A? no.</think>\nAnswer: C", "C"),
        # decoration
        ("brackets", "Option: [B]", "B"),
        ("angle", "Answer: <C>", "C"),
        ("bold-line", "**Option: C**", "C"),
        ("bold-marker", "**Option:** C", "C"),
        ("bold-noun", "**Answer**: B", "B"),
        ("bold-stop", "Answer: **B**. Heparin", "B"),
        ("underscores", "__Answer:__ _B_", "B"),
        ("quotes", "Answer: “C”", "C"),
        ("single-quotes", "Answer: 'C'", "C"),
        ("code-letter", "Selected option: `D`", "D"),
        ("latex", r"The answer is \(C\).", "C"),
        ("display", "The answer is:\n\n$$\\boxed{\\text{C}}$$", "C"),
        ("bare-box", r"Hence \boxed{\mathrm{D}}", "D"),
        ("boxed-text", r"\boxed{Furosemide}", "C"),
        ("hope", r"Final Answer: The final answer is $\boxed{B}$. I hope it is correct.", "B"),
        ("end-token", "Option: C<|eot_id|>", "C"),
        ("header", "<|start_header_id|>assistant<|end_header_id|>\n\nOption: C", "C"),
        ("tick", "Answer: C ✅", "C"),
        ("equals", "Answer = C", "C"),
        ("dash", "Answer - C", "C"),
        ("tight", "ANSWER:C", "C"),
        ("tag", "<answer>C</answer>", "C"),
        ("arrow", "Answer -> C", "C"),
        ("spaced", "option: [ c ]", "C"),
        ("full-width", "答案:B", "B"),
        ("full-width-letter", "Answer: C", "C"),
        ("json", '{"answer_choice": "B", "confidence": 0.8}', "B"),
        # lines
        ("next-line", "Option:\n\nC", "C"),
        ("heading", "## Final Answer\n\n**C**", "C"),
        ("underlined", "Answer\n------\nC", "C"),
        ("no-colon", "Oedema.\nFinal answer C", "C"),
        ("repeated", "Option: B\n\nOption: B\n\nOption: B", "B"),
        ("changed-mind", "Option: C\nOption: D", "D"),
        # the letter with its text
        ("paren-text", "Option: B) Heparin", "B"),
        ("dot-text", "Option: B. Heparin", "B"),
        ("glued-text", "Answer: B.Heparin", "B"),
        ("colon-text", "Option: C: Furosemide", "C"),
        ("bracketed-text", "Answer: B (Heparin)", "B"),
        ("dash-text", "Answer: B – Heparin", "B"),
        ("slash-text", "Answer: C/Furosemide", "C"),
        ("space-text", "Option: C Furosemide, 40 mg", "C"),
        ("lower-text", "Answer: c) furosemide", "C"),
        ("text-letter", "The correct answer is Furosemide (C).", "C"),
        ("text-only", "Answer: Heparin", "B"),
        ("text-sentence", "The answer is furosemide. It blocks the loop.", "C"),
        # lower case right after a marker
        ("lower", "Option: b", "B"),
        ("lower-is", "the answer is a", "A"),
        ("lower-dot", "the answer is b.", "B"),
        ("lower-comma", "answer: a, a platelet inhibitor", "A"),
        # sentences
        ("lead-word", "Answer: option (B)", "B"),
        ("lead-words", "Answer: The correct option is C as the K+ is 3.0", "C"),
        ("therefore", "The correct answer to this question is therefore **(D)**.", "D"),
        ("for-this", "The best option for this patient with a low output is C) Furosemide.", "C"),
        ("given", "The most likely answer, given the fever, is D.", "D"),
        ("nested", "Final Answer: Given that, the best choice for this patient is D. Digoxin", "D"),
        ("of-choice", "The treatment of choice is C.", "C"),
        ("would-be", "My answer would be D, although A is close.", "D"),
        ("not-others", "The answer is C, not D.", "C"),
        ("not-others-text", "The answer is (A) Aspirin, not (B) Heparin.", "A"),
        ("and-not", "The answer is D and not A", "D"),
        ("others-after", "The answer is D. A, B and C are wrong.", "D"),
        ("others-bracketed", "Answer: D (not A, B or C)", "D"),
        ("others-line", "The answer is B\n\nA is wrong because it thins nothing.", "B"),
        ("others-named", "The answer is Option B: Heparin. Option C: Furosemide is wrong.", "B"),
        ("explained", "The answer is B) Heparin. Explanation: A) Aspirin is for platelets.", "B"),
        ("is-correct", "Answer: C is correct", "C"),
        ("lower-after-dot", "Answer: C. because of the oedema", "C"),
        (
            "reversed",
            "Therefore, option C is the correct answer because the drug is A diuretic.",
            "C",
        ),
        ("reversed-start", "C is the correct answer.", "C"),
        ("reversed-text", "Option C (Furosemide) is the best choice.", "C"),
        (
            "reversed-last",
            "Option A is the best choice for pain; option C is the best answer.",
            "C",
        ),
        ("choose", "I would choose option C.", "C"),
        ("go-with", "I'd go with (B)", "B"),
        ("chosen-before", "I would not choose A. The answer is C", "C"),
        ("sepsis", "It is not sepsis, so the answer is C", "C"),
        # prose after the answer names nothing and takes nothing away
        ("disclaimer", "Answer: C\n\nNote: the answer is not a substitute for a doctor.", "C"),
        ("disclaimer-is", "The answer is C. Please note this answer is for education only.", "C"),
        ("disclaimer-colon", "Option: (C)\n\nAbout this answer: please see a doctor.", "C"),
        ("hedged", "A reasonable option is B, but the best choice is C", "C"),
        ("conditional", "If the answer is A, potassium rises. The answer is D.", "D"),
        ("hepatitis", "The patient has a Hepatitis B infection. Answer: D", "D"),
        # no marker
        ("letter", "B", "B"),
        ("letter-brackets", "(B)", "B"),
        ("letter-dot", "B.", "B"),
        ("letter-bold", "**B**", "B"),
        ("letter-latex", r"$\text{B}$", "B"),
        ("letter-text", "B) Heparin", "B"),
        ("letter-option", "option (B)", "B"),
        ("first-line", "C. Furosemide\n\nThe oedema needs a loop diuretic.", "C"),
        ("discussed-first", "Each option:\n\nA. Aspirin: no.\nB. Heparin: no.\n\nOption: C", "C"),
        ("discussed-after", "Answer: A\n\nB. Heparin thins.\nC. Furosemide drains.", "A"),
        ("first-of-all", "C. Furosemide\n\nA. Aspirin: no pain.\nB. Heparin: no clot.", "C"),
        ("whole-text", "heparin.", "B"),
        ("whole-text-letter", "Heparin (B)", "B"),
    ],
)
def test_option_is_read(reply: str, key: str) -> None:
    assert option(reply, DRUGS) == key


@table(
    "reply",
    [
        # field reports
        ("P08", "Answer: A, B, and C"),
        ("P09", "ANSWER: G"),
        ("P10", "I cannot determine this."),
        ("P11", "Answer unknown"),
        ("P11-word", "Answer"),
        ("P28-cut", "<think>Answer: A"),
        ("P28-tagless", "Let me work through this. Option A first,"),
        # nothing
        ("empty", ""),
        ("blank", "  \n "),
        ("marker", "Option:"),
        ("other-letter", "X"),
        # several letters, or the format itself
        ("echo", "Answer: A/B/C/D"),
        ("echo-bars", "Answer: A|B|C|D"),
        ("echo-brackets", "Answer: [A, B, C, D, or E]"),
        ("echo-word", "Option: [letter]"),
        ("echo-x", "Answer only as `Option: X`, X being A, B, C or D."),
        ("range", "Answer: A-D"),
        ("or", "Answer: A or B"),
        ("either", "Answer: either A or B"),
        ("bold-or", "Answer: **A** or **B**"),
        ("or-depending", "Answer: B or A depending on the weight"),
        ("or-possibly", "Answer: C or possibly B"),
        ("and", "Answer: A and B"),
        ("pair", "Answer: (B), (C)"),
        ("bare-pair", "A, B"),
        ("bare-list", "Answer: A\nB\nC\nD"),
        ("options-below", "Answer:\nA. Aspirin\nB. Heparin\nC. Furosemide\nD. Digoxin"),
        ("letters-below", "Answer: A.\nB.\nC.\nD."),
        ("options-discussed", "Each choice:\n\nA. Aspirin: wrong.\nB. Heparin: wrong.\nC. Furo"),
        ("options-judged", "Your option:\nA. Aspirin\nIt is wrong.\n\nB. Heparin\nIt is right."),
        ("options-beside", "Answer: A) Aspirin B) Heparin C) Furosemide D) Digoxin"),
        ("options-copied", "A) Aspirin\nB) Heparin\nC) Furosemide\nD) Digoxin"),
        ("options-named", "Option A: Aspirin\nOption B: Heparin"),
        ("options-headed", "**Option A**\nwrong\n**Option B**\nright"),
        # letters that are words
        ("article", "The answer is A patient-centred approach"),
        ("article-lower", "The answer is a loop diuretic"),
        ("article-number", "Answer: A 45-year-old man needs furosemide."),
        ("article-first", "A patient with fever."),
        ("hepatitis", "Answer: Hepatitis B"),
        ("difficile", "Answer: C difficile"),
        ("peptide", "The answer is the C peptide"),
        ("hyphen", "Answer: B-cell lymphoma"),
        ("d-dimer", "Answer: D-dimer"),
        ("abbreviation", "Answer: e.g. heparin"),
        ("n-a", "Answer: N/A"),
        ("vitamin", "Vitamin C is the correct answer."),
        # denied, doubtful, conditional
        ("not-but", "The answer is not A but C"),
        ("isnt", "The answer is A. Wait. The answer isn't A."),
        ("incorrect", "Answer: A is incorrect"),
        ("wrong-so", "Answer: A is wrong, so it must be C"),
        ("wrong-answer", "The wrong answer is A."),
        ("incorrect-option", "The incorrect option is B"),
        ("not-correct", "A is not the correct answer."),
        ("if", "If option A is the correct answer, potassium would rise."),
        ("choose-if", "I would choose A if he were older."),
        ("dont-think", "I don't think the answer is A."),
        ("one-option", "One option is B."),
        ("could", "I think it's C but the answer could be D"),
        ("far-away", "Answer: " + " " * 224 + "Aspirin or such"),
        ("none", "Answer: C? No.\n\nAnswer: none of these"),
        # text that is no option's
        ("foreign-text", "Answer: The patient should get heparin"),
        ("text-mismatch", "Answer: Furosemide (D)"),
        ("line-mismatch", "B) Aspirin"),
        ("lower-unmarked", "b) heparin"),
    ],
)
def test_option_is_not_guessed(reply: str) -> None:
    assert option(reply, DRUGS) is None


@table(
    "options, reply, key",
    [
        ("P11", {**DRUGS, "E": "Endocarditis"}, "ERROR.", None),
        ("P13-H", TEN, "Option: H", "H"),
        ("P13-J", TEN, "Option: J", "J"),
        ("I", TEN, "Option: I", "I"),
        ("I-stop", TEN, "The best answer is I.", "I"),
        ("I-whole", TEN, "I", "I"),
        ("I-reversed", TEN, "I is the correct answer.", "I"),
        ("pronoun-before", TEN, "I think the answer is C", "C"),
        ("pronoun-inside", TEN, "The answer, I think, is D", "D"),
        ("pronoun-after", TEN, "Answer: C, I think", "C"),
        ("pronoun-semicolon", TEN, "Answer: C; I am certain", "C"),
        ("pronoun-value", TEN, "Answer: I think D", None),
        ("pronoun-short", TEN, "Answer: I'm not sure", None),
        ("pronoun-only", TEN, "I cannot determine this.", None),
        ("iv", TEN, "Answer: I.V. fluids", None),
        ("beyond", TEN, "Option: K", None),
        ("two-of-ten", TEN, "Answer: H and I", None),
        ("vitamin", VITAMINS, "Vitamin A", "A"),
        ("vitamin-marked", VITAMINS, "The answer is vitamin C.", "C"),
        ("vitamin-prose", VITAMINS, "The deficiency is Vitamin A.", None),
        ("germ", GERMS, "The answer is E. coli", "A"),
        ("germ-lettered", GERMS, "Answer: B. C. difficile", "B"),
        ("germ-text", GERMS, "Answer: C. difficile", "B"),
        ("germ-cut", GERMS, "Answer: C difficile", None),
        ("germ-longer", GERMS, "Answer: E. coli infection", None),
        ("article-is-text", TRICKY, "Answer: A beta blocker", "A"),
        ("none-is-text", TRICKY, "Answer: None of the above", "B"),
        ("both-is-text", TRICKY, "Answer: both A and B", "C"),
        ("group-A", BLOOD, "Answer: A", "A"),
        ("group-B-A", BLOOD, "Answer: B. A", "B"),
        ("group-AB", BLOOD, "Answer: AB", "D"),
        ("less", DOSES, "Answer: <5 mg", "A"),
        ("more", DOSES, "Answer: >5 mg", "B"),
        ("same", DOSES, "Answer: 5 mg (C)", "C"),
        ("other-dose", DOSES, "Answer: 15 mg", None),
        ("twin-text", TWINS, "Rest", None),
        ("twin-marked", TWINS, "Answer: rest", None),
        ("twin-letter", TWINS, "Answer: B) Rest", "B"),
        ("marker-in-option", {"A": "Option: B", "B": "Rest"}, "Answer: A", "A"),
        ("gapped-keys", {"B": "Rest", "D": "Surgery"}, "Option: C", None),
    ],
)
def test_option_keys_are_the_questions_own(
    options: dict[str, str], reply: str, key: str | None
) -> None:
    assert option(reply, options) == key


# --- vote -----------------------------------------------------------------------------------------


@table(
    "reply, agrees",
    [
        ("P12", "I know this report well: YES", True),
        ("P12-diagnosis", "The diagnosis is right. YES.", True),
        ("P12-revisions", "YES, no revisions needed", True),
        ("P12-bold", "**YES, no revisions needed**", True),
        ("P12-no", "**NO**", False),
        ("P12-dot", "**No.**", False),
        ("P12-brackets", "[NO]", False),
        ("P12-empty", "", None),
        ("P12-inside-words", "It is known; nothing noted yesterday cannot be a diagnosis.", None),
        ("P27", "<think>NO</think>YES", True),
        # opens the reply
        ("lower", "yes", True),
        ("list", "- YES", True),
        ("quoted", "'Yes'", True),
        ("boxed", r"\boxed{YES}", True),
        ("exclaimed", "YES!", True),
        ("agree", "Yes I agree.", True),
        ("but", "Yes, but the dose should be lower.", True),
        ("then-no", "YES\n\nThe report is consistent, no changes", True),
        ("then-none", "Yes\n\nNo revisions needed.", True),
        ("no-comma", "No, I disagree.", False),
        ("no-pronoun", "No I do not agree", False),
        ("no-the", "No the dose is wrong", False),
        ("no-dash", "NO – the potassium is wrong", False),
        ("no-list", "No.\n1. The dose is wrong", False),
        ("no-yes", "NO, yes the drug is right but the dose is not", False),
        ("no-bracket", "[NO] The report omits the murmur.", False),
        # is asked for, or has a line or a sentence of its own
        ("colon", "My vote: NO", False),
        ("colon-lower", "Vote: yes", True),
        ("colon-bold", "**Vote:** NO", False),
        ("colon-inside-bold", "**Vote: NO**", False),
        ("decision", "Decision: No, the anaemia is missed.", False),
        ("i-vote", "I vote NO because the ECG is ignored.", False),
        ("would-vote", "Based on the report, I would vote YES as it covers all.", True),
        ("my-answer", "My answer is yes.", True),
        ("own-line", "I agree with the report.\n\nYes", True),
        ("own-line-bold", "I have read it.\n\n**NO**\n\nRevisions: [the ECG]", False),
        ("last-sentence", "There is no doubt. YES", True),
        ("so", "The report is sound, so YES.", True),
        ("bold-late", "There is **NO** evidence of sepsis in it. **YES**", True),
        ("after-capitals", "NO REVISIONS NEEDED. YES", True),
        # the question or the format repeated
        ("echo", "[YES or NO]", None),
        ("echo-slash", "YES/NO", None),
        ("echo-rule", "Please answer with YES or NO only.", None),
        ("echo-answered", "YES or NO: NO", False),
        ("echo-asked", "Do you agree? [YES/NO]: YES", True),
        ("echo-long", "Answer YES if you agree, NO otherwise.\nYES", True),
        # unclear
        ("both", "yes and no", None),
        ("comma", "YES, NO", None),
        ("contradiction", "YES. NO.", None),
        ("changed", "Yes. On reflection: NO", None),
        ("question", "Yes? Maybe.", None),
        ("question-late", "Is it YES? I am unsure.", None),
        ("cannot", "I cannot vote YES.", None),
        ("not-yes", "not yes", None),
        ("dont-know", "I don't know.", None),
        # "no" that is no vote
        ("no-noun", "No revisions needed.", None),
        ("no-changes", "No changes are required; the report stands.", None),
        ("no-more", "I say no more", None),
        ("no-longer", "The answer is no longer relevant", None),
        ("objections", "I have no objections.", None),
        ("number", "No. 4 is right", None),
        ("number-late", "Case No. 4 is right. YES", True),
        ("nitric-oxide", "Vasodilation is mediated by NO.", None),
        ("nitric-oxide-first", "NO is released by the endothelium.", None),
        ("nitric-oxide-hyphen", "The NO-mediated pathway: YES", True),
        ("history", "Smoking: yes", None),
    ],
)
def test_vote(reply: str, agrees: bool | None) -> None:
    assert vote(reply) is agrees


# --- fields ---------------------------------------------------------------------------------------

TWO = ["Cardiology", "Nephrology"]
THREE = [*TWO, "Neurology"]


@table(
    "reply, names",
    [
        ("P14", "Medical Field: Cardiology|Nephrology, \n1. Neurology", THREE),
        ("P14-bullets", "**Medical Fields:**\n- Cardiology\n* Nephrology\n- Neurology", THREE),
        ("P14-seven", "Medical Field: " + " | ".join("BCDEFGH"), list("BCDEFGH")),
        ("P14-one", "Medical Field: Cardiology", ["Cardiology"]),
        ("P14-same", "Medical Field: " + "Cardiology | " * 5, ["Cardiology"] * 5),
        ("P14-empty", "", []),
        ("P14-nothing-named", "Medical Field: ", []),
        # bars
        ("bars", "Medical Field: Cardiology | Nephrology | Neurology", THREE),
        ("brackets", "MEDICAL FIELD: [Cardiology | Nephrology].", TWO),
        ("bold", "**Medical Field:** **Cardiology** | *Nephrology* | `Neurology`", THREE),
        ("quoted", 'Medical Field: "Cardiology | Nephrology"', TWO),
        ("wrapped", "Medical Field: Cardiology |\nNephrology |\nNeurology\nThese fit.", THREE),
        ("numbered-bars", "Medical Field: 1. Cardiology | 2. Nephrology", TWO),
        ("labelled-bars", "Medical Field: Field1: Cardiology | Field2: Nephrology", TWO),
        ("unmarked-bars", "Cardiology | Nephrology", TWO),
        (
            "commas-inside",
            "Field: Ear, Nose and Throat | Surgery",
            ["Ear, Nose and Throat", "Surgery"],
        ),
        ("parenthesis", "Medical Field: Otolaryngology (ENT)", ["Otolaryngology"]),
        ("slash", "Medical Field: Obstetrics/Gynecology", ["Obstetrics/Gynecology"]),
        ("dots", "Medical Field: Cardiology | Nephrology | ... | Neurology", THREE),
        ("prose-last", "Medical Field: Cardiology | Nephrology | I chose these for him", TWO),
        ("too-long", f"Medical Field: Cardiology | {'x' * 61} | Nephrology", TWO),
        ("too-many-words", "Medical Field: Cardiology | a b c d e f g h i | Nephrology", TWO),
        ("table", "| Medical Field |\n|---|\n| Cardiology |\n| Nephrology |", TWO),
        (
            "explained",
            "Field: Cardiology | Nephrology\n\nWhy:\n- Cardiology: pump\n- Renal: K",
            TWO,
        ),
        # lists
        ("numbers", "Medical Field:\n\n1. Cardiology\n\n2. Nephrology\n\nThese fit.", TWO),
        ("numbers-inline", "Medical Field: 1. Cardiology 2. Nephrology 3. Neurology", THREE),
        ("numbers-reasons", "Here are fields:\n1. **Cardiology** - pump\n2. Nephrology: K", TWO),
        ("reasons-below", "1. Cardiology\n   - the pump\n2. Nephrology\n   - potassium", TWO),
        ("reasons-last", "1. Cardiology\n2. Nephrology\n\nReasons:\n- low output\n- oedema", TWO),
        ("brackets-numbers", "(1) Cardiology\n(2) Nephrology", TWO),
        ("dots-unmarked", "• Cardiology\n• Nephrology", TWO),
        ("labelled", "Field1: Cardiology\nField2: Nephrology", TWO),
        # commas, semicolons, lines
        ("commas", "Medical Field: Cardiology, Nephrology, and Neurology.", THREE),
        ("are", "Sure! The medical fields are: Cardiology, Nephrology", TWO),
        (
            "semicolon",
            "Field: Cardiology; Ear, Nose and Throat",
            ["Cardiology", "Ear, Nose and Throat"],
        ),
        ("lines", "Medical Field:\nCardiology\nNephrology\n\nBoth treat oedema.", TWO),
        ("lines-note", "Medical Field: Cardiology\nNephrology\nNote: both fit", TWO),
        ("sentence-after", "Medical Field: Cardiology. He has pain, dyspnoea.", ["Cardiology"]),
        # the format repeated
        (
            "echo-first",
            "Medical Field: Field0 | Field1\nMedical Field: Cardiology | Nephrology",
            TWO,
        ),
        (
            "echo-last",
            "Medical Field: Cardiology | Nephrology\n\nMedical Field: Field0 | Field1",
            TWO,
        ),
        ("echo-only", "Medical Field: Field0 | Field1 | ... | Field4", []),
        # no fields
        ("prose", "The patient has chest pain, dyspnoea and fever.", []),
        ("prose-marked", "Medical Field: Based on the scenario, cardiology and nephrology", []),
        ("unmarked-commas", "Cardiology, Nephrology", []),
        ("unmarked-one", "- Cardiology", []),
        ("steps", "1. Read the question\n2. Classify it into fields", []),
        ("garbled", "asdf qwer, zxcv\nlorem ipsum dolor", []),
        ("bars-only", "| | |", []),
        ("none", "Medical Field: None", []),
    ],
)
def test_fields(reply: str, names: list[str]) -> None:
    assert fields(reply) == names


# --- sections and trim_analysis -------------------------------------------------------------------


@table(
    "reply, knowledge, analysis",
    [
        ("P15-both", "Key Knowledge: [loop]\nTotal Analysis: [C fits.]", "loop", "C fits."),
        ("P15-bold", "**Key Knowledge:** loop\n\n**Total Analysis:** C fits.", "loop", "C fits."),
        ("P15-caps", "TOTAL ANALYSIS\nC fits.", None, "C fits."),
        ("P15-missing", "Oedema. C fits.", None, "Oedema. C fits."),
        ("P15-half", "Key Knowledge: loop", "loop", "Key Knowledge: loop"),
        ("P15-empty", "", None, ""),
        ("headings", "## Key Knowledge\nloop\n\n## Total Analysis\nC fits.", "loop", "C fits."),
        (
            "numbered",
            "1. **Key Knowledge**: loop\n2. **Total Analysis**: C fits.",
            "loop",
            "C fits.",
        ),
        ("bracketed", "[Key Knowledge]: loop\n[Total Analysis]: C fits.", "loop", "C fits."),
        ("other-order", "Total Analysis: C fits.\nKey Knowledge: loop", "loop", "C fits."),
        ("one-line", "Key Knowledge: loop Total Analysis: C fits.", "loop", "C fits."),
        ("alone-in-bold", "**Total Analysis**\n\n[C fits.]", None, "C fits."),
        (
            "echo-first",
            "Key Knowledge: [..]\nTotal Analysis: [..]\n"
            "Key Knowledge: loop\nTotal Analysis: C fits.",
            "loop",
            "C fits.",
        ),
        (
            "echo-last",
            "Key Knowledge: loop\nTotal Analysis: C fits.\n\n"
            "Key Knowledge: […]\nTotal Analysis: […]",
            "loop",
            "C fits.",
        ),
        ("in-prose", "The total analysis shows oedema.", None, "The total analysis shows oedema."),
        ("empty-marker", "Total Analysis:", None, "Total Analysis:"),
    ],
)
def test_sections(reply: str, knowledge: str | None, analysis: str) -> None:
    assert sections(reply) == (knowledge, analysis)


@table(
    "text, kept",
    [
        ("finished", "Oedema is present. C fits.", "Oedema is present. C fits."),
        ("cut", "Oedema is present. The drug is fur", "Oedema is present."),
        ("cut-twice", "One. Two. Thr", "One. Two."),
        ("decimal", "K is 3.5 mmol/L. The dose of 2.5", "K is 3.5 mmol/L."),
        ("list-number", "1. Oedema.\n2. The", "1. Oedema."),
        ("quote", 'He said "stop." Then', 'He said "stop."'),
        ("question", "Is it sepsis? The lac", "Is it sepsis?"),
        ("unfinished", "No stop at all", "No stop at all"),
        ("model", "As an AI language model, I note oedema. It is", "I note oedema."),
        ("model-late", "Sorry. as an AI\nlanguage model I note oedema.", "I note oedema."),
        ("empty", "", ""),
    ],
)
def test_trim_analysis(text: str, kept: str) -> None:
    assert trim_analysis(text) == kept


# --- any text -------------------------------------------------------------------------------------

PIECES = [
    *(
        "Answer: ",
        "Option",
        "Final answer",
        " is ",
        "the ",
        "A",
        "B",
        "I",
        "a",
        "or ",
        "and ",
        "not ",
    ),
    *(
        "(",
        ")",
        "[",
        "]",
        "**",
        ", ",
        ". ",
        ": ",
        "\n",
        "/",
        "|",
        "–",
        "'",
        "\\boxed{",
        "- ",
        "1. ",
    ),
    *("<think>", "</think>", "YES", "no", "Medical Field:", "Cardiology"),
    *("Key Knowledge:", "Total Analysis:", "as an AI language model"),
]
replies = st.one_of(st.text(), st.lists(st.sampled_from(PIECES)).map("".join))
letters = st.integers(2, 26).map(lambda count: "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[:count])
WRAPPERS = [
    "Option: {}",
    "Option: [{}]",
    "**Answer:** {}.",
    "ANSWER: **{}**",
    "answer: ({})\nLet me know if A or I helps.",
    "Final answer: {}, because B is wrong",
    "The correct answer is {}.",
    "I think the best choice is ({}) since a fever is absent.",
    "Option {} is the correct answer.",
    "$\\boxed{{{}}}$",
    "Answer:\n\n{}",
    "({})",
    "{}",
]


@given(replies, st.dictionaries(st.sampled_from("ABCDEFGHIJ"), st.text()))
@example("Answer: \u0130", {"A": "\u0130", "B": "i\u0307"})
def test_option_is_a_key_or_none(reply: str, options: dict[str, str]) -> None:
    assert option(reply, options) in {None, *options}


@given(st.data(), letters, st.sampled_from(WRAPPERS))
def test_option_in_a_wrapper_is_that_letter(data: st.DataObject, keys: str, wrapper: str) -> None:
    options = {key: f"Finding {number}" for number, key in enumerate(keys)}
    key = data.draw(st.sampled_from(keys))
    assert option(wrapper.format(key), options) == key
    assert option(f"<think>Answer: A</think>{wrapper.format(key)}", options) == key


@given(replies)
def test_every_function_is_total(reply: str) -> None:
    said, thought = visible(reply)
    assert visible(said) == (said, None)
    assert thought is None or thought == thought.strip() != ""
    assert vote(reply) in {True, False, None}
    assert all(name == name.strip() != "" for name in fields(reply))
    knowledge, analysis = sections(reply)
    assert knowledge != ""
    assert analysis in reply
    assert trim_analysis(reply) in reply


@pytest.mark.parametrize(
    "unit",
    [
        "Answer: ",
        "answer ",
        "(",
        "\n",
        " ",
        "**",
        "</think>",
        "- a\n",
        "yes or ",
        "YES ",
        "Medical Field: ",
        "|",
        "key ",
        "A, ",
        ". ",
    ],
)
def test_a_big_reply_is_read_in_bounded_time(unit: str) -> None:
    reply = unit * (100_000 // len(unit))
    assert option(reply, TEN) is None
    for read in (visible, vote, fields, sections, trim_analysis):
        read(reply)


_PHRASES = st.sampled_from(
    "Answer: A|the answer is|Option B|not C|\\boxed{D}|I would choose|if the answer is|(A)|B.|\n"
    "|Final answer:|none of the above|Option:|A, B|is the correct answer|however|**|- C)|:".split(
        "|"
    )
)


@given(st.lists(_PHRASES | st.text("abcABCD .,:\n*()", max_size=12)), st.sampled_from("ABCDE"))
def test_usual_ending_is_read_as_any_other(parts: list[str], letter: str) -> None:
    """A reply in plain ASCII may take a short way; one with an accent in front never does."""
    options = {"A": "Aspirin", "B": "Biopsy of the lesion", "C": "CT", "D": "B"}
    reply = " ".join(parts) + f"\nOption: {letter}"
    assert option(reply, options) == option("é\n" + reply, options)
