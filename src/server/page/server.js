// Asking the server. What it streams: docs/serving-api.md, "The live cache".
async function ask(path, body, signal) {
  const headers = { "Content-Type": "application/json" };
  if ($("key").value) headers.Authorization = `Bearer ${$("key").value}`;
  const answer = await fetch(path, body ? { method: "POST", headers, body: JSON.stringify(body), signal }
    : { headers }).catch(unreachable);
  if (!answer.ok) {
    const { error } = await answer.json().catch(() => ({}));
    throw new Error((error?.message ?? `the server says ${answer.status}`) + remedy(error));
  }
  return answer;
}

// Browsers say "Failed to fetch" or "network error" when a server is gone.
function unreachable(error) {
  if (error.name === "AbortError") throw error;
  throw new Error(`the server at ${location.origin} does not answer: is it running?`);
}

function remedy(error) {
  if (error?.code !== "context_length_exceeded") return "";
  return `: shorten the message${$("max-tokens").value ? ", lower max tokens in Settings" : ""} or begin a new chat`;
}

async function* eventsOf(answer) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read().catch(unreachable);
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
    layers: first.winnow.cache_layers, kvHeads: first.winnow.kv_heads, entryBytes: first.winnow.entry_bytes });
  // What the model's authors recommend; what was typed stays.
  if ("temperature" in first.winnow.sampling) $("temperature").defaultValue = first.winnow.sampling.temperature;
  const rule = model.rule === "dms" ? `dms, window ${model.window}` : model.rule;
  $("model").textContent = `${model.name} · ${rule} · ${model.layers} layers × ${model.kvHeads} KV heads`
    + ` · ${first.winnow.kv_dtype}`;
  clearCache();
}
