// Making elements. Text only ever becomes a text node.

/**
 * An element: `el("div", {class: "x", onclick: f}, "text", child)`.
 * @param {string} name @param {Object<string, any>} [attributes] @param {...any} children
 */
function el(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

/** The same for SVG. */
function svg(name, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}

function fill(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value === true ? "" : String(value));
  }
  element.append(...children.flat(Infinity).filter((c) => c !== null && c !== undefined && c !== ""));
  return element;
}

/** Put new children into an element. */
function put(element, ...children) {
  element.replaceChildren(...children.flat(Infinity).filter((c) => c !== null && c !== undefined && c !== ""));
}

/** A text block that keeps its spaces and line ends. */
function pre(text, attributes = {}) {
  return el("pre", { tabindex: "0", ...attributes }, text);
}

/** A heading of a part of the detail. */
function part(title, ...children) {
  return el("section", { class: "part" }, el("h3", {}, title), ...children);
}

/** A share from 0 to 1 as a bar; null is empty and hatched. */
function bar(value, label) {
  const shown = value === null ? 0 : Math.max(0, Math.min(1, value));
  return el("span", { class: value === null ? "bar none" : "bar", title: `${label} ${brief(value)}` },
    el("i", { style: `width:${(shown * 100).toFixed(1)}%` }));
}

/** The word for an outcome, as a coloured tag. */
function tag(outcome, why) {
  const kind = outcomeClass(outcome);
  const words = { right: "right", partly: "partly right", wrong: "wrong", none: "no outcome" };
  return el("span", { class: `tag ${kind}` }, why && why !== "ok" ? `${words[kind]}: ${why}` : words[kind]);
}
