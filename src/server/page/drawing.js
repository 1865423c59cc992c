// The live cache, drawn.
const HOW_TO_READ = "The stronger the tint, the more heads hold a token. Point at one, or tap it, to see which.";
let chosen = -1;
let drawing = false;
let pause = 120;  // milliseconds before the next drawing

// A few times a second, and less often where it takes long: the page must go on listening.
function drawSoon() {
  if (drawing) return;
  drawing = true;
  setTimeout(() => {
    const start = performance.now();
    draw();
    pause = Math.max(120, 6 * (performance.now() - start));
    drawing = false;
  }, pause);
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

const LAYER_NAMES = 24;  // pixels beside the map
const warm = (rgb, share) => `rgba(${rgb}, ${share === 0 ? 0 : 0.25 + 0.75 * share})`;

// Numbers of layers beside their rows, as many as there is room for.
function drawLayers(pen, layerHeight, color) {
  const step = Math.ceil(14 / layerHeight);
  pen.fillStyle = color("--quiet");
  pen.font = "11px system-ui, sans-serif";
  pen.textAlign = "right";
  pen.textBaseline = "middle";
  for (let layer = 0; layer < model.layers; layer += step) {
    pen.fillText(layer, LAYER_NAMES - 6, (layer + 0.5) * layerHeight);
  }
}

// A row per head, a column per token or run of tokens: how many of them are held.
function drawMap() {
  const { pen, width: whole, height, color } = prepare($("map"));
  const width = whole - LAYER_NAMES;
  pen.fillStyle = color("--empty");
  pen.fillRect(LAYER_NAMES, 0, width, height);
  const { tokens, heads } = cache;
  if (heads) drawLayers(pen, height / model.layers, color);
  if (!tokens || !heads) return;
  if (!cache.tells) {
    pen.fillStyle = color("--quiet");
    pen.font = "13px system-ui, sans-serif";
    pen.textAlign = "center";
    pen.fillText(`The rule ${model.rule} does not tell which tokens a head holds.`,
      LAYER_NAMES + width / 2, height / 2);
    return;
  }
  const columns = Math.max(1, Math.min(tokens, Math.floor(width / 2)));
  const gap = model.layers > 1 && height / heads > 5 ? 2 : 0;  // between layers
  const rowHeight = (height - gap * (model.layers - 1)) / heads;
  pen.translate(LAYER_NAMES, 0);
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
  pen.fillRect(0, y(1), width, 1);
  pen.font = "12px system-ui, sans-serif";
  pen.textAlign = "right";
  // Dense is named below its line where there is room, the ratio below the curve unless dense is
  // near.
  const last = cache.ratios.at(-1)[1];
  pen.fillText("dense: 1×", width - 6, y(1) + (y(1) + 18 < height ? 15 : -5));
  pen.fillText(`${last.toFixed(2)}×`, width - 6, y(last) + (y(1) - y(last) > 40 ? 16 : -6));
}

// Forgets the cache of the last request, and says what there is to see instead.
function clearCache(text = cache.tells ? HOW_TO_READ : "") {
  cache.clear();
  chosen = -1;
  for (const id of ["held", "dense", "ratio", "tokens", "speed"]) $(id).textContent = "–";
  $("token").textContent = text;
  draw();
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
    if (mask === null || span.mask === mask) return;
    span.mask = mask;
    span.style.setProperty("--held", (countBits(mask) / cache.heads).toFixed(2));
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
    $("token").textContent = `Token ${position} ${text} (the line in the map) is held by ${countBits(mask)} of ${cache.heads} heads`
      + ` (below: a column per layer, a row per head).`;
  }
  drawMap();
  drawHeads();
  return span;
}
