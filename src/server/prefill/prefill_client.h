// Remote prefill: another server reads prompts and sends the states of their caches.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/background.h"
#include "engine/state_source.h"
#include "hub/environment.h"

namespace winnow::server {

struct PrefillClientConfig {
  std::string url = {};      // of a server with /v1/prefill; empty: none
  std::string api_key = {};  // the server's key
  int least_tokens = 512;    // uncached tokens of a prompt; prompts with fewer are computed here
  std::chrono::milliseconds timeout{30000};  // from the request to the last byte
  std::chrono::milliseconds pause{30000};    // after a failure, no requests are sent for this long
};

struct PrefillClientStats {
  std::int64_t states = 0;  // received so far
  std::int64_t bytes = 0;   // of these states
  std::int64_t failures = 0;
  double seconds = 0.0;  // from requests to states
};

/// Requests states with POST /v1/prefill (docs/many-devices.md). A state is checked like those in
/// files: its checksum, the model and the other properties of its kind, and its tokens. After any
/// failure there is a warning, the prompt is computed here, and the server is not asked for a
/// while.
class PrefillClient : public engine::StateSource {
 public:
  using Warn = std::function<void(const std::string&)>;

  /// Throws Error when the URL is invalid.
  PrefillClient(PrefillClientConfig config, engine::StateKind kind, Warn warn);

  engine::ComingState find(std::span<const std::int32_t> prompt, std::size_t known) override;

  [[nodiscard]] PrefillClientStats stats() const;

 private:
  struct Question;
  using Bytes = std::vector<std::byte>;

  std::shared_ptr<const engine::SavedState> ask(const Question& question);
  [[nodiscard]] Bytes download(const Question& question) const;
  [[nodiscard]] std::size_t most_bytes(std::size_t tokens) const;
  [[nodiscard]] bool is_pausing() const;
  void note_failure(const std::string& message);
  void take_place(Question& question);
  void free_place();

  PrefillClientConfig config_;
  engine::StateKind kind_;
  Warn warn_;
  hub::Environment environment_;

  mutable std::mutex mutex_;  // of the members below
  PrefillClientStats stats_;
  std::chrono::steady_clock::time_point asks_again_{};  // the end of a pause after a failure

  int places_;               // for states that nobody has taken yet
  std::int64_t asked_ = 0;   // requests so far
  std::int64_t placed_ = 0;  // of these, in order
  std::condition_variable places_changed_;

  engine::Background workers_;
};

}  // namespace winnow::server
