#include "eval/profile.h"

#include <algorithm>
#include <limits>

#include "api/llm_session.h"
#include "base/error.h"

namespace winnow::eval {
namespace {

// In each step, a head either has one entry more or not. Under DMS, this is the fate of
// the token that leaves the window, under DMC of the newest.
void tell_fates(const engine::LoadedModel& model, Profile& profile) {
  const kvcache::CacheConfig& cache = model.engine.cache;
  if (cache.traits().has_budget) {
    return;
  }
  const int delay = cache.traits().marks ? cache.window + 1 : 0;
  const auto heads = static_cast<std::size_t>(profile.heads);
  profile.fates.assign(static_cast<std::size_t>(profile.tokens) * heads, Fate::pending);
  for (int t = delay; t < profile.tokens; ++t) {
    for (std::size_t head = 0; head < heads; ++head) {
      if (profile.shape.reach_of(profile.shape.layer_of(static_cast<int>(head))) > 0) {
        continue;
      }
      const auto seen = [&](int at) {
        return at < 0 ? 0 : profile.visible[static_cast<std::size_t>(at) * heads + head];
      };
      profile.fates[static_cast<std::size_t>(t - delay) * heads + head] =
          seen(t) > seen(t - 1) ? Fate::kept : Fate::gone;
    }
  }
}

}  // namespace

double Profile::ratio_at(int length) const {
  const auto row = std::span(visible).subspan(
      static_cast<std::size_t>(length - 1) * static_cast<std::size_t>(heads),
      static_cast<std::size_t>(heads));
  double held = 0.0;
  for (const std::int32_t entries : row) {
    held += entries;
  }
  return static_cast<double>(shape.dense_entries(length)) / held;
}

double Profile::kept_share(int first, int last) const {
  const auto width = static_cast<std::size_t>(heads);
  double kept = 0.0;
  double decided = 0.0;
  for (std::size_t i = static_cast<std::size_t>(first) * width;
       i < static_cast<std::size_t>(last) * width; ++i) {
    kept += fates[i] == Fate::kept ? 1.0 : 0.0;
    decided += fates[i] != Fate::pending ? 1.0 : 0.0;
  }
  return decided > 0.0 ? kept / decided : std::numeric_limits<double>::quiet_NaN();
}

double Profile::share_of_heads(int token) const {
  const auto width = static_cast<std::size_t>(heads);
  const auto row = std::span(fates).subspan(static_cast<std::size_t>(token) * width, width);
  return static_cast<double>(row.size() -
                             static_cast<std::size_t>(std::ranges::count(row, Fate::gone))) /
         static_cast<double>(heads);
}

Profile measure_profile(const engine::LoadedModel& model, std::span<const std::int32_t> tokens,
                        const std::function<bool(std::int64_t)>& on_progress) {
  const model::ModelSpec& config = model.spec();
  require(!tokens.empty(), "the text is empty: at least one token is needed");
  require(tokens.size() <= static_cast<std::size_t>(config.max_positions),
          "{} tokens are more than the model's {} positions", tokens.size(), config.max_positions);
  Profile profile;
  profile.shape = model.cache_shape();
  profile.heads = profile.shape.all_heads();
  const auto heads = static_cast<std::size_t>(profile.heads);
  profile.visible.resize(tokens.size() * heads);
  // All but the first token count as generated: Quest would read a whole prompt densely.
  engine::Session session(*model.backend, model.engine, {1, static_cast<int>(tokens.size())});
  const auto chunk = static_cast<std::size_t>(model.engine.step_tokens);
  for (std::size_t first = 0; first < tokens.size(); first += chunk) {
    const std::size_t count = std::min(chunk, tokens.size() - first);
    session.feed(tokens.subspan(first, count), {},
                 std::span(profile.visible).subspan(first * heads, count * heads));
    profile.tokens = static_cast<int>(first + count);
    if (on_progress && !on_progress(profile.tokens)) {
      break;
    }
  }
  profile.visible.resize(static_cast<std::size_t>(profile.tokens) * heads);
  profile.live = session.usage().per_head;
  tell_fates(model, profile);
  return profile;
}

}  // namespace winnow::eval
