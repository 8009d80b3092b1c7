// The table of questions: filters, keys, and only the rows in view in the document.

const SPARE = 8; // rows above and below what is in view

/** Where verdicts or answers changed: between runs, between repeats, by the consultation. */
function flips(question) {
  const verdicts = (rows) => new Set(rows.map((row) => row.correct)).size;
  const apart = (name) => question.rows.some((one) =>
    verdicts(question.rows.filter((row) => row[name] === one[name])) > 1);
  const changed = question.rows.some((row) => row.first && row.said && row.first !== row.said);
  return [
    apart("repeat") ? "runs" : "",
    apart("run") ? "repeats" : "",
    changed ? "consultation" : "",
  ].filter(Boolean);
}

const VERDICT_NAMES = { true: "right", false: "wrong", null: "no answer key" };
const ORDERS = {
  input: null,
  "most tokens": (question) => Math.max(...question.rows.map((row) => row.tokens)),
  slowest: (question) => Math.max(...question.rows.map((row) => row.seconds)),
  "most rounds": (question) => Math.max(...question.rows.map((row) => row.rounds ?? 0)),
};

function fill(select, all, names) {
  select.hidden = names.length < 2;
  select.append(...[["", all], ...names].map(([value, name]) => el("option", { value }, name)));
}

function fillFilters(form, index) {
  const rows = index.questions.flatMap((question) => question.rows);
  const known = (values) => [...new Set(values)].filter((value) => value !== null && value !== undefined);
  const same = (values) => values.map((value) => [String(value), String(value)]);
  fill(form.run, "any run", index.runs.map((name, place) => [String(place), name]));
  fill(form.verdict, "right or wrong", [...new Set(rows.map((row) => VERDICT_NAMES[row.correct]))].sort().map((name) => [name, name]));
  fill(form.status, "any status", same(known(rows.map((row) => row.status)).sort()));
  fill(form.subject, "any subject", same(known(index.questions.map((question) => question.subject)).sort()));
  fill(form.rounds, "any rounds", known(rows.map((row) => row.rounds)).sort((a, b) => a - b).map((n) => [String(n), plural(n, "round")]));
  const kinds = { runs: "runs differ", repeats: "repeats differ", consultation: "consultation changed it" };
  const found = known(index.questions.flatMap((question) => question.flips));
  fill(form.flips, "flips or not", found.map((kind) => [kind, kinds[kind]]));
  form.flips.hidden = !found.length;
  form.order.append(...Object.keys(ORDERS).map((name) => el("option", { value: name }, `order: ${name}`)));
}

/** The questions that the form asks for: one row of a question must match all that is asked of rows. */
function chosen(form, questions) {
  const wanted = find("#search").value.toLowerCase().split(/\s+/).filter(Boolean);
  const is = (name, value) => form[name].value === "" || form[name].value === String(value);
  const found = questions.filter((question) =>
    is("subject", question.subject) &&
    (form.flips.value === "" || question.flips.includes(form.flips.value)) &&
    question.rows.some((row) => is("run", row.run) && is("verdict", VERDICT_NAMES[row.correct]) &&
      is("status", row.status) && is("rounds", row.rounds)) &&
    wanted.every((word) => question.words.includes(word)));
  const order = ORDERS[form.order.value];
  return order ? found.sort((a, b) => order(b) - order(a)) : found;
}

function cell(style, ...children) {
  return el("span", { class: style, role: "gridcell" }, children);
}

/** The columns that have something to say: title, width in rem, and the cell of a question. */
function columnsOf(index) {
  const any = (test) => index.questions.some(test);
  const rounds = (question) => [...new Set(question.rows.map((row) => row.rounds).filter((n) => n !== null))];
  const most = (question) => Math.max(...question.rows.map((row) => row.tokens));
  return [
    ["Question", 16, (question) => cell("", el("span", { class: "id" }, question.id), question.text)],
    any((question) => question.subject !== null) && ["Subject", 8, (question) => cell("extra", question.subject ?? "")],
    ["Key", 2.5, (question) => cell("extra", question.answer ?? "–")],
    ...index.runs.map((name, run) =>
      [name, 6, (question) => cell("", question.rows.filter((row) => row.run === run).map(mark))]),
    any((question) => rounds(question).length) && ["Rounds", 4, (question) => cell("extra number", rounds(question).join(", ") || "–")],
    any((question) => question.flips.length) && ["Flips", 7, (question) => cell("extra", question.flips.join(", "))],
    ["Tokens", 5, (question) => cell("extra number", number(most(question)))],
  ].filter(Boolean);
}

function questionRow(question, place, columns) {
  return el("div", { class: "row", role: "row", id: `row-${place}`, "aria-rowindex": String(place + 2) },
    columns.map(([, , of]) => of(question)));
}

/** Starts the table; returns how to move the mark of the current row. */
function questionTable(index, open) {
  const [form, grid, rows, search] = [find("#filters"), find("#grid"), find("#rows"), find("#search")];
  for (const question of index.questions) {
    question.flips = flips(question);
    question.words = [question.id, question.subject ?? "", question.text, ...Object.values(question.options)].join("\n").toLowerCase();
  }
  fillFilters(form, index);
  const columns = columnsOf(index);
  const [[, least], ...others] = columns;
  grid.style.setProperty("--columns", `minmax(${least}rem, 1fr) ${others.map(([, width]) => `${width}rem`).join(" ")}`);
  grid.style.setProperty("--wide", `${columns.reduce((sum, [, width]) => sum + width + 0.75, 0.75)}rem`);
  find("#head").append(el("div", { class: "row", role: "row", "aria-rowindex": "1" },
    columns.map(([title]) => el("span", { role: "columnheader", title }, title))));
  let [shown, active] = [index.questions, 0];
  const height = () => parseFloat(getComputedStyle(grid).getPropertyValue("--row"));

  function draw() {
    const row = height();
    const first = Math.max(0, Math.floor(grid.scrollTop / row) - SPARE);
    const last = Math.min(shown.length, Math.ceil((grid.scrollTop + grid.clientHeight) / row) + SPARE);
    rows.style.height = `${shown.length * row}px`;
    rows.replaceChildren(...shown.slice(first, last).map((question, offset) => {
      const place = first + offset;
      const element = questionRow(question, place, columns);
      element.style.top = `${place * row}px`;
      element.classList.toggle("active", place === active);
      element.setAttribute("aria-selected", String(place === active));
      element.addEventListener("click", () => { move(place); open(question); });
      return element;
    }));
    if (shown.length) grid.setAttribute("aria-activedescendant", `row-${active}`);
    else grid.removeAttribute("aria-activedescendant");
  }

  function move(place) {
    active = Math.max(0, Math.min(shown.length - 1, place));
    const [row, head] = [height(), find("#head").offsetHeight];
    const [top, room] = [active * row, grid.clientHeight - head];
    if (top < grid.scrollTop) grid.scrollTop = top;
    if (top + row > grid.scrollTop + room) grid.scrollTop = top + row - room;
    draw();
  }

  function filter() {
    shown = chosen(form, index.questions);
    active = 0;
    grid.scrollTop = 0;
    grid.setAttribute("aria-rowcount", String(shown.length + 1));
    find("#count").textContent = `${number(shown.length)} of ${plural(index.questions.length, "question")}.`;
    draw();
  }

  const page = () => Math.max(1, Math.floor(grid.clientHeight / height()) - 1);
  const keys = {
    ArrowDown: () => move(active + 1),
    ArrowUp: () => move(active - 1),
    PageDown: () => move(active + page()),
    PageUp: () => move(active - page()),
    Home: () => move(0),
    End: () => move(shown.length - 1),
    Enter: () => shown.length && open(shown[active]),
  };
  grid.addEventListener("keydown", (event) => {
    if (!Object.hasOwn(keys, event.key) || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    keys[event.key]();
  });
  search.addEventListener("keydown", (event) => {
    if (event.key !== "ArrowDown" && event.key !== "Enter") return;
    event.preventDefault();
    grid.focus();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.target.matches("input, select") || find("#dialog").open) return;
    event.preventDefault();
    search.focus();
  });
  form.addEventListener("input", filter);
  form.addEventListener("submit", (event) => event.preventDefault());
  grid.addEventListener("scroll", draw, { passive: true });
  new ResizeObserver(draw).observe(grid);
  filter();
  return {
    select: (question) => { if (shown.includes(question)) move(shown.indexOf(question)); },
    neighbours: (question) => {
      const place = shown.indexOf(question);
      return place < 0 ? [null, null] : [shown[place - 1] ?? null, shown[place + 1] ?? null];
    },
    focus: () => grid.focus(),
  };
}
