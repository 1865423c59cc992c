// The chat and its live view of the cache. What the server streams: docs/serving.md, "The live cache".
"use strict";

const $ = (id) => document.getElementById(id);
const model = { name: "", rule: "", window: -1, layers: 0, kvHeads: 0, entryBytes: 0 };
const messages = [];  // {role, content}
let request = null;   // AbortController of the answer that streams

// What is known of the cache of the last request.
const cache = {
  tokens: 0,     // that it has taken
  live: [],      // entries by head
  kept: [],      // by token: a BigInt mask of the heads that kept it when it left the window
  ratios: [],    // compression by token
  texts: [],     // by token, as far as known
  spans: [],     // by token, where it stands in the conversation
  bytes: null,   // {held, dense} once the server has told them
  clear() {
    Object.assign(this, { tokens: 0, live: [], kept: [], ratios: [], texts: [], spans: [], bytes: null });
  },
  get heads() { return model.layers * model.kvHeads; },
  take(trace) {
    trace.kept.forEach((mask, i) => {
      const position = trace.position + i - (model.window + 1);
      if (position >= 0) this.kept[position] = BigInt("0x" + mask);
    });
    this.tokens = trace.position + trace.tokens;
    this.live = trace.live;
    const entries = trace.live.reduce((a, b) => a + b, 0);
    this.ratios.push([this.tokens, this.tokens * this.heads / entries]);
  },
  // A mask of the heads that hold a token; null: the rule does not tell.
  holders(position) {
    const all = (1n << BigInt(this.heads)) - 1n;
    if (position >= this.tokens) return 0n;
    if (model.rule === "dense") return all;
    if (model.rule !== "dms") return null;
    return position >= this.tokens - model.window - 1 ? all : this.kept[position] ?? 0n;
  },
};

const countBits = (mask) => {
  let count = 0;
  for (; mask > 0n; mask >>= 1n) count += Number(mask & 1n);
  return count;
};

const readable = (bytes) => {
  const units = ["B", "KiB", "MiB", "GiB"];
  let unit = 0;
  for (; bytes >= 1024 && unit < 3; ++unit) bytes /= 1024;
  return `${bytes >= 100 || unit === 0 ? bytes.toFixed(0) : bytes.toFixed(1)} ${units[unit]}`;
};

// --- asking the server

async function ask(path, body, signal) {
  const headers = { "Content-Type": "application/json" };
  if ($("key").value) headers.Authorization = `Bearer ${$("key").value}`;
  const answer = await fetch(path, body ? { method: "POST", headers, body: JSON.stringify(body), signal }
    : { headers });
  if (!answer.ok) {
    const error = await answer.json().catch(() => null);
    throw new Error(error?.error?.message ?? `the server says ${answer.status}`);
  }
  return answer;
}

async function* eventsOf(answer) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += value;
    for (let end; (end = text.indexOf("\n\n")) >= 0; text = text.slice(end + 2)) {
      const data = text.slice(0, end).replace(/^data: /, "");
      if (data === "[DONE]") return;
      const event = JSON.parse(data);
      if (event.error) throw new Error(event.error.message);
      yield event;
    }
  }
}

async function connect() {
  const { data: [first] } = await (await ask("/v1/models")).json();
  Object.assign(model, { name: first.id, rule: first.winnow.cache, window: first.winnow.window,
    layers: first.winnow.layers, kvHeads: first.winnow.kv_heads, entryBytes: first.winnow.entry_bytes });
  const rule = model.rule === "dms" ? `dms, window ${model.window}` : model.rule;
  $("model").textContent = `${model.name} · ${rule} · ${model.layers} layers × ${model.kvHeads} KV heads`
    + ` · ${first.winnow.kv_dtype}`;
}

// --- the conversation

function addBubble(role, content) {
  const bubble = document.createElement("li");
  bubble.className = role;
  const who = document.createElement("b");
  who.textContent = role;
  const text = document.createElement("span");
  text.textContent = content;
  bubble.append(who, text);
  $("messages").append(bubble);
  $("messages").scrollTop = $("messages").scrollHeight;
  return text;
}

function addToken(parent, position, text) {
  const span = document.createElement("span");
  span.className = "t";
  span.dataset.position = position;
  span.textContent = text;
  parent.append(span);
  cache.spans[position] = span;
}

// Finds the tokens of the prompt in the bubbles, so that each can be pointed at.
function placePrompt(pieces, bubbles) {
  cache.texts = pieces;
  const whole = pieces.join("");
  const starts = [];
  pieces.reduce((at, piece, i) => (starts[i] = at, at + piece.length), 0);
  let from = 0;
  for (const { text, element } of bubbles) {
    const trimmed = text.trim();
    const begin = trimmed ? whole.indexOf(trimmed, from) : -1;
    if (begin < 0) continue;
    from = begin + trimmed.length;
    element.textContent = "";
    for (let i = 0; i < pieces.length; ++i) {
      const start = Math.max(starts[i], begin);
      const end = Math.min(starts[i] + pieces[i].length, from);
      if (start < end) addToken(element, i, whole.slice(start, end));
    }
  }
}

const bubbles = [];  // {text, element}, one per message shown

async function send() {
  const content = $("input").value.trim();
  if (!content || request) return;
  showError("");
  $("input").value = "";
  if (messages.length === 0 && $("system").value.trim()) {
    messages.push({ role: "system", content: $("system").value.trim() });
  }
  messages.push({ role: "user", content });
  bubbles.push({ text: content, element: addBubble("user", content) });
  request = new AbortController();
  setBusy(true);
  const element = addBubble("assistant", "");
  let text = "";
  try {
    text = await stream(element, (piece) => { text += piece; });
  } catch (error) {
    if (error.name !== "AbortError") showError(error.message);
  }
  messages.push({ role: "assistant", content: text });
  bubbles.push({ text, element });
  request = null;
  setBusy(false);
  draw();
}

async function stream(element, onText) {
  cache.clear();
  const { token_strs: pieces } = await (await ask("/tokenize",
    { messages, return_token_strs: true }, request.signal)).json();
  placePrompt(pieces, bubbles);
  const answer = await ask("/v1/chat/completions", {
    messages, stream: true, stream_options: { include_usage: true }, winnow_trace: true,
    temperature: Number($("temperature").value), max_tokens: Number($("max-tokens").value),
  }, request.signal);
  let whole = "";
  let began = 0;
  let count = 0;
  for await (const event of eventsOf(answer)) {
    if (event.winnow_trace) cache.take(event.winnow_trace);
    const piece = event.choices[0]?.delta?.content;
    if (piece) {
      whole += piece;
      onText(piece);
      // The text of the token that comes after all those that the cache has taken.
      cache.texts[cache.tokens] = piece;
      addToken(element, cache.tokens, piece);
      $("messages").scrollTop = $("messages").scrollHeight;
      began ||= performance.now();
      ++count;
      showSpeed(count - 1, performance.now() - began);
    }
    if (event.winnow) cache.bytes = { held: event.winnow.kv_bytes, dense: event.winnow.dense_bytes };
    drawSoon();
  }
  return whole;
}

function showSpeed(tokens, milliseconds) {
  if (tokens > 0 && milliseconds > 0) $("speed").textContent = (tokens / milliseconds * 1000).toFixed(0);
}

function setBusy(busy) {
  $("send").disabled = busy;
  $("stop").disabled = !busy;
  $("clear").disabled = busy;
}

function showError(message) {
  $("error").textContent = message;
  $("error").hidden = !message;
}

// --- drawing

let chosen = -1;
let drawing = false;

// A few times a second: thousands of tokens are tinted each time.
function drawSoon() {
  if (drawing) return;
  drawing = true;
  setTimeout(() => requestAnimationFrame(() => { drawing = false; draw(); }), 120);
}

function prepare(canvas) {
  const scale = window.devicePixelRatio || 1;
  const { clientWidth: width, clientHeight: height } = canvas;
  if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.clearRect(0, 0, width, height);
  const style = getComputedStyle(document.documentElement);
  const color = (name) => style.getPropertyValue(name).trim();
  return { pen, width, height, color };
}

const warm = (rgb, share) => `rgba(${rgb}, ${share === 0 ? 0 : 0.25 + 0.75 * share})`;

// A row per head, a column per token or run of tokens: how many of them are held.
function drawMap() {
  const { pen, width, height, color } = prepare($("map"));
  pen.fillStyle = color("--empty");
  pen.fillRect(0, 0, width, height);
  const { tokens, heads } = cache;
  if (!tokens || !heads || cache.holders(0) === null) return;
  const columns = Math.max(1, Math.min(tokens, Math.floor(width / 2)));
  const gap = model.layers > 1 && height / heads > 5 ? 2 : 0;  // between layers
  const rowHeight = (height - gap * (model.layers - 1)) / heads;
  const rgb = color("--accent-rgb");
  const held = new Uint32Array(heads);
  for (let column = 0; column < columns; ++column) {
    const first = Math.floor(column * tokens / columns);
    const last = Math.max(first + 1, Math.floor((column + 1) * tokens / columns));
    held.fill(0);
    for (let position = first; position < last; ++position) {
      let mask = cache.holders(position);
      for (let head = 0; mask > 0n; ++head, mask >>= 1n) held[head] += Number(mask & 1n);
    }
    for (let head = 0; head < heads; ++head) {
      if (!held[head]) continue;
      pen.fillStyle = warm(rgb, held[head] / (last - first));
      const y = head * rowHeight + Math.floor(head / model.kvHeads) * gap;
      pen.fillRect(column * width / columns, y, width / columns + 0.3, Math.max(1, rowHeight - 0.5));
    }
  }
  if (chosen >= 0 && chosen < tokens) {
    pen.fillStyle = color("--ink");
    pen.fillRect((chosen + 0.5) * width / tokens - 0.75, 0, 1.5, height);
  }
}

function drawHeads() {
  const { pen, width, height, color } = prepare($("heads"));
  const mask = chosen >= 0 ? cache.holders(chosen) : null;
  if (mask === null || !cache.heads) return;
  const side = Math.min(width / model.layers, height / model.kvHeads);
  for (let head = 0; head < cache.heads; ++head) {
    const layer = Math.floor(head / model.kvHeads);
    pen.fillStyle = mask >> BigInt(head) & 1n ? warm(color("--accent-rgb"), 1) : color("--empty");
    pen.fillRect(layer * side, head % model.kvHeads * side, side - 2, side - 2);
  }
}

function drawCurve() {
  const { pen, width, height, color } = prepare($("curve"));
  pen.fillStyle = color("--empty");
  pen.fillRect(0, 0, width, height);
  if (cache.ratios.length === 0) return;
  const most = Math.max(2, ...cache.ratios.map(([, ratio]) => ratio)) * 1.1;
  const x = (tokens) => tokens / cache.tokens * width;
  const y = (ratio) => height - ratio / most * height;
  pen.strokeStyle = color("--accent");
  pen.lineWidth = 2;
  pen.beginPath();
  pen.moveTo(0, y(1));
  for (const [tokens, ratio] of cache.ratios) pen.lineTo(x(tokens), y(ratio));
  pen.stroke();
  pen.fillStyle = color("--quiet");
  pen.font = "12px system-ui, sans-serif";
  pen.fillText(`${cache.ratios.at(-1)[1].toFixed(2)}×`, 6, 14);
}

function drawFigures() {
  const entries = cache.live.reduce((a, b) => a + b, 0);
  if (!entries) return;
  const held = cache.bytes?.held ?? entries * model.entryBytes;
  const dense = cache.bytes?.dense ?? cache.tokens * cache.heads * model.entryBytes;
  $("held").textContent = readable(held);
  $("dense").textContent = readable(dense);
  $("ratio").textContent = `${(cache.tokens * cache.heads / entries).toFixed(2)}×`;
  $("tokens").textContent = cache.tokens;
  $("map").setAttribute("aria-label",
    `Heat map: ${entries} entries of ${cache.tokens * cache.heads} are held`);
}

function drawTable() {
  const table = $("table");
  const caption = table.caption;
  table.replaceChildren(caption);
  const row = (name, cells, tag) => {
    const line = table.insertRow();
    const head = document.createElement("th");
    head.textContent = name;
    head.scope = "row";
    line.append(head, ...cells.map((text) => {
      const cell = document.createElement(tag);
      cell.textContent = text;
      return cell;
    }));
  };
  row("layer", Array.from({ length: model.kvHeads }, (_, head) => `head ${head}`), "th");
  for (let layer = 0; layer < model.layers; ++layer) {
    row(layer, cache.live.slice(layer * model.kvHeads, (layer + 1) * model.kvHeads), "td");
  }
}

function tintTokens() {
  cache.spans.forEach((span, position) => {
    const mask = cache.holders(position);
    if (mask !== null) span.style.setProperty("--held", (countBits(mask) / cache.heads).toFixed(2));
  });
}

function draw() {
  drawMap();
  drawHeads();
  drawCurve();
  drawFigures();
  if ($("table").closest("details").open) drawTable();
  tintTokens();
}

function choose(position) {
  cache.spans[chosen]?.classList.remove("chosen");
  chosen = position;
  const span = cache.spans[chosen];
  span?.classList.add("chosen");
  const mask = cache.holders(position);
  const text = JSON.stringify(cache.texts[position] ?? "?");
  if (position >= cache.tokens) {
    $("token").textContent = `Token ${position} ${text} is not in the cache yet.`;
  } else if (mask === null) {
    $("token").textContent = `Token ${position} ${text}: the rule ${model.rule} does not tell who holds it.`;
  } else {
    $("token").textContent = `Token ${position} ${text} is held by ${countBits(mask)} of ${cache.heads} heads`
      + ` (below: a column per layer, a row per head).`;
  }
  drawMap();
  drawHeads();
  return span;
}

// --- events

$("composer").addEventListener("submit", (event) => { event.preventDefault(); send(); });
$("input").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey) { event.preventDefault(); send(); }
});
$("stop").addEventListener("click", () => request?.abort());
$("clear").addEventListener("click", () => {
  messages.length = 0;
  bubbles.length = 0;
  cache.clear();
  chosen = -1;
  $("messages").replaceChildren();
  for (const id of ["held", "dense", "ratio", "tokens", "speed"]) $(id).textContent = "–";
  showError("");
  draw();
});
$("messages").addEventListener("mouseover", (event) => {
  const position = event.target.dataset?.position;
  if (position !== undefined) choose(Number(position));
});
$("messages").addEventListener("keydown", (event) => {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step) return;
  event.preventDefault();
  let next = chosen + step;
  while (next >= 0 && next < cache.spans.length && !cache.spans[next]) next += step;
  if (cache.spans[next]) choose(next).scrollIntoView({ block: "nearest" });
});
$("map").addEventListener("mousemove", (event) => {
  if (cache.tokens) choose(Math.min(cache.tokens - 1,
    Math.floor(event.offsetX / $("map").clientWidth * cache.tokens)));
});
$("table").closest("details").addEventListener("toggle", draw);
$("theme").addEventListener("click", () => {
  setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
  localStorage.setItem("winnow-theme", document.documentElement.dataset.theme);
});
$("key").addEventListener("change", () => connect().then(() => showError(""), (error) => showError(error.message)));
window.addEventListener("resize", drawSoon);

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  draw();
}

setTheme(localStorage.getItem("winnow-theme")
  ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"));
connect().catch((error) => showError(error.message));
