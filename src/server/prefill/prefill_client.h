// Prompts that another server reads: it hands over the states of their caches.
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
  std::string url = {};      // of a server that has the door /v1/prefill; empty: there is none
  std::string api_key = {};  // that it asks for
  int least_tokens = 512;    // of a prompt, that are not cached here: fewer are computed here
  std::chrono::milliseconds timeout{30000};  // from the question to the last byte
  std::chrono::milliseconds pause{30000};    // in which it is not asked, after a failure
};

struct PrefillClientStats {
  std::int64_t states = 0;  // that have come
  std::int64_t bytes = 0;   // of these
  std::int64_t failures = 0;
  double seconds = 0.0;  // from questions to states
};

/// Asks for states with POST /v1/prefill (docs/many-devices.md). A state is checked as those in
/// files are: its checksum, the model and all else that its kind says, and its tokens. Whatever
/// goes wrong costs a warning and the prompt is computed here; the server is then left alone for a
/// while.
class PrefillClient : public engine::StateSource {
 public:
  using Warn = std::function<void(const std::string&)>;

  /// Throws Error when the URL is none.
  PrefillClient(PrefillClientConfig config, engine::StateKind kind, Warn warn);

  engine::ComingState find(std::span<const std::int32_t> prompt, std::size_t known) override;

  [[nodiscard]] PrefillClientStats stats() const;

 private:
  struct Question;
  using Bytes = std::vector<std::byte>;

  std::optional<engine::SavedState> ask(const Question& question);
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

  mutable std::mutex mutex_;  // of what follows
  PrefillClientStats stats_;
  std::chrono::steady_clock::time_point asks_again_{};  // after a failure

  int places_;               // for states that nobody has taken yet
  std::int64_t asked_ = 0;   // questions
  std::int64_t placed_ = 0;  // of these, in order
  std::condition_variable places_changed_;

  engine::Background workers_;
};

}  // namespace winnow::server
