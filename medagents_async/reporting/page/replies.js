// One call: who spoke, what was said, what it took.

const STAGES = {
  triage: "Triage", recruit: "Recruiting", recruit_question: "Experts on the question",
  recruit_option: "Experts on the options", analyse_question: "Analyses of the question",
  analyse_option: "Analyses of the options", case: "Cases", summarise: "Report", answer: "Answers",
  debate: "Debate", refine: "Refinements", rank: "Rankings", discuss: "Messages",
  feedback: "Feedback", report: "Team report", vote: "Votes", advise: "Advice",
  revise: "Revised report", decide: "Decision",
};
const SHOWN = 20000; // characters of a reply before one has to ask for the rest
const SHORT = 60; // a vote or a letter: several stand side by side

function stageName(stage) {
  return Object.hasOwn(STAGES, stage) ? STAGES[stage] : String(stage);
}

/** Text as it was written, the end of a huge one on demand. */
function prose(text) {
  if (text.length <= SHOWN) return el("div", { class: "text" }, text);
  const shown = el("div", { class: "text" }, text.slice(0, SHOWN));
  const more = el("button", {
    type: "button",
    click: () => { shown.textContent = text; more.remove(); },
  }, `… show all ${number(text.length)} characters`);
  return el("div", {}, shown, more);
}

function changes(before, after) {
  const marked = { " ": "span", "-": "del", "+": "ins" };
  const runs = difference(before, after).map(([sign, text]) => el(marked[sign], {}, text));
  return el("div", { class: "text" }, runs);
}

/** The reply, and where it revises `before` a button between the text and what changed in it. */
function reply(step, before) {
  const text = step.reply ?? "";
  if (before === null || before.length + text.length > 4 * SHOWN) return prose(text);
  const place = el("div");
  const button = el("button", { type: "button", "aria-pressed": "false", click: () => show(!changed) }, "Changes");
  let changed = null;
  const show = (wanted) => {
    changed = wanted;
    button.setAttribute("aria-pressed", String(changed));
    place.replaceChildren(changed ? changes(before, text) : prose(text));
  };
  show(step.stage === "revise");
  return el("div", {}, button, place);
}

/** Details whose content is made when they are opened. */
function later(title, content) {
  const details = el("details", {}, el("summary", {}, title));
  details.addEventListener("toggle", () => details.append(...content()), { once: true });
  return details;
}

function prompt(step, paragraphs) {
  return step.prompt.map(([role, places]) =>
    el("div", { class: "message" },
      el("h5", {}, role ?? ""),
      prose(places.map((place) => paragraphs[place]).join("\n\n"))));
}

function costs(step) {
  const usage = step.usage ?? {};
  const cached = usage.cached_tokens ? ` (${number(usage.cached_tokens)} cached)` : "";
  return [
    `${number(usage.prompt_tokens)}${cached} → ${plural(usage.completion_tokens ?? 0, "token")}`,
    `${seconds(step.seconds)}${step.queued_s >= 0.01 ? ` after ${seconds(step.queued_s)} of waiting` : ""}`,
    step.finish_reason ?? "",
    step.attempts > 1 ? plural(step.attempts, "attempt") : "",
  ].filter(Boolean).join(" · ");
}

function stepCard(step, before, paragraphs) {
  const samples = step.replies ?? [];
  const short = !step.error && !samples.length && (step.reply ?? "").length <= SHORT;
  return el(
    "article",
    { class: short ? "step short" : "step" },
    el("header", {},
      el("h5", {}, step.agent ?? `Call ${(step.n ?? 0) + 1}`),
      el("p", { class: "note", title: step.server ?? "" }, costs(step))),
    step.error ? el("p", { class: "failed" }, `failed: ${step.error}`) : null,
    samples.length
      ? samples.map((text, n) => el("div", { class: "message" }, el("h5", {}, `Sample ${n + 1}`), prose(text)))
      : step.reply === null || step.reply === undefined ? null : reply(step, before),
    step.finish_reason === "length" ? el("p", { class: "cut" }, "… cut at its token limit") : null,
    step.reasoning ? later("Reasoning", () => [prose(step.reasoning)]) : null,
    step.prompt.length ? later("Prompt", () => prompt(step, paragraphs)) : null,
  );
}
