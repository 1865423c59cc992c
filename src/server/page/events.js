// What the keyboard and the pointer do.
$("composer").addEventListener("submit", (event) => { event.preventDefault(); send(); });
$("input").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey) { event.preventDefault(); send(); }
});
$("stop").addEventListener("click", () => request?.abort());
$("clear").addEventListener("click", () => {
  messages.length = 0;
  bubbles.length = 0;
  unanswered = null;
  $("messages").replaceChildren();
  showError("");
  clearCache();
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
$("votes").addEventListener("change", () => { $("chains").disabled = !$("votes").checked; });
window.addEventListener("resize", drawSoon);

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  draw();
}

if (matchMedia("(pointer: coarse)").matches) $("input").placeholder = "Write a message.";
setTheme(localStorage.getItem("winnow-theme")
  ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"));
connect().catch((error) => showError(error.message));
