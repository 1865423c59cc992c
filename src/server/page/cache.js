// What is known of the model, and of the cache of the last request.
const model = { name: "", rule: "", window: -1, layers: 0, kvHeads: 0, entryBytes: 0 };

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
  get tells() { return model.rule === "dense" || model.rule === "dms"; },
  // A mask of the heads that hold a token; null: the rule does not tell.
  holders(position) {
    const all = (1n << BigInt(this.heads)) - 1n;
    if (position >= this.tokens) return 0n;
    if (model.rule === "dense") return all;
    if (!this.tells) return null;
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
