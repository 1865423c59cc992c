#include "apps/winnow/chat/live_answer.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <optional>
#include <vector>

#include "apps/winnow/chat/status_line.h"
#include "apps/winnow/interrupt.h"
#include "apps/winnow/output.h"
#include "apps/winnow/report/heat_map.h"
#include "apps/winnow/screen.h"

namespace winnow::cli {
namespace {

using StatusClock = std::chrono::steady_clock;

constexpr auto kStatusRedraw = std::chrono::milliseconds(100);
constexpr int kCacheBarWidth = 8;  // leaves room in 80 columns for the tokens and their speed

// The cache's size relative to a dense one, as a bar.
std::string cache_bar(const CacheStats& cache) {
  const auto bytes = static_cast<double>(cache.bytes);
  const auto dense = static_cast<double>(cache.dense_bytes);
  return dense > 0.0 && bytes > 0.0
             ? fmt::format("cache {}{}{}, {} when dense ({:.1f}x)",
                           share_bar(bytes / dense, kCacheBarWidth), shows_only_ascii() ? "|" : "▏",
                           readable_bytes(bytes), readable_bytes(dense), dense / bytes)
             : "cache empty";
}

class LiveStatus {
 public:
  void update(const Stream& stream) {
    const auto now = StatusClock::now();
    const Progress progress = stream.progress();
    if (progress.generated > 0 && !first_token_) {
      first_token_ = now;
    }
    if (now < next_) {
      return;
    }
    next_ = now + kStatusRedraw;
    line_.show(std::array{cache_bar(stream.cache()), done(progress, now)});
  }
  void clear() { line_.clear(); }

 private:
  [[nodiscard]] std::string done(const Progress& progress, StatusClock::time_point now) const {
    if (progress.generated == 0) {
      return fmt::format("reading {} of {} tokens", grouped(progress.prompt_done),
                         grouped(progress.prompt_tokens));
    }
    const std::string tokens =
        fmt::format("{} tokens", grouped(progress.prompt_tokens + progress.generated));
    const double seconds = std::chrono::duration<double>(now - *first_token_).count();
    return progress.generated == 1
               ? tokens
               : fmt::format("{}, {:.1f}/s", tokens, (progress.generated - 1) / seconds);
  }

  StatusLine line_;
  StatusClock::time_point next_ = StatusClock::now();
  std::optional<StatusClock::time_point> first_token_;
};

}  // namespace

Generation answer_live(Llm& llm, std::span<const std::int32_t> prompt,
                       const GenerateOptions& options) {
  Stream stream = llm.start(prompt, options);
  LiveStatus status;
  while (stream.advance()) {
    for (const Piece& piece : stream.take()) {
      print_now(piece.text);
    }
    status.update(stream);
    if (interrupted()) {
      stream.cancel();
    }
  }
  status.clear();
  print_now("\n");
  return stream.finish();
}

std::string answer_summary(const Generation& generation, int window) {
  const Sample& sample = generation.samples.front();
  const std::string reused =
      generation.reused_tokens > 0
          ? fmt::format("{} of {} prompt tokens from the cache", grouped(generation.reused_tokens),
                        grouped(generation.prompt_tokens))
          : fmt::format("{} prompt tokens", grouped(generation.prompt_tokens));
  std::vector<std::string> parts{"[" + cache_bar(sample.kv)};
  if (generation.prompt_tokens + static_cast<int>(sample.token_ids.size()) <= window) {
    parts.push_back(fmt::format("the window of {} tokens is not full", grouped(window)));
  }
  parts.push_back(reused);
  parts.push_back(fmt::format("{} tokens, {:.1f} tokens/s]",
                              grouped(static_cast<long long>(sample.token_ids.size())),
                              generation.decode_tokens_per_s));
  return wrapped_parts(parts, columns_of(STDERR_FILENO));
}

}  // namespace winnow::cli
