// What an answer is made of: a thought, text, calls of tools, votes.
function makeAnswer(bubble) {
  const parts = {};
  const part = (name, make) => parts[name] ??= make();
  const fold = (name, title) => {
    const details = document.createElement("details");
    details.className = name;
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
    get thought() { return part("thought", () => fold("thought", "Thought")); },
    get content() { return bubble; },
    call(index) {
      return part(`call ${index}`, () => {
        const row = document.createElement("label");
        row.className = "call";
        const code = document.createElement("code");
        const result = document.createElement("input");
        result.placeholder = "what the tool answers";
        row.append(code, result);
        bubble.parentElement.append(row);
        return { code, result };
      });
    },
    showVotes(votes) {
      const chains = votes.chains.length;
      const cut = votes.chains.filter((chain) => chain.finish_reason === "cut").length;
      const body = fold("votes", votes.answer === null ? `none of ${chains} chains gave an answer`
        : `${votes.votes} of ${chains} chains say ${votes.answer}${cut ? `, ${cut} cut` : ""}`);
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
