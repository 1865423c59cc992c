// winnow eval profile: which tokens of a text a model keeps, and in which heads.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "apps/winnow/eval/eval.h"
#include "apps/winnow/eval/run.h"
#include "apps/winnow/flag_group.h"
#include "apps/winnow/output.h"
#include "apps/winnow/report/heat_map.h"
#include "apps/winnow/report/page.h"
#include "apps/winnow/report/token_page.h"
#include "apps/winnow/screen.h"
#include "base/error.h"
#include "base/sha256.h"
#include "eval/attention_distance.h"
#include "eval/profile.h"
#include "kvcache/rule_traits.h"

namespace winnow::cli {
namespace {

struct ProfileFlags : EvalFlags {
  std::string text;
  std::string html;
  int context = 4096;
  int show = 200;
  bool attention = false;
};

constexpr int kBins = 8;  // of positions

// 64, 128, 256 ... and the whole length.
std::vector<int> lengths_of(const eval::Profile& profile) {
  std::vector<int> lengths;
  for (int length = 64; length < profile.tokens; length *= 2) {
    lengths.push_back(length);
  }
  lengths.push_back(profile.tokens);
  return lengths;
}

Json to_json(const eval::Profile& profile, int kv_heads) {
  Json per_head = Json::array();
  for (std::size_t i = 0; i < profile.live.size(); i += static_cast<std::size_t>(kv_heads)) {
    Json row = Json::array();
    for (std::size_t h = 0; h < static_cast<std::size_t>(kv_heads); ++h) {
      row.push_back(static_cast<double>(profile.tokens) / profile.live[i + h]);
    }
    per_head.push_back(std::move(row));
  }
  Json by_length = Json::array();
  for (const int length : lengths_of(profile)) {
    by_length.push_back({{"length", length}, {"compression_ratio", profile.ratio_at(length)}});
  }
  Json by_position = Json::array();
  for (int bin = 0; bin < kBins && !profile.fates.empty(); ++bin) {
    const int first = profile.tokens * bin / kBins;
    const int last = profile.tokens * (bin + 1) / kBins;
    const double share = profile.kept_share(first, last);
    by_position.push_back(
        {{"first", first}, {"last", last}, {"kept", std::isnan(share) ? Json() : Json(share)}});
  }
  return {{"tokens", profile.tokens},
          {"compression_ratio", profile.ratio_at(profile.tokens)},
          {"per_layer_head", per_head},
          {"by_length", by_length},
          {"by_position", by_position}};
}

Json to_json(const eval::AttentionDistance& attention, int kv_heads) {
  Json per_head = Json::array();
  for (int head = 0; head < attention.heads; ++head) {
    if (head % kv_heads == 0) {
      per_head.push_back(Json::array());
    }
    per_head.back().push_back(attention.of_head(head));
  }
  return {{"distances", attention.first},
          {"shares", attention.mean()},
          {"per_layer_head", std::move(per_head)}};
}

void print_attention(const eval::AttentionDistance& attention) {
  const std::vector<double> shares = attention.mean();
  print("\n        distance  attention\n");
  for (std::size_t bin = 0; bin < attention.first.size(); ++bin) {
    const int first = attention.first[bin];
    const int last = std::max(first, 2 * first - 1);
    print(
        fmt::format("{:>16} {:>9.1f}%\n",
                    first == last ? fmt::format("{}", first) : fmt::format("{} to {}", first, last),
                    100.0 * shares[bin]));
  }
  print(fmt::format("     first token {:>9.1f}%\n", 100.0 * shares.back()));
}

// The last tokens; the shade shows how many heads keep each.
std::string coloured_text(const std::vector<std::string>& texts, const eval::Profile& profile,
                          int count) {
  constexpr int kLightest = 255;
  constexpr int kShades = 12;  // of the terminal's grey scale
  std::string text;
  for (int t = std::max(0, profile.tokens - count); t < profile.tokens; ++t) {
    const int shade =
        kLightest - static_cast<int>(std::lround(kShades * profile.share_of_heads(t)));
    text += fmt::format("\x1b[48;5;{};38;5;{}m{}\x1b[0m", shade, shade < 247 ? 255 : 16,
                        texts[static_cast<std::size_t>(t)]);
  }
  return text + "\n";
}

void print_profile(const eval::Profile& profile, const Json& json, int kv_heads) {
  print(fmt::format("Entries that each head holds after {} tokens ({:.2f}x fewer)\n\n",
                    grouped(profile.tokens), profile.ratio_at(profile.tokens)));
  print(cache_picture(profile.live, kv_heads, profile.tokens, output_takes_escapes()));
  print("\n  length      CR\n");
  for (const Json& row : json.at("by_length")) {
    print(fmt::format("{:>8} {:>7.2f}\n", row.at("length").get<int>(),
                      row.at("compression_ratio").get<double>()));
  }
  if (!json.at("by_position").empty()) {
    print("\n      positions   kept\n");
  }
  for (const Json& row : json.at("by_position")) {
    print(fmt::format(
        "{:>6} to {:>6} {:>6}\n", row.at("first").get<int>(), row.at("last").get<int>(),
        row.at("kept").is_null() ? "-"
                                 : fmt::format("{:.1f}%", 100.0 * row.at("kept").get<double>())));
  }
}

// Checked before the text is read, which takes long.
void check_html(const ProfileFlags& flags, const kvcache::RuleTraits& rule) {
  if (flags.html.empty()) {
    return;
  }
  require(!rule.has_budget, "--html: --cache {} does not tell what it kept, as {} do", rule.name,
          kvcache::list_rules("and", [](const auto& other) { return !other.has_budget; }));
  require_page(flags.html);
}

int run_profile(const ProfileFlags& flags) {
  const std::string text = read_text(flags.text);
  Sha256 digest;
  digest.update(text);
  EvalRun run("profile", flags,
              {{"text", flags.text},
               {"text_sha256", digest.finish()},
               {"context", flags.context},
               {"attention", flags.attention}});
  require(flags.context >= 1, "--context {}: at least 1 is needed", flags.context);
  check_html(flags, run.model().engine.cache.traits());
  std::vector<std::int32_t> tokens = run.prefix();
  const auto all = run.tokenizer().encode(text, {.add_special = false, .parse_special = false});
  tokens.insert(tokens.end(), all.begin(), all.end());
  tokens.resize(std::min(tokens.size(), static_cast<std::size_t>(flags.context)));
  const eval::Profile profile = eval::measure_profile(
      run.model(), tokens, run.progress(static_cast<std::int64_t>(tokens.size()), "tokens"));
  const int kv_heads = run.model().model.spec().attention().kv_heads;
  std::vector<std::string> texts;
  texts.reserve(static_cast<std::size_t>(profile.tokens));
  for (int t = 0; t < profile.tokens; ++t) {
    texts.push_back(run.tokenizer().token_bytes(tokens[static_cast<std::size_t>(t)], true));
  }
  if (!flags.html.empty()) {
    write_page(flags.html, token_page(fmt::format("What {} keeps", flags.load.model), texts,
                                      profile, kv_heads));
  }
  Json json = to_json(profile, kv_heads);
  eval::AttentionDistance attention;
  if (flags.attention) {
    attention = eval::measure_attention_distance(
        run.model(), tokens, run.progress(static_cast<std::int64_t>(tokens.size()), "tokens"));
    json["attention"] = to_json(attention, kv_heads);
  }
  return run.finish(json, [&] {
    print_profile(profile, json, kv_heads);
    if (!attention.shares.empty()) {
      print_attention(attention);
    }
    if (output_takes_escapes() && !profile.fates.empty()) {
      print("\n" + coloured_text(texts, profile, flags.show));
    }
  });
}

}  // namespace

void add_eval_profile(CLI::App& eval, Run& run) {
  std::shared_ptr<ProfileFlags> flags;
  CLI::App* command = add_command(eval, run, "profile",
                                  "Shows which tokens of a text a model keeps: by layer and head, "
                                  "by length and position, and token by token",
                                  flags, run_profile);
  const FlagGroup own(*command);
  add_text_flag(own, flags->text);
  own.option("--context", flags->context, "N", "Use the first tokens of the text, BOS included");
  own.option("--show", flags->show, "N", "Tokens shown on a terminal, the last ones");
  own.flag("--attention", flags->attention,
           "Also measure how far queries look, with a dense cache, token by token on the "
           "CPU (default: off)");
  own.open_option(
      "--html", flags->html, "FILE",
      "Also write a web page of the text, coloured by what each head kept (no default)");
  add_eval_flags(*command, *flags);
}

}  // namespace winnow::cli
