// The conversation: what is said, and the tokens that it is made of.
const messages = [];  // {role, content}
let request = null;   // AbortController of the answer that streams
let unanswered = null;  // the last answer, if it has called tools
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

// Changes what is shown; who reads the end of the conversation goes on reading its end. The list is
// measured once a frame, not for every token: each time costs a layout of all that was written.
let scrolls = false;
function keepAtEnd(change) {
  const list = $("messages");
  if (!scrolls) {
    scrolls = true;
    const atEnd = list.scrollHeight - list.scrollTop - list.clientHeight < 60;
    requestAnimationFrame(() => {
      scrolls = false;
      if (atEnd) list.scrollTop = list.scrollHeight;
    });
  }
  change();
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

// Says what is written, or what the tools answer that the model has called.
async function send() {
  if (request) return;
  const content = $("input").value.trim();
  const before = { messages: messages.length, bubbles: bubbles.length, unanswered, content };
  if (!answerCalls()) {
    if (!content) return;
    $("input").value = "";
    if (messages.length === 0 && $("system").value.trim()) {
      messages.push({ role: "system", content: $("system").value.trim() });
    }
    messages.push({ role: "user", content });
    bubbles.push({ text: content, element: addBubble("user", content) });
  }
  showError("");
  request = new AbortController();
  setBusy(true);
  const element = addBubble("assistant", "");
  const answer = makeAnswer(element);
  let failed = false;
  try {
    await ($("votes").checked ? vote(answer) : stream(answer));
  } catch (error) {
    failed = true;
    if (error.name !== "AbortError") showError(error.message);
  }
  if (failed && answer.empty) {
    element.parentElement.remove();
    takeBack(before);
  } else {
    keepAnswer(answer, element);
  }
  request = null;
  setBusy(false);
  draw();
}

function keepAnswer(answer, element) {
  answer.endThought();
  messages.push({ role: "assistant", content: answer.text,
    ...(answer.calls.length ? { tool_calls: answer.calls } : {}) });
  bubbles.push({ text: answer.text, element });
  unanswered = answer.calls.length ? answer : null;
}

// Forgets what no answer came to, which would make all later messages fail as well; what was
// written can be changed and sent again.
function takeBack(before) {
  messages.length = before.messages;
  for (const { element } of bubbles.splice(before.bubbles)) element.parentElement.remove();
  unanswered = before.unanswered;
  unanswered?.calls.forEach((call, i) => { unanswered.call(i).result.disabled = false; });
  if (!unanswered) $("input").value ||= before.content;
}

// Whether the last answer has called tools, which are then answered.
function answerCalls() {
  if (!unanswered) return false;
  unanswered.calls.forEach((call, i) => {
    const { result } = unanswered.call(i);
    result.disabled = true;
    messages.push({ role: "tool", tool_call_id: call.id, content: result.value });
  });
  unanswered = null;
  return true;
}

function settings() {
  const tools = $("tools").value.trim();
  const most = $("max-tokens").value;
  return {
    temperature: Number($("temperature").value),
    ...(most ? { max_tokens: Number(most) } : {}),
    ...(tools ? { tools: parseTools(tools) } : {}),
  };
}

function parseTools(text) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Error(`Tools in Settings is not JSON: ${error.message}`);
  }
}

async function vote(answer) {
  const whole = await (await ask("/v1/chat/completions", { messages, ...settings(),
    winnow_votes: { chains: Number($("chains").value) } }, request.signal)).json();
  clearCache(`Each of ${whole.winnow.votes.chains.length} chains had a cache of its own: none is shown.`);
  const message = whole.choices[0].message;
  answer.text = message.content;
  keepAtEnd(() => {
    if (message.reasoning_content) answer.thought.textContent = message.reasoning_content;
    answer.content.textContent = message.content;
    answer.endThought();
    answer.showVotes(whole.winnow.votes);
    answer.showEnd(whole.choices[0].finish_reason);
  });
}

async function stream(answer) {
  const asked = { messages, ...settings() };
  const { token_strs: pieces } = await (await ask("/tokenize",
    { messages, tools: asked.tools, return_token_strs: true }, request.signal)).json();
  const events = await ask("/v1/chat/completions", {
    ...asked, stream: true, stream_options: { include_usage: true }, winnow_trace: true,
  }, request.signal);
  clearCache();  // a refused request leaves what is shown of the last one
  placePrompt(pieces, bubbles);
  let began = 0;
  let count = 0;
  for await (const event of eventsOf(events)) {
    if (event.winnow_trace) cache.take(event.winnow_trace);
    keepAtEnd(() => {
      answer.showEnd(event.choices[0]?.finish_reason);
      const [place, piece] = takePiece(answer, event.choices[0]?.delta ?? {});
      if (!piece) return;
      // The text of the token that comes after all those that the cache has taken.
      cache.texts[cache.tokens] = piece;
      addToken(place, cache.tokens, piece);
      began ||= performance.now();
      ++count;
      showSpeed(count - 1, performance.now() - began);
    });
    if (event.winnow) cache.bytes = { held: event.winnow.kv_bytes, dense: event.winnow.dense_bytes };
    drawSoon();
  }
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
