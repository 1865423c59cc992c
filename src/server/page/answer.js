// What an answer is made of: a thought, text, calls of tools, votes. A thought is open until it ends.
function makeAnswer(bubble) {
  const parts = {};
  const part = (name, make) => parts[name] ??= make();
  let thinks = true;
  const fold = (name, title, open = false) => {
    const details = document.createElement("details");
    details.className = name;
    details.open = open;
    const summary = document.createElement("summary");
    summary.textContent = title;
    const body = document.createElement("span");
    details.append(summary, body);
    bubble.parentElement.insertBefore(details, bubble);
    return body;
  };
  return {
    text: "",
    calls: [],  // as the API has them
    get empty() { return !this.text && !this.calls.length && !parts.thought; },
    get thought() { return part("thought", () => fold("thought", "Thought", true)); },
    endThought() {
      if (thinks && parts.thought) parts.thought.parentElement.open = thinks = false;
    },
    get content() { return bubble; },
    call(index) {
      return part(`call ${index}`, () => {
        const row = document.createElement("label");
        row.className = "call";
        const code = document.createElement("code");
        const result = document.createElement("input");
        result.placeholder = "the tool's answer";
        result.addEventListener("keydown", (event) => { if (event.key === "Enter") send(); });
        row.append(code, result);
        bubble.parentElement.append(row);
        return { code, result };
      });
    },
    // Says why an answer ends before its end.
    showEnd(reason) {
      if (reason !== "length") return;
      const note = document.createElement("p");
      note.className = "note";
      note.textContent = $("max-tokens").value ? "The answer has all the tokens that max tokens allows."
        : "The answer fills the model's context: begin a new chat.";
      bubble.parentElement.append(note);
    },
    showVotes(votes) {
      const chains = votes.chains.length;
      const cut = votes.chains.filter((chain) => chain.finish_reason === "cut").length;
      const body = fold("votes", votes.answer === null ? `none of ${chains} chains gave an answer`
        : `${votes.votes} of ${chains} chains ${votes.votes === 1 ? "says" : "say"} ${votes.answer}${cut ? `, ${cut} cut` : ""}`);
      const costs = document.createElement("p");
      costs.textContent = `${Math.round(votes.kv_reads).toLocaleString("en")} KV reads per head, at most `
        + `${Math.round(votes.peak_entries).toLocaleString("en")} entries at a time`;
      const list = document.createElement("ol");
      votes.chains.forEach((chain, i) => {
        const item = document.createElement("li");
        item.className = votes.agree.includes(i) ? "agrees" : "";
        const vote = document.createElement("b");
        vote.textContent = chain.vote ?? (chain.finish_reason === "cut" ? "cut" : "no answer");
        item.append(vote, ` ${chain.text.trim()}`);
        list.append(item);
      });
      body.append(costs, list);
    },
  };
}

// Adds to an answer what a piece of a stream says; returns where its text goes, and the text.
function takePiece(answer, delta) {
  if (delta.reasoning_content) return [answer.thought, delta.reasoning_content];
  if (delta.content || delta.tool_calls) answer.endThought();
  for (const call of delta.tool_calls ?? []) {
    const known = answer.calls[call.index] ??= { id: call.id, type: "function",
      function: { name: call.function.name, arguments: "" } };
    const { code } = answer.call(call.index);
    known.function.arguments += call.function.arguments ?? "";
    code.textContent = `${known.function.name}(${known.function.arguments})`;
  }
  if (delta.content) {
    answer.text += delta.content;
    return [answer.content, delta.content];
  }
  return [null, ""];
}
