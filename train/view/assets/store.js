// Bodies of rollouts and tasks: chunks that are unpacked when they are needed.

class Store {
  /** @param {any} ix the index  @param {string} where `inline`, `files` or `server` */
  constructor(ix, where) {
    this.ix = ix;
    this.where = where;
    this.kept = new Map();
    this.texts = { row: [], task: [] };
    this.searched = 0;
  }

  /** The body (`body`, `token` or `task`) of one item. */
  async item(kind, i) {
    const { chunk, at } = placeIn(this.ix.starts[kind], i);
    return (await this.chunk(kind, chunk))[at];
  }

  /** A chunk's items. The newest few are kept unpacked. */
  chunk(kind, number) {
    const name = `${kind}-${number}`;
    const known = this.kept.get(name);
    this.kept.delete(name);
    const found = known || this.packed(kind, number).then(unpack);
    this.kept.set(name, found);
    if (this.kept.size > 24) this.kept.delete(this.kept.keys().next().value);
    found.catch(() => this.kept.delete(name));
    return found;
  }

  packed(kind, number) {
    if (this.where === "server") return this.asked(`chunk/${this.ix.version}/${kind}/${number}`);
    if (this.where === "files") return fileChunk(kind, number);
    return loaded().then(() => {
      const element = document.getElementById(`${kind}-${number}`);
      if (!element) throw new Error(`the page lacks chunk ${kind}-${number}`);
      return element.textContent;
    });
  }

  async asked(path) {
    const answer = await fetch(path);
    if (!answer.ok) throw new Error(`the server has no ${path}`);
    return answer.text();
  }

  /**
   * Read all texts for the search, a chunk at a time so that the page stays quick.
   * @param {(share: number) => void} progress called now and then, and with 1 at the end
   * @param {() => boolean} stop whether another index has taken this one's place
   */
  async readTexts(progress, stop) {
    const chunks = [];
    for (const kind of ["task", "body"]) {
      this.ix.starts[kind].forEach((start, number) => chunks.push({ kind, start, number }));
    }
    let said = performance.now();
    for (const [done, { kind, start, number }] of chunks.entries()) {
      if (stop()) return;
      const items = await unpack(await this.packed(kind, number));
      const into = kind === "task" ? this.texts.task : this.texts.row;
      items.forEach((item, k) => { into[start + k] = textOf(kind, item); });
      this.searched = (done + 1) / chunks.length;
      if (performance.now() - said > 300) {
        said = performance.now();
        progress(this.searched);
      }
      await new Promise((then) => setTimeout(then));
    }
    this.searched = 1;
    progress(1);
  }
}

/** What can be searched for in a body, in lower case. */
function textOf(kind, item) {
  const found = [];
  const add = (value) => {
    if (typeof value === "string") found.push(value);
    else if (value && typeof value === "object") Object.values(value).forEach(add);
  };
  if (kind === "task") {
    add(item.prompt);
    if (item.gold) add(item.gold.text);
    if (item.meta) add(item.meta);
  } else {
    add([item.text, item.messages || [], item.failure || "", item.where]);
    if (item.finding) add(item.finding.said);
    for (const call of item.calls || []) if (!item.messages) add(call);
  }
  return found.join("\n").toLowerCase();
}

/** Base64 of a gzipped JSON list → the list. */
async function unpack(text) {
  const binary = atob(text.trim());
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

/** Resolves when the whole page has been read: chunks stand at its end. */
function loaded() {
  if (document.readyState !== "loading") return Promise.resolve();
  return new Promise((then) => document.addEventListener("DOMContentLoaded", () => then(), { once: true }));
}

const waiting = new Map();

/** Chunk files call this. */
globalThis.assayChunk = (kind, number, text) => {
  const name = `${kind}-${number}`;
  if (waiting.has(name)) waiting.get(name)(text);
  waiting.delete(name);
};

function fileChunk(kind, number) {
  return new Promise((then, fail) => {
    const script = document.createElement("script");
    script.src = `chunks/${kind}-${number}.js`;
    waiting.set(`${kind}-${number}`, then);
    script.onload = () => script.remove();
    script.onerror = () => fail(new Error(`${script.src} cannot be read`));
    document.head.append(script);
  });
}
