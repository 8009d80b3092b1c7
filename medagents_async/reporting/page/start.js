// The question in the address (#ID) is the one that is open: links and the back button work.

let go = () => {};

async function start() {
  const index = await unpacked("index");
  const slugs = new Map();
  for (const question of index.questions) {
    const name = encodeURIComponent(question.id);
    question.slug = name;
    for (let n = 2; slugs.has(question.slug); n++) question.slug = `${name}-${n}`;
    slugs.set(question.slug, question);
  }
  go = (question) => { if (question) location.hash = question.slug; };
  const table = questionTable(index, (question) => go(question));
  const dialog = consultations(index, table.neighbours, () => {
    if (location.hash) history.replaceState(null, "", location.pathname + location.search);
    table.focus();
  });
  const follow = () => {
    const question = slugs.get(location.hash.slice(1));
    if (!question) return dialog.close();
    table.select(question);
    return dialog.open(question);
  };
  addEventListener("hashchange", follow);
  performance.mark("questions");
  if (location.hash) await follow();
}

start();
