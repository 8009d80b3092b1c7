// All that was said on one question, in reading order.

const VERDICTS = { true: ["✓", "right"], false: ["✗", "wrong"], null: ["·", "open"] };

/** What a row came to, as letter and sign; the colour says nothing that the sign does not. */
function mark(row) {
  const [sign, style] = VERDICTS[row.correct];
  const said = row.status === "ok" ? row.said ?? "–" : row.status;
  return el("span", { class: `mark ${style}` }, `${said} ${sign}`);
}

/** Anything that JSON may hold, for people. */
function facts(value) {
  if (value === null || typeof value !== "object") return String(value ?? "–");
  const entries = Object.entries(value);
  if (!entries.length) return "–";
  const plain = entries.every(([, part]) => part === null || typeof part !== "object");
  if (Array.isArray(value)) {
    if (plain) return value.map((part) => part ?? "–").join(", ");
    return el("dl", { class: "facts" }, value.map((part, n) => [el("dt", {}, String(n + 1)), el("dd", {}, facts(part))]));
  }
  return plain ? chips(value) : el("dl", { class: "facts" }, entries.map(([name, part]) =>
    [el("dt", {}, name.replaceAll("_", " ")), el("dd", {}, facts(part))]));
}

function chips(value) {
  const items = Object.entries(value).map(([name, said]) =>
    el("li", { class: said === "yes" || said === "no" ? said : false }, `${name}: ${said ?? "–"}`));
  return el("ul", { class: "chips" }, items);
}

/** How the members voted or answered in a round, where the method has rounds. */
function ballots(detail, round) {
  return ["answers", "votes", "messages"].flatMap((name) => {
    const part = Array.isArray(detail[name]) && round > 0 ? detail[name][round - 1] : null;
    if (!part || typeof part !== "object" || !Object.keys(part).length) return [];
    if (!Array.isArray(part)) return [chips(part)];
    const pairs = part.filter(Array.isArray).map((pair) => el("li", {}, pair.join(" → ")));
    return [el("ul", { class: "chips" }, pairs)];
  });
}

/** What a step's reply revises: the report before, or the same member's answer of the round before. */
function revised(steps) {
  let report = null;
  const answers = new Map();
  return steps.map((step) => {
    const text = step.reply ?? null;
    let before = null;
    if (step.stage === "revise") before = report;
    if (step.stage === "answer" && step.agent) before = step.round > 1 ? answers.get(step.agent) ?? null : null;
    if (text !== null && (step.stage === "summarise" || step.stage === "revise")) report = text;
    if (text !== null && step.stage === "answer") answers.set(step.agent, text);
    return text === null ? null : before;
  });
}

function steps(row) {
  const before = revised(row.trace);
  const found = [];
  let [round, stage, section] = [0, null, null];
  row.trace.forEach((step, place) => {
    if (step.round !== round) {
      found.push(el("h3", {}, `Round ${step.round}`), ...ballots(row.detail ?? {}, step.round));
      [round, stage] = [step.round, null];
    }
    if (step.stage !== stage) {
      stage = step.stage;
      section = el("section", { class: "stage" }, el("h4", {}, stageName(stage)));
      found.push(section);
    }
    section.append(stepCard(step, before[place], row.paragraphs));
  });
  return found;
}

function asked(question, entry, row) {
  const options = Object.entries(question.options).map(([letter, text]) =>
    el("li", { class: letter === question.answer ? "key" : false },
      el("b", {}, letter), text,
      letter === question.answer ? el("span", { class: "right" }, " ✓ answer key") : null,
      letter === entry.said ? el("span", { class: entry.correct ? "right" : "wrong" }, " ← decision") : null));
  if (question.text) {
    return [
      question.context ? el("div", { class: "text" }, question.context) : null,
      el("div", { class: "text question" }, question.text),
      question.images.length ? el("p", { class: "note" }, `Images: ${question.images.join(", ")}`) : null,
      el("ul", { class: "options" }, options),
    ];
  }
  const first = row.trace.find((step) => step.prompt.length);
  return [
    el("p", { class: "note" }, "The input file was not found beside the run, or has changed. The first prompt was:"),
    first ? el("div", {}, prompt(first, row.paragraphs)) : null,
  ];
}

function verdict(question, entry, row) {
  const error = row.error ? ` (${row.error.kind} in stage ${row.error.stage}: ${row.error.message})` : "";
  return el("p", { class: "verdict" },
    "Decision: ", mark(entry), error, ` · answer key: ${question.answer ?? "none"}`,
    entry.first && entry.first !== entry.said ? ` · before the consultation: ${entry.first}` : "");
}

/** Who was consulted, where the method says so. */
function panel(detail) {
  const named = Object.entries(detail ?? {}).filter(([name]) => /(experts|teams)$/.test(name));
  return named.length ? facts(Object.fromEntries(named)) : null;
}

/** Fills `place` with the consultation of one row of `question`. */
function showRow(place, question, entry, row) {
  const usage = row.usage ?? {};
  const total = [
    plural(row.calls ?? 0, "call"),
    `${number(usage.prompt_tokens)} → ${number(usage.completion_tokens)} tokens`,
    seconds(row.seconds),
    row.truncated ? `${number(row.truncated)} cut at a token limit` : "",
  ].filter(Boolean).join(" · ");
  place.replaceChildren(
    ...asked(question, entry, row).filter(Boolean),
    verdict(question, entry, row),
    el("p", { class: "note" }, total),
    ...[panel(row.detail), timeline(row.trace)].filter(Boolean),
    ...(row.trace.length ? steps(row) : [el("p", { class: "note" }, "This run kept no trace (--trace off).")]),
    el("h3", {}, "Recorded on the way"),
    el("div", {}, facts(row.detail)),
    verdict(question, entry, row),
  );
}

/** The dialog over the page. `neighbours` tells which questions come before and after. */
function consultations(index, neighbours, leave) {
  const [dialog, place] = [find("#dialog"), find("#consultation")];
  let shown = null;

  async function choose(question, entry, body, buttons) {
    buttons.forEach((button) => button.setAttribute("aria-pressed", String(button.entry === entry)));
    shown = entry;
    const row = await rowOf(entry);
    if (shown === entry) showRow(body, question, entry, row); // not overtaken by another choice
  }

  function open(question) {
    const body = el("div");
    const buttons = question.rows.length < 2 ? [] : question.rows.map((entry) => {
      const name = `${index.runs[entry.run]}${entry.repeat ? ` #${entry.repeat}` : ""} `;
      const button = el("button", { type: "button", click: () => choose(question, entry, body, buttons) }, name, mark(entry));
      button.entry = entry;
      return button;
    });
    find("#dialog-title").textContent = `Question ${question.id}`;
    place.replaceChildren(el("div", { class: "choices", role: "group", "aria-label": "Runs" }, buttons), body);
    place.scrollTop = 0;
    const [previous, next] = neighbours(question);
    for (const [name, other] of [["#previous", previous], ["#next", next]]) {
      find(name).disabled = !other;
      find(name).onclick = () => go(other);
    }
    if (!dialog.open) dialog.showModal();
    place.focus();
    return choose(question, question.rows[0], body, buttons);
  }

  dialog.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    if (event.key === "ArrowLeft") find("#previous").click();
    if (event.key === "ArrowRight") find("#next").click();
  });
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  find("#close").addEventListener("click", () => dialog.close());
  dialog.addEventListener("close", () => { shown = null; leave(); });
  return { open, close: () => dialog.close() };
}
