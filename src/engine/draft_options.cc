#include "engine/draft_options.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "base/error.h"
#include "engine/cache_memory.h"

namespace winnow::engine {
namespace {

double token_bytes(const kvcache::CacheShape& shape, ops::EntryFormat format) {
  return static_cast<double>(shape.all_heads()) *
         static_cast<double>(shape.page_layout(format).entry_bytes());
}

// What --speculate names.
std::string_view speculates_by(const LoadOptions& options) {
  const std::string_view text = options.speculate;
  return text.substr(0, text.find(':'));
}

}  // namespace

bool drafts_by_mtp(const LoadOptions& options) {
  return speculates_by(options) == "mtp";
}

int parse_speculate(const LoadOptions& options) {
  constexpr int kDefault = 8;
  const bool by_model = !options.draft_model.empty();
  const std::string_view text = options.speculate;
  if (text.empty()) {
    return by_model ? kDefault : 0;
  }
  const std::string_view how = speculates_by(options);
  int most = how == "lookup" || how == "model" || how == "mtp" ? kDefault : 0;
  if (most > 0 && how.size() < text.size()) {
    const std::string_view number = text.substr(how.size() + 1);
    const auto [end, code] = std::from_chars(number.begin(), number.end(), most);
    most = code == std::errc() && end == number.end() ? most : 0;
  }
  require(most >= 1 && most <= kMostDrafted,
          "--speculate {}: expected lookup or lookup:N, for models with MTP layers mtp or mtp:N, "
          "with --draft-model model or model:N; N tokens from 1 to {}",
          text, kMostDrafted);
  require(by_model || how != "model", "--speculate {}: needs --draft-model, the model that drafts",
          text);
  require(!by_model || how == "model", "--speculate {}: excludes --draft-model {}", text,
          options.draft_model);
  return most;
}

LoadOptions options_of_draft_model(const LoadOptions& options) {
  return {.model = drafts_by_mtp(options) ? options.model : options.draft_model,
          .kv_dtype = options.kv_dtype,
          .dtype = options.dtype,
          .weights = options.weights,
          .device = options.device,
          .threads = options.threads,
          .chunk = options.chunk,
          .deterministic = options.deterministic};
}

void share_cache(EngineConfig& config, const kvcache::CacheShape& shape,
                 const kvcache::CacheConfig& draft_cache, const kvcache::CacheShape& draft_shape,
                 std::string_view option) {
  constexpr double kMost = 0.25;
  const double drafts = token_bytes(draft_shape, draft_cache.format);
  const double part = std::min(kMost, drafts / (drafts + token_bytes(shape, config.cache.format)));
  config.draft_cache = draft_cache;
  config.draft_cache.max_bytes = kAllThereIs;
  config.draft_cache_part = part;
  if (config.cache.max_bytes == kAllThereIs) {
    return;
  }
  const auto all = static_cast<double>(config.cache.max_bytes);
  config.draft_cache.max_bytes = static_cast<std::size_t>(all * part);
  config.cache.max_bytes -= config.draft_cache.max_bytes;
  if (config.prefix_bytes) {
    config.prefix_bytes = config.cache.max_bytes;
  }
  const auto least = static_cast<double>(least_cache_bytes(config.cache, shape));
  const auto draft_least = static_cast<double>(least_cache_bytes(config.draft_cache, draft_shape));
  const double least_of_both = std::max(least / (1.0 - part), draft_least / part);
  constexpr double kGib = 0x1p30;
  require(all >= least_of_both,
          "--kv-gib {:g}: with {} it has no room for one page of each KV head of both "
          "models; the least is {:.6f}",
          all / kGib, option, least_of_both / kGib + 1e-6);
}

}  // namespace winnow::engine
