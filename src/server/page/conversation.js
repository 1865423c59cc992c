// The conversation: what is said, and the tokens that it is made of.
const messages = [];  // {role, content}
let request = null;   // AbortController of the answer that streams
const bubbles = [];  // {text, element}, one per message shown

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
