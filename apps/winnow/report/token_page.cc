#include "apps/winnow/report/token_page.h"

#include <fmt/format.h>

#include <string_view>

#include "apps/winnow/report/svg_plot.h"

namespace winnow::cli {
namespace {

constexpr std::string_view kTokenPageHead =
    R"(<meta name="viewport" content="width=device-width"><title>{0}</title><style>
body {{ font: 15px/1.7 system-ui, sans-serif; margin: 2em auto; max-width: 60em; padding: 0 1em;
  color-scheme: light; background: #fff; color: #111 }}
#text {{ white-space: pre-wrap; overflow-wrap: anywhere }} #text span {{ border-radius: 3px }}
label {{ position: sticky; top: 0; display: block; background: #fff; padding: .5em 0 }}
</style></head><body><h1>{0}</h1>
<label>What is kept by <select id="head"></select>
 (dark: kept; white: evicted or merged; outlined: still in the window)</label>
<div id="text">)";

constexpr std::string_view kScript = R"js(</div><script>
const fates = "{0}", heads = {1}, kvHeads = {2};
const spans = document.querySelectorAll("#text span"), list = document.getElementById("head");
const held = Array(heads).fill(0), tokens = fates.length / heads;
for (let i = 0; i < fates.length; ++i) held[i % heads] += fates[i] !== "0";
const all = held.reduce((a, b) => a + b), number = n => n.toLocaleString("en");
list.add(new Option("all heads, " + (fates.length / all).toFixed(2) + " times fewer entries than dense: the share of heads", -1));
for (let h = 0; h < heads; ++h)
  list.add(new Option("layer " + Math.floor(h / kvHeads) + ", head " + h % kvHeads + ": " + number(held[h]) +
    " of " + number(tokens) + " tokens", h));
function paint() {{
  const head = Number(list.value);
  spans.forEach((span, t) => {{
    const row = fates.slice(t * heads, (t + 1) * heads);
    const some = head < 0 ? row : row[head];
    const gone = some.split("0").length - 1;
    const share = 1 - gone / some.length;
    span.style.background = "rgba(37, 110, 180, " + (0.6 * Math.sqrt(share)).toFixed(2) + ")";
    span.style.boxShadow = some.includes("2") ? "inset 0 0 0 1px #b8860b" : "none";
    span.title = "token " + t + ": " + (some.length - gone) + " of " + some.length;
  }});
}}
list.onchange = paint; paint();
</script></body></html>
)js";

}  // namespace

std::string token_page(const std::string& title, const std::vector<std::string>& texts,
                       const eval::Profile& profile, int kv_heads) {
  std::string page = fmt::format(kTokenPageHead, escape_markup(title));
  for (const std::string& text : texts) {
    page += fmt::format("<span>{}</span>", escape_markup(text));
  }
  std::string fates;
  for (const eval::Fate fate : profile.fates) {
    fates += static_cast<char>('0' + static_cast<int>(fate));
  }
  return page + fmt::format(kScript, fates, profile.heads, kv_heads);
}

}  // namespace winnow::cli
