// What a revision changed, word by word.

const MOST_EDITS = 1500; // beyond it two texts have little in common, and the search gets slow
const ISLAND = 3; // fewer words than this between two changes are shown as changed, too

function words(text) {
  return text.match(/\s+|[\p{L}\p{N}]+|[^\s\p{L}\p{N}]/gu) ?? [];
}

/**
 * The shortest list of [sign, word] that turns `a` into `b`; null where it is longer than
 * MOST_EDITS. Myers, An O(ND) Difference Algorithm, Algorithmica 1 (1986).
 */
function edits(a, b) {
  const most = Math.min(a.length + b.length, MOST_EDITS);
  const middle = most + 1;
  const reach = new Int32Array(2 * most + 3);
  const history = [];
  for (let d = 0; d <= most; d++) {
    history.push(reach.slice(middle - d - 1, middle + d + 2));
    for (let k = -d; k <= d; k += 2) {
      const down = k === -d || (k !== d && reach[middle + k - 1] < reach[middle + k + 1]);
      let x = down ? reach[middle + k + 1] : reach[middle + k - 1] + 1;
      while (x < a.length && x - k < b.length && a[x] === b[x - k]) x++;
      reach[middle + k] = x;
      if (x >= a.length && x - k >= b.length) return walked(a, b, history);
    }
  }
  return null;
}

/** The way back through the search, turned round. */
function walked(a, b, history) {
  const path = [];
  let [x, y] = [a.length, b.length];
  for (let d = history.length - 1; d >= 0; d--) {
    const [before, middle, k] = [history[d], d + 1, x - y];
    const down = k === -d || (k !== d && before[middle + k - 1] < before[middle + k + 1]);
    const from = down ? before[middle + k + 1] : before[middle + k - 1];
    const start = down ? from : from + 1;
    while (x > start && y > 0) path.push([" ", a[--x], --y]);
    if (d === 0) break;
    if (down) path.push(["+", b[--y]]);
    else path.push(["-", a[--x]]);
  }
  return path.reverse();
}

/** Runs of [sign, text]: " " kept, "-" removed, "+" added. */
function difference(before, after) {
  const [a, b] = [words(before), words(after)];
  const path = edits(a, b) ?? [...a.map((word) => ["-", word]), ...b.map((word) => ["+", word])];
  const stretches = []; // by turns of kept words and of changes
  for (const [sign, word] of path) {
    const last = stretches.at(-1);
    if (last && last.kept === (sign === " ")) last.path.push([sign, word]);
    else stretches.push({ kept: sign === " ", path: [[sign, word]] });
  }
  const runs = [];
  const add = (sign, text) => {
    if (!text) return;
    if (runs.at(-1)?.[0] === sign) runs.at(-1)[1] += text;
    else runs.push([sign, text]);
  };
  let [removed, added] = ["", ""];
  stretches.forEach(({ kept, path }, place) => {
    const real = path.filter(([, word]) => /\S/.test(word)).length;
    const island = place > 0 && place < stretches.length - 1 && real < ISLAND;
    if (kept && !island) {
      add("-", removed);
      add("+", added);
      [removed, added] = ["", ""];
    }
    for (const [sign, word] of path) {
      if (kept && !island) add(" ", word);
      else {
        if (sign !== "+") removed += word;
        if (sign !== "-") added += word;
      }
    }
  });
  add("-", removed);
  add("+", added);
  return runs;
}
