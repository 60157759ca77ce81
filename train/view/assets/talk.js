// A conversation: messages, and for every tool call its code, its output, how it went and how long.

const CALL = /<tool_call>([\s\S]*?)(?:<\/tool_call>|$)/g;
const RESPONSE = /^\s*<tool_response>\s*([\s\S]*?)\s*(?:<\/tool_response>\s*)?$/;
const FENCE = /```(\w*)\n([\s\S]*?)```/g;

/** The part of the detail with everything that was said. */
function talkPart(prompt, body) {
  const records = [...(body.calls || [])];
  const messages = body.messages || [{ role: "assistant", content: body.text }];
  const next = () => records.shift();
  const shown = messages.map((m) => messageElement(m, next));
  const left = records.map((record, n) => callRecord(record, n));
  return part("Conversation", callSummary(body),
    el("details", { open: prompt.length && lengthOf(prompt) < 1500 ? true : null },
      el("summary", {}, `Prompt: ${many(prompt.length, "message")}, ${many(lengthOf(prompt), "character")}`),
      prompt.map((m) => messageElement(m, () => undefined))),
    shown, left.length ? [el("h4", {}, "Calls that no message shows"), left] : null);
}

function lengthOf(messages) {
  return messages.reduce((sum, m) => sum + textIn(m).length, 0);
}

/** A message's content: text, or the texts of its parts. */
function textIn(message) {
  const content = message.content;
  if (typeof content === "string") return content;
  if (Array.isArray(content)) return content.map((c) => (c && c.text) || "").join("");
  return content === null || content === undefined ? "" : JSON.stringify(content);
}

function callSummary(body) {
  const calls = body.calls || [];
  if (!calls.length) return null;
  const failed = calls.filter((c) => c.kind !== "ok" && c.status !== "ok").length;
  const seconds = calls.reduce((sum, c) => sum + (c.seconds || 0), 0);
  const most = Math.max(...calls.map((c) => c.seconds || 0), 1e-9);
  return [el("p", {}, `${many(calls.length, "tool call")}, ${failed} not ok, ${brief(seconds)} s in tools.`),
    el("div", { class: "timing" }, calls.map((c, n) => el("span", { class: "call", title: `call ${n + 1}: ${kindOf(c)}, ${brief(c.seconds)} s` },
      el("i", { class: kindOf(c) === "ok" ? "ok" : "bad", style: `height:${Math.max(8, (c.seconds || 0) / most * 100).toFixed(0)}%` }))))];
}

function kindOf(record) {
  return record.kind || record.status || "ok";
}

function messageElement(message, next) {
  const role = String(message.role || "");
  const text = textIn(message);
  const answer = role === "user" && RESPONSE.exec(text);
  if (role === "tool" || answer) return outputElement(answer ? answer[1] : text, message.name, next());
  const body = role === "assistant" ? assistantParts(text) : [textBlock(text)];
  if (message.thought) {
    body.unshift(el("details", { class: "thought quiet" },
      el("summary", {}, `Thought: ${many(message.thought.length, "character")}`), textBlock(message.thought)));
  }
  for (const call of message.tool_calls || []) {
    const f = call.function || {};
    body.push(callElement(f.name, parsed(f.arguments) || { arguments: f.arguments }));
  }
  return el("article", { class: `message ${role}` }, el("h4", {}, role), body);
}

/** An answer's text, with calls and fenced code in their own boxes. */
function assistantParts(text) {
  const found = [];
  let at = 0;
  for (const match of text.matchAll(CALL)) {
    found.push(...withFences(text.slice(at, match.index)));
    const call = parsed(match[1]);
    found.push(call && typeof call.name === "string" ? callElement(call.name, call.arguments) : callElement("a call", { call: match[1] }));
    at = match.index + match[0].length;
  }
  found.push(...withFences(text.slice(at)));
  return found.length ? found : [el("p", { class: "quiet" }, "(empty)")];
}

function withFences(text) {
  const found = [];
  let at = 0;
  for (const match of text.matchAll(FENCE)) {
    found.push(textBlock(text.slice(at, match.index)));
    found.push(el("div", { class: "code" }, el("span", { class: "label" }, match[1] || "code"), pre(match[2])));
    at = match.index + match[0].length;
  }
  found.push(textBlock(text.slice(at)));
  return found.filter(Boolean);
}

function textBlock(text) {
  return text.trim() ? pre(text, { class: "prose" }) : null;
}

function parsed(text) {
  if (text && typeof text === "object") return text;
  try {
    const value = JSON.parse(text);
    return value && typeof value === "object" ? value : null;
  } catch {
    return null;
  }
}

function callElement(name, args) {
  return el("div", { class: "code" }, el("span", { class: "label" }, `call ${name}`), fieldsOf(args));
}

/** Fields of an object: texts as blocks, the rest as JSON. */
function fieldsOf(value) {
  if (!value || typeof value !== "object") return [pre(String(value ?? ""))];
  return Object.entries(value).map(([name, field]) => {
    const text = typeof field === "string" ? field : JSON.stringify(field, null, 1);
    return el("div", { class: "field" }, el("span", { class: "label" }, name), pre(text));
  });
}

function outputElement(text, name, record) {
  const held = parsed(text), kind = record ? kindOf(record) : "";
  const said = record ? `${kind}${record.seconds === undefined ? "" : `, ${brief(record.seconds)} s`}` : "";
  const bad = kind && kind !== "ok" || held && !Array.isArray(held) && ("Error" in held || "error" in held);
  return el("article", { class: bad ? "message tool bad" : "message tool" },
    el("h4", {}, `tool ${name || (record && record.name) || ""} `, said ? el("span", { class: `tag ${bad ? "wrong" : "right"}` }, said) : null),
    held && !Array.isArray(held) ? fieldsOf(held) : pre(text));
}

/** A record of a call whose message is not at hand. */
function callRecord(record, n) {
  const rest = Object.fromEntries(Object.entries(record).filter(([k]) => !["name", "arguments", "answer", "kind", "status", "seconds", "turn"].includes(k)));
  return el("article", { class: kindOf(record) === "ok" ? "message tool" : "message tool bad" },
    el("h4", {}, `call ${n + 1} ${record.name || ""} `, el("span", { class: `tag ${kindOf(record) === "ok" ? "right" : "wrong"}` }, `${kindOf(record)}, ${brief(record.seconds)} s`)),
    record.arguments ? fieldsOf(record.arguments) : null, record.answer ? [el("h4", {}, "output"), pre(String(record.answer))] : null,
    Object.keys(rest).length ? fieldsOf(rest) : null);
}
