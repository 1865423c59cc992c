#include "engine/prompt_cache.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/error.h"
#include "checkpoint/replaceable_file.h"

namespace winnow::engine {
namespace {

// Files that hold something other than a state are not read or replaced.
void require_ours(const std::filesystem::path& path) {
  require_replaceable(path, {.name = "a state of winnow", .recognises = claims_to_be_state},
                      "the prompt is computed, the file is left as it is");
}

}  // namespace

PromptCache::PromptCache(std::filesystem::path path, StateKind kind, bool read_only)
    : path_(std::move(path)),
      kind_(std::move(kind)),
      read_only_(read_only),
      told_(std::make_shared<std::optional<kvcache::SavedSequence>>()) {}

void PromptCache::load(Request& request) {
  prompt_ = request.prompt;
  read(request);
  const std::size_t held =
      request.beginning ? static_cast<std::size_t>(request.beginning->length) : 0;
  if (!read_only_ && held + 1 < prompt_.size()) {
    request.on_prompt_cache = [told = told_](kvcache::SavedSequence cache) {
      *told = std::move(cache);
    };
  }
}

void PromptCache::read(Request& request) {
  std::error_code failed;
  if (!std::filesystem::exists(path_, failed) && !failed) {
    if (read_only_) {
      warning_ = fmt::format("{}: there is no such file: the prompt is computed", path_.string());
    }
    return;
  }
  try {
    require_ours(path_);
    SavedState state = read_state(path_, kind_);
    // The last token is always computed: its logits are needed.
    const auto prompt = std::span(request.prompt).first(request.prompt.size() - 1);
    const auto common = std::ranges::mismatch(state.tokens, prompt).in1 - state.tokens.begin();
    const int length = static_cast<int>(common);
    if (length < state.cache.length) {
      if (!kvcache::can_be_cut(state.cache, kind_.shape, kind_.rule)) {
        warning_ = fmt::format(
            "{}: holds {} tokens of which the prompt begins with {} only: under {}{} they cannot "
            "be "
            "parted",
            path_.string(), state.cache.length, length, kind_.rule.traits->name,
            kind_.shape.states.size() > 0      ? " with recurrent layers"
            : kind_.shape.has_sliding_layers() ? " with sliding windows"
                                               : "");
        return;
      }
      if (length == 0) {
        return;
      }
      kvcache::cut(state.cache, kind_.layout, length);
    }
    request.beginning = std::make_shared<const kvcache::SavedSequence>(std::move(state.cache));
  } catch (const Error& error) {
    warning_ = error.what();
  }
}

void PromptCache::save() {
  auto cache = std::exchange(*told_, std::nullopt);
  if (!cache) {
    return;
  }
  try {
    require_ours(path_);  // again: the file may be new since
    prompt_.resize(static_cast<std::size_t>(cache->length));
    write_state(path_, kind_, {std::move(prompt_), std::move(*cache)});
  } catch (const Error& error) {
    warning_ = error.what();
  }
}

}  // namespace winnow::engine
