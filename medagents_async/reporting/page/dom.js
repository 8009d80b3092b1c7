"use strict";
// Small tools. Whatever a model said becomes a text node or an attribute here, never markup.

const SVG = "http://www.w3.org/2000/svg";

function find(selector) {
  return document.querySelector(selector);
}

function made(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value !== null && value !== false) element.setAttribute(name, value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== ""));
  return element;
}

/** An element; an attribute that is a function listens to the event of its name. */
function el(name, attributes = {}, ...children) {
  return made(document.createElement(name), attributes, children);
}

function svg(name, attributes = {}, ...children) {
  return made(document.createElementNS(SVG, name), attributes, children);
}

function number(value) {
  return (value ?? 0).toLocaleString("en");
}

function seconds(value) {
  return `${(value ?? 0).toFixed(value < 10 ? 2 : 1)} s`;
}

function plural(count, word) {
  return `${number(count)} ${word}${count === 1 ? "" : "s"}`;
}

/** The JSON in a block of the page: base64 of a zlib stream. */
async function unpacked(id) {
  const bytes = Uint8Array.from(atob(document.getElementById(id).text), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).json();
}

const BLOCKS_HELD = 4;
const blocks = new Map();
// Blocks come last in the page, after all that is shown first.
const parsed = new Promise((done) => {
  if (document.readyState !== "loading") done();
  else document.addEventListener("DOMContentLoaded", done, { once: true });
});

/** All that the page keeps of one row of the index. */
async function rowOf(entry) {
  await parsed;
  if (!blocks.has(entry.block)) {
    blocks.set(entry.block, unpacked(`block-${entry.block}`));
    if (blocks.size > BLOCKS_HELD) blocks.delete(blocks.keys().next().value);
  }
  return (await blocks.get(entry.block))[entry.place];
}
