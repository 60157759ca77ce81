// Sampled tokens, coloured by log-probability or by the gap between the two log-probabilities.

const LEVELS = [-0.01, -0.1, -0.5, -1.5, -3];  // log-probability, from sure to surprised
const GAPS = [0.001, 0.01, 0.05, 0.2, 0.7];  // nats between the two distributions

function levelOf(value, by) {
  if (value === null || value === undefined) return 0;
  const size = by === "gap" ? Math.abs(value) : value;
  return by === "gap" ? GAPS.filter((g) => size >= g).length : LEVELS.filter((l) => size <= l).length;
}

/** The gap of token k: under the sampling distribution minus under the full one. */
function gapOf(tokens, k) {
  if (!tokens.s) return tokens.s === null ? 0 : null;
  return tokens.s[k] === null || tokens.l[k] === null ? null
    : Math.round((tokens.s[k] - tokens.l[k]) * 1e4) / 1e4;  // both are rounded to 4 places
}

function tokenPart(tokens) {
  if (!tokens) {
    return part("Tokens", el("p", { class: "quiet" }, "No token ids and log-probabilities are recorded for this rollout."));
  }
  const box = el("div", { class: "tokens", tabindex: "0", role: "group", "aria-label": "Sampled tokens" });
  const key = el("p", { class: "quiet levels" });
  const show = (by) => drawTokens(box, key, tokens, by);
  const choice = el("select", { id: "token-colour", onchange: (e) => show(e.target.value) },
    el("option", { value: "logp" }, "log-probability"), el("option", { value: "gap" }, "gap trainer − sampler"));
  show("logp");
  return part("Tokens", el("p", {}, el("label", { for: "token-colour" }, "Colour by "), choice),
    key, box, el("p", { class: "quiet" }, tokenSummary(tokens)), unlikely(tokens));
}

function drawTokens(box, key, tokens, by) {
  const bounds = by === "gap" ? GAPS : LEVELS;
  put(key, by === "gap" ? "|gap| in nats: " : "log p: ", ["", ...bounds].map((b, n) =>
    el("span", { class: `tok t${n} ${by}` }, n ? (by === "gap" ? `≥ ${b}` : `≤ ${b}`) : by === "gap" ? "none" : "sure")));
  const breaks = new Set(tokens.b || []);
  const drawn = [];
  tokens.p.forEach((text, k) => {
    if (breaks.has(k)) drawn.push(el("hr"));
    const gap = gapOf(tokens, k), level = levelOf(by === "gap" ? gap : tokens.l[k], by);
    const said = `log p ${brief(tokens.l[k], 4)}${gap === null ? "" : `, gap ${brief(gap, 4)}`}`;
    drawn.push(el("span", { class: `tok t${level} ${by}`, title: said }, text.replaceAll("\n", "⏎\n") || "▫"));
  });
  put(box, drawn);
}

function tokenSummary(tokens) {
  const gaps = tokens.p.map((_, k) => gapOf(tokens, k)).filter((g) => g !== null);
  const most = gaps.reduce((m, g) => Math.max(m, Math.abs(g)), 0);
  const words = [`${tokens.p.length} sampled tokens, mean log p ${brief(mean(tokens.l))}`];
  if (!gaps.length) words.push("the sampler's own log-probabilities are not recorded");
  else if (most === 0) words.push("both log-probabilities are equal for every token");
  else words.push(`largest gap ${brief(most)} nats, mean ${brief(mean(gaps), 4)}`);
  if (tokens.unknown) words.push("no tokenizer is at hand, so ids are shown (give its folder with --model)");
  return words.join("; ") + ".";
}

/** The least likely tokens in words, for who does not see colours. */
function unlikely(tokens) {
  const order = tokens.l.map((l, k) => [l, k]).filter(([l]) => l !== null && l < LEVELS[1])
    .sort((a, b) => a[0] - b[0]).slice(0, 8);
  if (!order.length) return null;
  const rows = order.map(([l, k]) => el("tr", {}, el("td", {}, String(k)), el("td", {}, el("code", {}, JSON.stringify(tokens.p[k]))),
    el("td", {}, brief(l)), el("td", {}, brief(Math.exp(l)))));
  return el("details", {}, el("summary", {}, `The least likely tokens (${order.length})`),
    el("table", {}, el("thead", {}, el("tr", {}, ["place", "token", "log p", "p"].map((h) => el("th", { scope: "col" }, h)))), el("tbody", {}, rows)));
}
