// The calls of one question over time: waiting for a slot, then at the server.

const LANE = 12; // pixels; times are in percent, so that text keeps its size on a phone
const AXIS = 18;
const PARTS = [[0, "start"], [0.25, "middle"], [0.5, "middle"], [0.75, "middle"], [1, "end"]];

function lane(step, place, end, colour) {
  const at = (time) => `${((100 * time) / end).toFixed(3)}%`;
  const [asked, queued, took] = [step.asked_s ?? 0, step.queued_s ?? 0, step.seconds ?? 0];
  const bar = (style, from, length) =>
    svg("rect", { class: style, x: at(from), width: at(length), y: AXIS + place * LANE, height: LANE - 3 });
  return svg("g", {},
    svg("title", {}, `${stageName(step.stage)} ${step.agent ?? ""}: ${seconds(took)}`),
    bar("queued", asked, queued),
    bar(`call ${colour}`, asked + queued, Math.max(took, end / 500)));
}

/** A drawing with its legend; null where no call took any time. */
function timeline(steps) {
  const end = Math.max(...steps.map((s) => (s.asked_s ?? 0) + (s.queued_s ?? 0) + (s.seconds ?? 0)));
  if (!(end > 0)) return null;
  const stages = [...new Set(steps.map((step) => step.stage))];
  const colour = (stage) => `c${stages.indexOf(stage) % 6}`;
  const height = AXIS + steps.length * LANE;
  const ticks = PARTS.map(([part, anchor]) => {
    const x = `${100 * part}%`;
    return [
      svg("line", { class: "grid", x1: x, x2: x, y1: AXIS - 2, y2: height }),
      svg("text", { class: "tick", x, y: AXIS - 6, "text-anchor": anchor }, seconds(end * part)),
    ];
  });
  const lanes = [...steps]
    .sort((a, b) => (a.asked_s ?? 0) - (b.asked_s ?? 0))
    .map((step, place) => lane(step, place, end, colour(step.stage)));
  const label = `Timeline: ${plural(steps.length, "call")} in ${seconds(end)}`;
  const drawing = svg("svg", { role: "img", "aria-label": label }, ticks, lanes);
  drawing.style.height = `${height}px`;
  const legend = stages.map((stage) => el("li", { class: colour(stage) }, stageName(stage)));
  return el("details", { open: "" },
    el("summary", {}, label),
    el("div", { class: "timeline", tabindex: "0", role: "group", "aria-label": label }, drawing),
    el("ul", { class: "chips" }, legend, el("li", {}, "grey: waiting for a slot")));
}
